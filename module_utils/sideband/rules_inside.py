"""Rules about one machine: planes that never leave it, and the roles that it plays."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence

from .errors import Error, got
from .facts import Facts, rule
from .load import PREFIX, SITE, Inventory
from .model import LOOPBACK, Plane

# The data's way is one chain: without the next link there is nowhere to send, without the last no data.
NEEDS = {
    "node": ("rack",),
    "rack": ("node", "region"),
    "region": ("rack", "lake"),
    "lake": ("region",),
    "logs": ("node", "rack"),
    "gateway": ("lake",),
    "archive": ("gateway",),
    "alerts": ("region", "lake"),
}
LOOP = ipaddress.IPv4Network("127.0.0.0/8")
EVERYBODYS = ipaddress.ip_address("127.0.0.1")


def components(inventory: Inventory, right: set[tuple[str, str]]) -> Iterator[Error]:
    """What one machine is to play, before all other rules: their findings would be echoes of these."""
    words = inventory.nouns.get("components")
    path = f"{PREFIX}components"
    if words is None and _plays_nothing(inventory):
        hint = "a list: [node, rack, region, lake, gateway, alerts]; group_vars/all/components.yml"
        yield Error(SITE, path, "is missing", hint=hint)
    if words is None or (SITE, "components") not in right:
        return
    if len(inventory.hosts) > 1:
        problem = f"is for one machine, and the site has {len(inventory.hosts)}"
        yield Error(SITE, path, problem, hint="remove it; on many machines groups say who plays what")
        return
    missing: dict[str, list[str]] = {}
    for word in words:
        for needed in NEEDS[word]:
            if needed not in words:
                missing.setdefault(needed, []).append(word)
    for needed, by in missing.items():
        verb = "needs" if len(by) == 1 else "need"
        hint = f"add {needed}, or remove {' and '.join(by)}"
        yield Error(SITE, path, f"{' and '.join(by)} {verb} {needed}, which is missing", got(words), hint)


def _plays_nothing(inventory: Inventory) -> bool:
    """One machine with planes of its own, and no part of the data's way on it."""
    planes = inventory.nouns.get("planes")
    specs = planes.values() if isinstance(planes, Mapping) else ()
    fabrics = {spec.get("fabric") if isinstance(spec, Mapping) else None for spec in specs}
    local = fabrics == {LOOPBACK}
    played = {word for host in inventory.hosts.values() for word in host["words"]}
    return local and len(inventory.hosts) == 1 and not played & set(NEEDS)


@rule("planes")
def inside(facts: Facts) -> Iterator[Error]:
    """A plane of fabric loopback has one IPv4 subnet of 127.0.0.0/8 and nothing that goes with a wire."""
    for name, spec in facts.noun("planes").items():
        if spec.get("fabric") != LOOPBACK:
            continue
        path = f"sideband_planes.{name}"
        for key in ("vlan", "per_rack", "mode"):
            if key in spec:
                hint = "remove it; such a plane has subnets alone, and no rule of ours"
                yield Error(SITE, f"{path}.{key}", "a loopback plane has none", got(spec[key]), hint)
        if spec["kind"] == "training":
            hint = "training needs no plane here; leave it out"
            yield Error(SITE, f"{path}.kind", "a training plane on loopback", got("training"), hint)
        nets = [ipaddress.ip_network(text) for text in spec.get("subnets", ())]
        if nets and not all(_fits(net) for net in nets):
            problem = "must be one subnet of 127.0.0.0/8, without 127.0.0.1"
            hint = "for example [127.21.0.0/24]; its first address is the one that answers"
            yield Error(SITE, f"{path}.subnets", problem, got(spec["subnets"]), hint)
        if len(facts.inventory.hosts) > 1:
            problem = f"lives inside one machine, and the site has {len(facts.inventory.hosts)}"
            hint = "give it a VLAN and another fabric"
            yield Error(SITE, f"{path}.fabric", problem, got(LOOPBACK), hint)


def unzoned(planes: Mapping[str, Plane], zones: Sequence[object]) -> Iterator[Error]:
    """Only a site whose planes are all inside one machine may do without zones."""
    if not zones and not (planes and all(plane.local for plane in planes.values())):
        hint = "one interface that every host of a group has"
        yield Error(SITE, f"{PREFIX}zones", "must not be empty", got([]), hint)


def _fits(net: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    return (
        isinstance(net, ipaddress.IPv4Network)
        and net.subnet_of(LOOP)
        and net.num_addresses > 2
        and EVERYBODYS not in net
    )


@rule("planes", "zones")
def no_zone(facts: Facts) -> Iterator[Error]:
    for number, zone in enumerate(facts.zones):
        if zone.plane in facts.planes and facts.planes[zone.plane].local:
            hint = "remove the zone; every role of the machine is on it"
            yield Error(
                SITE, f"sideband_zones[{number}]", "a loopback plane needs no zone", got(zone.plane), hint
            )
