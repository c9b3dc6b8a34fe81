"""All faults of a site's contract at once: what cannot be read, then shape, then meaning. Controller only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .errors import Error
from .load import Spelling, as_read, gather
from .meaning import check_meaning
from .rules_inside import components
from .shape import check_settings, check_shape


def check_site(
    hostvars: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Iterable[str]],
    known: Iterable[str] = (),
    spelling: Spelling = as_read,
    deployed: Mapping[str, Any] | None = None,
    confirmed: str = "",
    served: bool = False,
) -> list[Error]:
    """Every fault, in a stable order. `known`: variables that roles document, beside the contract's own.
    `deployed` is the record of what is in force, `confirmed` the value of confirm_retention.
    `served`: the roles of this bundle are to serve it."""
    known = frozenset(known)
    inventory = gather(hostvars, groups, spelling, known)
    shape, right = check_shape(inventory)
    # On one machine everything else follows from them: what is said of it would be an echo.
    unread = [error for error in inventory.errors if error.path == "sideband_components"]
    amiss = unread + [error for error in shape if error.path.startswith("sideband_components")]
    amiss = amiss or list(components(inventory, right))
    if amiss:
        return amiss
    meaning = check_meaning(inventory, right, known, deployed, confirmed, served)
    return list(dict.fromkeys(inventory.errors + shape + check_settings(inventory) + meaning))
