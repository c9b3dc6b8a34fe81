"""Filters of role gateway: querygate's configuration, and what the front before it lets through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

# What is heavy is imported where it is used: every task's process loads every filter file.


def configuration(model: Any, host: str, settings: Any) -> dict[str, Any]:
    """querygate.json: `sideband_model | sideband_gateway_configuration(inventory_hostname, settings)`."""
    from sideband import querygate

    try:
        return querygate.compile_querygate(model, {**querygate.stores(model, host), **settings})
    except ValueError as error:
        raise AnsibleFilterError(f"{host}: {error}") from None


def fronts(model: Any, host: str, question_bytes: int) -> list[dict[str, Any]]:
    """A record for each flow that ends here: `sideband_model | sideband_gateway_fronts(host, bytes)`."""
    from sideband import gateway_front

    try:
        return gateway_front.fronts(model, host, int(question_bytes))
    except ValueError as error:
        raise AnsibleFilterError(f"{host}: {error}") from None


def lists(found: Any) -> list[dict[str, Any]]:
    """The files that name who may come: `fronts | sideband_gateway_lists`."""
    from sideband import gateway_front

    return gateway_front.lists(found)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_gateway_configuration": configuration,
            "sideband_gateway_fronts": fronts,
            "sideband_gateway_lists": lists,
        }
