"""The second ring of validation: does the contract make sense? Pure rules over plain data, one module for
each part of the contract; here they are run."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from . import (
    rules_archive,
    rules_askers,
    rules_budget,
    rules_catalogue,
    rules_data,
    rules_hosts,
    rules_inside,
    rules_names,
    rules_notify,
    rules_planes,
    rules_served,
    rules_ways,
)
from .errors import Error, got
from .facts import RULES, Facts, segments, with_rates
from .load import HOST_NOUNS, SITE, SITE_NOUNS, Inventory
from .model import Zone, parse_flows, parse_planes

# The order of the errors: whose rules come first.
MODULES = (
    rules_names, rules_served, rules_inside, rules_planes, rules_hosts, rules_ways, rules_data,
    rules_askers, rules_archive, rules_catalogue, rules_notify, rules_budget,
)  # fmt: skip


def check_meaning(
    inventory: Inventory,
    right: set[tuple[str, str]],
    known: frozenset[str],
    deployed: Mapping[str, Any] | None = None,
    confirmed: str = "",
    served: bool = False,
) -> list[Error]:
    """Every fault in what the contract says; `known` are the variables that roles document. `served`: whether
    the roles of this bundle are to serve it, which know some flows and tiers by name."""

    def value(noun: str, empty: Any) -> Any:
        return inventory.nouns[noun] if (SITE, noun) in right else empty

    twice_a_family = list(_families(value("planes", {})))
    planes = {} if twice_a_family else parse_planes(with_rates(value("planes", {})))
    if twice_a_family:
        right = right - {(SITE, "planes")}
    unzoned = list(rules_inside.unzoned(planes, value("zones", [""])))
    if unzoned:
        right = right - {(SITE, "zones")}
    facts = Facts(
        inventory=inventory,
        right=right,
        known=known,
        planes=planes,
        zones=tuple(Zone(z["group"], z["plane"], z["device"]) for z in value("zones", [])),
        flows=parse_flows(value("flows", [])),
        deployed=deployed or {},
        confirmed=confirmed,
        served=served,
    )
    errors = twice_a_family + unzoned
    order = [module.__name__ for module in MODULES]
    for nouns, function in sorted(RULES, key=lambda entry: order.index(entry[1].__module__)):
        if facts.has(*nouns):
            errors += function(facts)
    whole = facts.has(*SITE_NOUNS) and all(
        (host, noun) in right for host in inventory.hosts for noun in HOST_NOUNS
    )
    return errors or (list(rules_budget.costs(facts)) if whole else [])


def _families(spec: Mapping[str, Any]) -> Iterator[Error]:
    for path, segment in segments(spec):
        versions = [ipaddress.ip_network(text).version for text in segment["subnets"]]
        if len(set(versions)) < len(versions):
            yield Error(
                SITE,
                f"{path}.subnets",
                f"has two IPv{versions[0]} subnets",
                got(segment["subnets"]),
                "a segment has at most one subnet of each family",
            )
