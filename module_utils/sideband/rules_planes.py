"""Rules about planes, zones and flows: what traffic there is, who takes part, who may open what."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import combinations

from .errors import Error, got, nearest
from .facts import RACKED_WORDS, Facts, rule, segments
from .load import PREFIX, SITE
from .model import CLIENTS, GUARDED_KINDS, LOOPBACK, SOURCE_WORDS, Flow, Plane, Zone


@rule("planes")
def a_vlan_once(facts: Facts) -> Iterator[Error]:
    owners: dict[int, str] = {}
    for path, segment in segments(facts.noun("planes")):
        vlan = segment.get("vlan", 0)
        if vlan and vlan in owners:
            yield Error(
                SITE,
                f"{path}.vlan",
                f"is the VLAN of {owners[vlan]} too",
                got(vlan),
                "each segment has its own",
            )
        owners.setdefault(vlan, path)


@rule("planes")
def subnets_apart(facts: Facts) -> Iterator[Error]:
    nets = [
        (path, ipaddress.ip_network(text))
        for path, segment in segments(facts.noun("planes"))
        for text in segment["subnets"]
    ]
    for (first, one), (second, two) in combinations(nets, 2):
        if one.version == two.version and one.overlaps(two):
            yield Error(
                SITE,
                f"{second}.subnets",
                f"overlaps {one} of {first}",
                got(str(two)),
                "rules bind addresses to planes; give it a subnet of its own",
            )


@rule("planes")
def kinds(facts: Facts) -> Iterator[Error]:
    for name, spec in facts.noun("planes").items():
        path, kind = f"sideband_planes.{name}", spec["kind"]
        guarded = kind in GUARDED_KINDS and spec.get("fabric") != LOOPBACK
        if guarded and spec.get("fabric") == "infiniband":
            yield Error(
                SITE,
                f"{path}.fabric",
                f"a {kind} plane on InfiniBand",
                got("infiniband"),
                "InfiniBand carries no telemetry (B7); use an Ethernet plane",
            )
        if guarded and "egress_rate" not in spec:
            yield Error(
                SITE,
                f"{path}.egress_rate",
                "is missing",
                hint=f"a {kind} plane caps what a host sends, for example 20Mbit",
            )
        if not guarded and "egress_rate" in spec:
            yield Error(
                SITE,
                f"{path}.egress_rate",
                f"a {spec['fabric'] if spec.get('fabric') == LOOPBACK else kind} plane gets no queue of ours",
                got(spec["egress_rate"]),
                "remove it; only telemetry and query planes are shaped (B7)",
            )
        if kind == "training" and "mode" in spec:
            yield Error(
                SITE,
                f"{path}.mode",
                "a training plane gets no rule of ours",
                got(spec["mode"]),
                "remove it; the training interface is never touched (B7)",
            )


@rule("planes", "zones")
def zones(facts: Facts) -> Iterator[Error]:
    places: dict[tuple[str, str], int] = {}
    devices: dict[tuple[str, str], tuple[int, str]] = {}
    empty: set[str] = set()
    for number, zone in enumerate(facts.zones):
        path = f"sideband_zones[{number}]"
        if zone.plane not in facts.planes:
            yield Error(
                SITE,
                f"{path}.plane",
                "is no plane of sideband_planes",
                got(zone.plane),
                nearest(zone.plane, facts.planes, "planes: "),
            )
            continue
        kind = facts.planes[zone.plane].kind
        if zone.group not in empty and not facts.members(zone.group):
            empty.add(zone.group)
            yield Error(
                SITE,
                f"{path}.group",
                "has no hosts in the inventory",
                got(zone.group),
                "add a host to the group, or remove the zone",
            )
        if kind == "training" and zone.group[len(PREFIX) :] in SOURCE_WORDS:
            yield Error(
                SITE,
                f"{path}.plane",
                f"puts {zone.group} on a training plane",
                got(zone.plane),
                "only training nodes are there (B3)",
            )
        if kind == "query" and zone.group == f"{PREFIX}node":
            yield Error(
                SITE,
                f"{path}.plane",
                "puts training nodes on a query plane",
                got(zone.plane),
                "people ask the gateway, never a node (Q1)",
            )
        first = places.setdefault((zone.group, zone.plane), number)
        if first != number:
            yield Error(
                SITE,
                path,
                f"repeats sideband_zones[{first}]",
                got(f"{zone.group} on {zone.plane}"),
                "one interface for a group and a plane",
            )
        other, plane = devices.setdefault((zone.group, zone.device), (number, zone.plane))
        if plane != zone.plane:
            yield Error(
                SITE,
                f"{path}.device",
                f"is the device of plane {plane} too (sideband_zones[{other}])",
                got(zone.device),
                "each plane has its own interface; a tagged one has a name of its own",
            )


@rule("planes", "zones")
def one_device(facts: Facts) -> Iterator[Error]:
    """A host in two groups gets the zones of both; they must agree."""
    for host in facts.inventory.hosts:
        groups = {PREFIX + word for word in facts.words(host)}
        devices: dict[str, Zone] = {}
        for zone in facts.zones:
            if zone.group in groups and zone.plane in facts.planes:
                first = devices.setdefault(zone.plane, zone)
                if first.device != zone.device:
                    yield Error(
                        host,
                        "sideband_zones",
                        f"gives plane {zone.plane} two devices, {first.device} by {first.group} and"
                        f" {zone.device} by {zone.group}",
                        hint="a host in two groups needs one device for a plane",
                    )


@rule("planes", "zones", "flows")
def flows(facts: Facts) -> Iterator[Error]:
    for flow in facts.flows:
        path = f"sideband_flows[{flow.name}]"
        plane = facts.planes.get(flow.plane)
        if flow.target == f"{PREFIX}node":
            kind = plane.kind if plane else "unknown"
            yield Error(
                SITE,
                f"{path}.to",
                f"opens connections to training nodes on the {kind} plane {flow.plane}",
                got(flow.target),
                "nothing may; let the node push or ask instead (B3)",
            )
        if plane is None:
            yield Error(
                SITE,
                f"{path}.plane",
                "is no plane of sideband_planes",
                got(flow.plane),
                nearest(flow.plane, facts.planes, "planes: "),
            )
            continue
        if plane.kind not in GUARDED_KINDS:
            yield Error(
                SITE,
                f"{path}.plane",
                f"is a {plane.kind} plane",
                got(flow.plane),
                "flows are of telemetry and query planes; other traffic is the site's own",
            )
            continue
        yield from _flow_ends(facts, flow, path, plane)


def _flow_ends(facts: Facts, flow: Flow, path: str, plane: Plane) -> Iterator[Error]:
    if flow.source == CLIENTS and plane.kind != "query":
        yield Error(
            SITE,
            f"{path}.from",
            f"lets any address in on the {plane.kind} plane {plane.name}",
            got(CLIENTS),
            "clients are on query planes only",
        )
    if flow.source == flow.target:
        yield Error(
            SITE, f"{path}.to", "is where the flow comes from", got(flow.target), "a flow joins two groups"
        )
    for key, group in (("from", flow.source), ("to", flow.target)):
        if group == CLIENTS:
            continue
        if not facts.members(group):
            yield Error(
                SITE,
                f"{path}.{key}",
                "has no hosts in the inventory",
                got(group),
                "add a host to the group, or remove the flow",
            )
        placed = any(zone.group == group and zone.plane == flow.plane for zone in facts.zones)
        if not placed and not plane.local:
            yield Error(
                SITE,
                f"{path}.{key}",
                f"has no interface on plane {flow.plane}",
                got(group),
                "add a zone for it, or name another plane",
            )
        if flow.same_rack and group[len(PREFIX) :] not in RACKED_WORDS:
            yield Error(
                SITE,
                f"{path}.same_rack",
                f"binds {group}, which has no racks",
                got(True),
                "only sideband_node and sideband_rack have racks",
            )
    if flow.same_rack and flow.source == CLIENTS:
        yield Error(SITE, f"{path}.same_rack", "binds clients, which have no racks", got(True), "remove it")


@rule("flows")
def flows_once(facts: Facts) -> Iterator[Error]:
    names_seen: set[str] = set()
    ports: dict[tuple[str, str, int], str] = {}
    for flow in facts.flows:
        path = f"sideband_flows[{flow.name}]"
        if flow.name in names_seen:
            yield Error(
                SITE,
                f"{path}.name",
                "is the name of two flows",
                got(flow.name),
                "each flow has a name of its own",
            )
        names_seen.add(flow.name)
        first = ports.setdefault((flow.plane, flow.target, flow.port), flow.name)
        if first != flow.name:
            yield Error(
                SITE,
                f"{path}.port",
                f"is the port of flow {first} too",
                got(flow.port),
                "two flows into one group differ in port, or are one flow",
            )


@rule("planes", "flows")
def lossless(facts: Facts) -> Iterator[Error]:
    taken = {dscp: plane.name for plane in facts.planes.values() for dscp in plane.lossless_dscp}
    for flow in facts.flows:
        if flow.dscp in taken:
            yield Error(
                SITE,
                f"sideband_flows[{flow.name}].dscp",
                f"maps to a lossless class on plane {taken[flow.dscp]}",
                got(flow.dscp),
                "telemetry must be droppable (B7); take a DSCP that is not in lossless_dscp",
            )
