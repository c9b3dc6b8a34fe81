"""The ladder seen from outside: what each level shows in the lake, and what it may cost at a rack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Series that the sampler adds to every scrape by itself; no level lists them and none can stop them.
OWN_NAMES = ("scrape_",)


def intake_limits(ladder: Mapping[str, Any]) -> dict[str, int]:
    """Bytes a second that a rack takes from each node, by level; 0 at the highest, which is no limit."""
    highest = ladder["order"][0]
    return {
        name: 0 if name == highest else int(level["intake_bytes_per_second"])
        for name, level in ladder["levels"].items()
    }


def index(order: Sequence[str], level: str) -> int:
    return list(order).index(level)


def foreign(keep: str, names: Iterable[str]) -> list[str]:
    """The names that a level does not list, though a node still sends them."""
    pattern = re.compile(keep) if keep else None
    return sorted(
        name for name in names if not name.startswith(OWN_NAMES) and not (pattern and pattern.match(name))
    )


def marks(ladder: Mapping[str, Any], level: str) -> list[str]:
    """Exact names that a level lists and the one below does not, of those that every node sends: one of them
    in the lake shows the level."""
    order = list(ladder["order"])
    below = order[order.index(level) + 1 :][:1]
    lower = ladder["levels"][below[0]]["keep"] if below else ""
    pattern = re.compile(lower) if lower else None
    return [
        name
        for name in ladder["levels"][level]["everywhere"]
        if not name.endswith("*") and name != "up" and not (pattern and pattern.match(name))
    ]
