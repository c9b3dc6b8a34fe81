"""The second ring of validation: does the contract make sense? Pure rules over plain data.

Each rule names the nouns that it reads. It runs when their shape is right, so that one misspelt word does
not hide the rest and never makes a rule stumble."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Callable

from .errors import Error, got, nearest
from .load import HOST_NOUNS, PREFIX, SITE, SITE_NOUNS, Inventory
from .model import (
    CLIENTS,
    GUARDED_KINDS,
    SOURCE_WORDS,
    WORDS,
    Flow,
    Level,
    Plane,
    Segment,
    Zone,
    canonical_address,
    parse_flows,
    parse_levels,
    parse_planes,
    parse_site,
    parse_tiers,
)
from .qdisc import compile_shapes

# Set by our own plays while they run: results, not settings.
RESULTS = frozenset(
    PREFIX + name for name in ("model", "self", "identity", "policy_allowed_signers", "host_result")
)
# Names that were, and what they are called now.
RENAMED: Mapping[str, str] = {}
RACKED_WORDS = ("node", "rack")


@dataclass
class Facts:
    """What is known of the contract to be well formed."""

    inventory: Inventory
    right: set[tuple[str, str]]
    known: frozenset[str]
    planes: Mapping[str, Plane]
    zones: tuple[Zone, ...]
    flows: tuple[Flow, ...]

    def has(self, *nouns: str) -> bool:
        return all((SITE, noun) in self.right for noun in nouns)

    def noun(self, noun: str) -> Any:
        return self.inventory.nouns[noun]

    def hosts(self, noun: str) -> Iterator[tuple[str, Any]]:
        """(host, value) of a host's noun, where its shape is right and it is given."""
        for name, variables in self.inventory.hosts.items():
            if noun in variables and (name, noun) in self.right:
                yield name, variables[noun]

    def rack(self, host: str) -> str:
        ours = self.inventory.hosts.get(host, {})
        return str(ours.get("rack", "")) if (host, "rack") in self.right else ""

    def words(self, host: str) -> list[str]:
        return list(self.inventory.hosts[host]["words"])

    def members(self, group: str) -> list[str]:
        return [name for name in self.inventory.hosts if group[len(PREFIX) :] in self.words(name)]

    def racks(self) -> list[str]:
        return sorted({self.rack(host) for host in self.inventory.hosts} - {""})

    def planes_of(self, host: str) -> list[str]:
        groups = {PREFIX + word for word in self.words(host)}
        return [name for name in self.planes if any(z.plane == name and z.group in groups for z in self.zones)]

    def segment(self, host: str, plane: str) -> Segment | None:
        return self.planes[plane].segment_of(self.rack(host))


Rule = Callable[[Facts], Iterator[Error]]
RULES: list[tuple[tuple[str, ...], Rule]] = []


def rule(*nouns: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.append((nouns, function))
        return function

    return register


def check_meaning(inventory: Inventory, right: set[tuple[str, str]], known: frozenset[str]) -> list[Error]:
    """Every fault in what the contract says; `known` are the variables that roles document."""

    def value(noun: str, empty: Any) -> Any:
        return inventory.nouns[noun] if (SITE, noun) in right else empty

    twice_a_family = list(_families(value("planes", {})))
    planes = {} if twice_a_family else parse_planes(_with_rates(value("planes", {})))
    if twice_a_family:
        right = right - {(SITE, "planes")}
    facts = Facts(
        inventory=inventory,
        right=right,
        known=known,
        planes=planes,
        zones=tuple(Zone(z["group"], z["plane"], z["device"]) for z in value("zones", [])),
        flows=parse_flows(value("flows", [])),
    )
    errors = twice_a_family
    for nouns, function in RULES:
        if facts.has(*nouns):
            errors += function(facts)
    return errors


def _with_rates(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A missing egress_rate is its own rule's finding; the other rules still want to read the plane."""
    return {name: {"egress_rate": "1kbit", **plane} for name, plane in spec.items()}


def _segments(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, plane in spec.items():
        if "vlan" in plane:
            yield f"sideband_planes.{name}", plane
        for rack, part in plane.get("per_rack", {}).items():
            yield f"sideband_planes.{name}.per_rack.{rack}", part


def _families(spec: Mapping[str, Any]) -> Iterator[Error]:
    for path, segment in _segments(spec):
        versions = [ipaddress.ip_network(text).version for text in segment["subnets"]]
        if len(set(versions)) < len(versions):
            yield Error(
                SITE, f"{path}.subnets", f"has two IPv{versions[0]} subnets", got(segment["subnets"]),
                "a segment has at most one subnet of each family",
            )  # fmt: skip


# Names -------------------------------------------------------------------------------------------------


@rule()
def names(facts: Facts) -> Iterator[Error]:
    """A misspelt variable is silently ignored by Ansible; not by us."""
    nouns = {PREFIX + noun for noun in (*SITE_NOUNS, *HOST_NOUNS)}
    known = nouns | facts.known | RESULTS
    said: set[str] = set()
    for host, variables in facts.inventory.names.items():
        for name in variables:
            if name in known or name in said:
                continue
            problem, hint = _name_fault(name, sorted(nouns | facts.known))
            if problem:
                everywhere = all(name in others for others in facts.inventory.names.values())
                if everywhere:
                    said.add(name)
                yield Error(SITE if everywhere else host, name, problem, hint=hint)


def _name_fault(name: str, known: list[str]) -> tuple[str, str]:
    if name in RENAMED:
        return "is not called so any more", f"it is {RENAMED[name]} now"
    bare = [word[len(PREFIX) :] for word in known]
    if name.startswith(PREFIX):
        return "unknown variable", _nearest_name(name[len(PREFIX) :], bare) or "no role reads it; remove it"
    stem = re.split(r"[_-]", name, maxsplit=1)[0]
    if _distance(stem.lower(), "sideband") <= 2 and len(name) > len(stem):
        wanted = name[len(stem) + 1 :].lower().replace("-", "_")
        close = _nearest_name(wanted, bare) or f"ours begin with {PREFIX!r}"
        return "looks like a variable of ours, and is none", close
    return "", ""


def _nearest_name(word: str, bare: list[str]) -> str:
    """The prefix is left out of the comparison: it would make any two names look alike."""
    return nearest(word, bare, "").replace("did you mean '", f"did you mean '{PREFIX}")


def _distance(one: str, two: str) -> int:
    """How many letters to add, take, change or swap with the next (two swaps away is another word)."""
    rows = [list(range(len(two) + 1))]
    for i, left in enumerate(one, 1):
        row = [i]
        for j, right in enumerate(two, 1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == two[j - 2] and one[i - 2] == right:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


@rule()
def one_value(facts: Facts) -> Iterator[Error]:
    for host, noun in facts.inventory.differing:
        yield Error(
            host, PREFIX + noun, "differs from the other hosts' value",
            hint=f"a noun has one value for the whole site; keep it in group_vars/all/{noun}.yml",
        )  # fmt: skip


@rule()
def some_hosts(facts: Facts) -> Iterator[Error]:
    if not facts.inventory.hosts:
        yield Error(SITE, "groups.sideband", "has no hosts", hint="put the site's hosts into sideband_<word> groups")
    for group in sorted(facts.inventory.groups):
        word = group[len(PREFIX) :]
        if group.startswith(PREFIX) and word not in WORDS and not word.startswith("ring_"):
            hint = nearest(group, [PREFIX + known for known in WORDS], "groups of the house: ")
            yield Error(SITE, f"groups.{group}", "is no group of the house", hint=hint)


# Planes ------------------------------------------------------------------------------------------------


@rule("planes")
def a_vlan_once(facts: Facts) -> Iterator[Error]:
    owners: dict[int, str] = {}
    for path, segment in _segments(facts.noun("planes")):
        vlan = segment["vlan"]
        if vlan in owners:
            yield Error(SITE, f"{path}.vlan", f"is the VLAN of {owners[vlan]} too", got(vlan), "each segment has its own")
        owners.setdefault(vlan, path)


@rule("planes")
def subnets_apart(facts: Facts) -> Iterator[Error]:
    nets = [
        (path, ipaddress.ip_network(text))
        for path, segment in _segments(facts.noun("planes"))
        for text in segment["subnets"]
    ]
    for (first, one), (second, two) in combinations(nets, 2):
        if one.version == two.version and one.overlaps(two):
            yield Error(
                SITE, f"{second}.subnets", f"overlaps {one} of {first}", got(str(two)),
                "rules bind addresses to planes; give it a subnet of its own",
            )  # fmt: skip


@rule("planes")
def kinds(facts: Facts) -> Iterator[Error]:
    for name, spec in facts.noun("planes").items():
        path, kind = f"sideband_planes.{name}", spec["kind"]
        guarded = kind in GUARDED_KINDS
        if guarded and spec.get("fabric") == "infiniband":
            yield Error(SITE, f"{path}.fabric", f"a {kind} plane on InfiniBand", got("infiniband"),
                        "InfiniBand carries no telemetry (B7); use an Ethernet plane")  # fmt: skip
        if guarded and "egress_rate" not in spec:
            yield Error(SITE, f"{path}.egress_rate", "is missing", hint=f"a {kind} plane caps what a host sends, for example 20Mbit")
        if not guarded and "egress_rate" in spec:
            yield Error(SITE, f"{path}.egress_rate", f"a {kind} plane gets no queue of ours", got(spec["egress_rate"]),
                        "remove it; only telemetry and query planes are shaped (B7)")  # fmt: skip
        if kind == "training" and "mode" in spec:
            yield Error(SITE, f"{path}.mode", "a training plane gets no rule of ours", got(spec["mode"]),
                        "remove it; the training interface is never touched (B7)")  # fmt: skip


# Zones -------------------------------------------------------------------------------------------------


@rule("planes", "zones")
def zones(facts: Facts) -> Iterator[Error]:
    places: dict[tuple[str, str], int] = {}
    devices: dict[tuple[str, str], tuple[int, str]] = {}
    for number, zone in enumerate(facts.zones):
        path = f"sideband_zones[{number}]"
        if zone.plane not in facts.planes:
            yield Error(SITE, f"{path}.plane", "is no plane of sideband_planes", got(zone.plane), nearest(zone.plane, facts.planes, "planes: "))
            continue
        kind = facts.planes[zone.plane].kind
        if not facts.members(zone.group):
            yield Error(SITE, f"{path}.group", "has no hosts in the inventory", got(zone.group), "add a host to the group, or remove the zone")
        if kind == "training" and zone.group[len(PREFIX) :] in SOURCE_WORDS:
            yield Error(SITE, f"{path}.plane", f"puts {zone.group} on a training plane", got(zone.plane), "only training nodes are there (B3)")
        if kind == "query" and zone.group == f"{PREFIX}node":
            yield Error(SITE, f"{path}.plane", "puts training nodes on a query plane", got(zone.plane), "people ask the gateway, never a node (Q1)")
        first = places.setdefault((zone.group, zone.plane), number)
        if first != number:
            yield Error(SITE, path, f"repeats sideband_zones[{first}]", got(f"{zone.group} on {zone.plane}"), "one interface for a group and a plane")
        other, plane = devices.setdefault((zone.group, zone.device), (number, zone.plane))
        if plane != zone.plane:
            yield Error(SITE, f"{path}.device", f"is the device of plane {plane} too (sideband_zones[{other}])", got(zone.device),
                        "each plane has its own interface; a tagged one has a name of its own")  # fmt: skip


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
                    yield Error(host, "sideband_zones", f"gives plane {zone.plane} two devices, {first.device} by {first.group} and {zone.device} by {zone.group}",
                                hint="a host in two groups needs one device for a plane")  # fmt: skip


# Flows -------------------------------------------------------------------------------------------------


@rule("planes", "zones", "flows")
def flows(facts: Facts) -> Iterator[Error]:
    for flow in facts.flows:
        path = f"sideband_flows[{flow.name}]"
        plane = facts.planes.get(flow.plane)
        if flow.target == f"{PREFIX}node":
            kind = plane.kind if plane else "unknown"
            yield Error(SITE, f"{path}.to", f"opens connections to training nodes on the {kind} plane {flow.plane}", got(flow.target),
                        "nothing may; let the node push or ask instead (B3)")  # fmt: skip
        if plane is None:
            yield Error(SITE, f"{path}.plane", "is no plane of sideband_planes", got(flow.plane), nearest(flow.plane, facts.planes, "planes: "))
            continue
        if not plane.guarded:
            yield Error(SITE, f"{path}.plane", f"is a {plane.kind} plane", got(flow.plane),
                        "flows are of telemetry and query planes; other traffic is the site's own")  # fmt: skip
            continue
        yield from _flow_ends(facts, flow, path, plane)


def _flow_ends(facts: Facts, flow: Flow, path: str, plane: Plane) -> Iterator[Error]:
    if flow.source == CLIENTS and plane.kind != "query":
        yield Error(SITE, f"{path}.from", f"lets any address in on the {plane.kind} plane {plane.name}", got(CLIENTS), "clients are on query planes only")
    if flow.source == flow.target:
        yield Error(SITE, f"{path}.to", "is where the flow comes from", got(flow.target), "a flow joins two groups")
    for key, group in (("from", flow.source), ("to", flow.target)):
        if group == CLIENTS:
            continue
        if not facts.members(group):
            yield Error(SITE, f"{path}.{key}", "has no hosts in the inventory", got(group), "add a host to the group, or remove the flow")
        if not any(zone.group == group and zone.plane == flow.plane for zone in facts.zones):
            yield Error(SITE, f"{path}.{key}", f"has no interface on plane {flow.plane}", got(group), "add a zone for it, or name another plane")
        if flow.same_rack and group[len(PREFIX) :] not in RACKED_WORDS:
            yield Error(SITE, f"{path}.same_rack", f"binds {group}, which has no racks", got(True), "only sideband_node and sideband_rack have racks")
    if flow.same_rack and flow.source == CLIENTS:
        yield Error(SITE, f"{path}.same_rack", "binds clients, which have no racks", got(True), "remove it")


@rule("flows")
def flows_once(facts: Facts) -> Iterator[Error]:
    names_seen: set[str] = set()
    ports: dict[tuple[str, str, int], str] = {}
    for flow in facts.flows:
        path = f"sideband_flows[{flow.name}]"
        if flow.name in names_seen:
            yield Error(SITE, f"{path}.name", "is the name of two flows", got(flow.name), "each flow has a name of its own")
        names_seen.add(flow.name)
        first = ports.setdefault((flow.plane, flow.target, flow.port), flow.name)
        if first != flow.name:
            yield Error(SITE, f"{path}.port", f"is the port of flow {first} too", got(flow.port), "two flows into one group differ in port, or are one flow")


@rule("planes", "flows")
def lossless(facts: Facts) -> Iterator[Error]:
    taken = {dscp: plane.name for plane in facts.planes.values() for dscp in plane.lossless_dscp}
    for flow in facts.flows:
        if flow.dscp in taken:
            yield Error(SITE, f"sideband_flows[{flow.name}].dscp", f"maps to a lossless class on plane {taken[flow.dscp]}", got(flow.dscp),
                        "telemetry must be droppable (B7); take a DSCP that is not in lossless_dscp")  # fmt: skip


# Hosts -------------------------------------------------------------------------------------------------


@rule()
def racks(facts: Facts) -> Iterator[Error]:
    receivers: dict[str, list[str]] = {}
    for host, variables in facts.inventory.hosts.items():
        racked = sorted(set(RACKED_WORDS) & set(variables["words"]))
        if racked and "rack" not in variables and (host, "rack") in facts.right:
            yield Error(host, "sideband_rack", "is missing", hint=f"a host of sideband_{racked[0]} stands in a rack; set sideband_rack in its host_vars")
        if "rack" in racked and facts.rack(host):
            receivers.setdefault(facts.rack(host), []).append(host)
    for rack, hosts in sorted(receivers.items()):
        if len(hosts) > 1:
            yield Error(hosts[1], "sideband_rack", f"has a receiver already, {hosts[0]}", got(rack), "a node pushes to the one receiver of its rack; give each its own")
    for host in facts.members(f"{PREFIX}node"):
        rack = facts.rack(host)
        if rack and rack not in receivers and facts.members(f"{PREFIX}rack"):
            yield Error(host, "sideband_rack", "has no receiver", got(rack), nearest(rack, receivers, "racks with a receiver: "))


@rule("planes", "zones")
def known_racks(facts: Facts) -> Iterator[Error]:
    for host in facts.inventory.hosts:
        rack = facts.rack(host)
        for name in facts.planes_of(host):
            plane = facts.planes[name]
            if plane.per_rack and not rack and not set(RACKED_WORDS) & set(facts.words(host)):
                yield Error(host, "sideband_rack", "is missing", hint=f"plane {name} has one VLAN for each rack, and this host is on it")
            if plane.per_rack and rack and rack not in plane.per_rack:
                yield Error(host, "sideband_rack", f"is no rack of sideband_planes.{name}.per_rack", got(rack), nearest(rack, plane.per_rack, "racks: "))


@rule("planes", "zones")
def addresses_there(facts: Facts) -> Iterator[Error]:
    for host in facts.inventory.hosts:
        if (host, "addresses") not in facts.right:
            continue
        given = facts.inventory.hosts[host].get("addresses", {})
        wanted = facts.planes_of(host)
        for plane in wanted:
            if plane not in given and (not facts.planes[plane].per_rack or facts.segment(host, plane)):
                yield Error(host, f"sideband_addresses.{plane}", "is missing", hint=f"its zones put it on plane {plane}; give it an ipv4, an ipv6 or both")
        for plane in given:
            path = f"sideband_addresses.{plane}"
            if plane not in facts.planes:
                yield Error(host, path, "is no plane of sideband_planes", hint=nearest(plane, facts.planes, "planes: "))
            elif plane not in wanted:
                yield Error(host, path, "has an address, and no zone puts this host on the plane", hint="add a zone for one of its groups, or remove the address")


@rule("planes", "zones")
def addresses_fit(facts: Facts) -> Iterator[Error]:
    for host, given in facts.hosts("addresses"):
        for plane in given:
            segment = facts.segment(host, plane) if plane in facts.planes else None
            if segment is None:
                continue
            for key, subnet in (("ipv4", segment.subnet4), ("ipv6", segment.subnet6)):
                if key in given[plane]:
                    yield from _address_fits(host, f"sideband_addresses.{plane}.{key}", given[plane][key], subnet)


def _address_fits(host: str, path: str, text: str, subnet: str) -> Iterator[Error]:
    if not subnet:
        family = "IPv6" if ":" in text else "IPv4"
        yield Error(host, path, f"the plane has no {family} subnet", got(text), "add one to its subnets, or remove the address")
        return
    address, net = ipaddress.ip_address(text), ipaddress.ip_network(subnet)
    if address not in net:
        yield Error(host, path, f"is outside its subnet {net}", got(text), "take an address inside, or correct the subnet")
    elif net.num_addresses > 2 and address == net.network_address:
        what = "network" if net.version == 4 else "subnet-router anycast"
        yield Error(host, path, f"is the {what} address of {net}", got(text), "take another one")
    elif net.version == 4 and net.num_addresses > 2 and address == net.broadcast_address:
        yield Error(host, path, f"is the broadcast address of {net}", got(text), "take another one")


@rule()
def addresses_once(facts: Facts) -> Iterator[Error]:
    owners: dict[str, str] = {}
    macs: dict[str, str] = {}
    for host, given in facts.hosts("addresses"):
        for plane, spec in given.items():
            path = f"sideband_addresses.{plane}"
            for key in ("ipv4", "ipv6"):
                if key in spec:
                    address = canonical_address(spec[key])
                    owner = owners.setdefault(address, f"{host} ({plane})")
                    if owner != f"{host} ({plane})":
                        yield Error(host, f"{path}.{key}", f"is the address of {owner} too", got(spec[key]), "an address belongs to one interface")
            if "mac" in spec:
                owner = macs.setdefault(spec["mac"].lower(), f"{host} ({plane})")
                if owner != f"{host} ({plane})":
                    yield Error(host, f"{path}.mac", f"is the MAC of {owner} too", got(spec["mac"]), "read it from the card: ip link")


@rule()
def ways_in(facts: Facts) -> Iterator[Error]:
    """How Ansible reaches a host: by name or bare address; one host behind each."""
    owners: dict[tuple[str, str], str] = {}
    for host, variables in facts.inventory.hosts.items():
        address = variables["address"]
        bracketed = re.fullmatch(r"\[(.*)\](?::[0-9]+)?", address)
        if bracketed:
            yield Error(host, "ansible_host", "is an address in brackets", got(address), f"write it bare, {bracketed.group(1)!r}; a port goes into ansible_port")
        elif re.fullmatch(r"[^:]+:[0-9]+", address):
            yield Error(host, "ansible_host", "has a port in it", got(address), f"put {address.rpartition(':')[2]} into ansible_port")
        owner = owners.setdefault((address, variables.get("port", "")), host)
        if owner != host:
            yield Error(host, "ansible_host", f"is the address of {owner} too", got(address), "each host has its own; two names for one host are one host too many")


@rule()
def authorities(facts: Facts) -> Iterator[Error]:
    """An IPv6 literal and a port cannot be told apart without brackets (case 4)."""
    said: set[tuple[str, str]] = set()
    for host, name, text in facts.inventory.urls:
        rest = text.partition("://")[2] or text
        place = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
        if place.count(":") < 2 or place.startswith("["):
            continue
        address, _, port = place.rpartition(":")
        whole = place if "::" not in address or not port.isdigit() else address
        tail = f":{port}" if whole == address else ""
        if (name, text) not in said:
            said.add((name, text))
            yield Error(host, name, "has an IPv6 address without brackets", got(text), f"write {text.replace(place, f'[{whole}]{tail}')!r}")


@rule("planes", "zones", "flows")
def one_family(facts: Facts) -> Iterator[Error]:
    """The two ends of a flow need a family in common."""
    addresses = dict(facts.hosts("addresses"))
    for flow in facts.flows:
        if flow.source == CLIENTS or flow.plane not in facts.planes:
            continue
        for one in facts.members(flow.source):
            for two in facts.members(flow.target):
                ends = [addresses.get(host, {}).get(flow.plane) for host in (one, two)]
                apart = flow.same_rack and facts.rack(one) != facts.rack(two)
                if one == two or apart or None in ends:
                    continue
                families = [{key for key in ("ipv4", "ipv6") if key in end} for end in ends if end is not None]
                if not families[0] & families[1]:
                    yield Error(one, f"sideband_addresses.{flow.plane}", f"shares no address family with {two}, which flow {flow.name} joins to it",
                                got(", ".join(sorted(families[0]))), "give both an IPv4 or both an IPv6 address")  # fmt: skip


# Switches ----------------------------------------------------------------------------------------------


@rule("planes", "zones")
def ports(facts: Facts) -> Iterator[Error]:
    places: dict[tuple[str, str], str] = {}
    carried: set[str] = set()
    for switch, given in facts.hosts("fabric_ports"):
        for port, end in given.items():
            path, host, plane = f"sideband_fabric_ports.{port}", end["host"], end["plane"]
            if plane not in facts.planes:
                yield Error(switch, f"{path}.plane", "is no plane of sideband_planes", got(plane), nearest(plane, facts.planes, "planes: "))
                continue
            carried.add(plane)
            first = places.setdefault((host, plane), f"{switch} {port}")
            if first != f"{switch} {port}":
                yield Error(switch, path, f"repeats the port {first}", got(f"{host} on {plane}"), "a host has one port for a plane")
            if host in facts.inventory.hosts:
                if plane not in facts.planes_of(host):
                    yield Error(switch, f"{path}.plane", f"no zone puts {host} on this plane", got(plane), "name another plane, or add a zone")
            elif facts.planes[plane].kind != "query":
                yield Error(switch, f"{path}.host", f"is no host of the contract, and {plane} is no query plane", got(host),
                            nearest(host, facts.inventory.hosts, "") or "only a query plane has ports for others' machines")  # fmt: skip
    for host in facts.inventory.hosts:
        for plane in facts.planes_of(host):
            if plane in carried and (host, plane) not in places:
                yield Error(host, "sideband_fabric_ports", f"no switch has a port for it on plane {plane}", hint=_port_hint(facts, places, host, plane))


def _port_hint(facts: Facts, places: Mapping[tuple[str, str], str], host: str, plane: str) -> str:
    strangers = [name for name, where in places if where == plane and name not in facts.inventory.hosts]
    close = [name for name in strangers if _distance(name, host) <= 2]
    if close:
        return f"is {close[0]!r} on {places[close[0], plane]} meant?"
    return "add the port to the switch's sideband_fabric_ports"


@rule("planes", "zones")
def switches(facts: Facts) -> Iterator[Error]:
    for host, _ in facts.hosts("fabric_ports"):
        if "fabric" not in facts.words(host):
            yield Error(host, "sideband_fabric_ports", "this host is no switch", hint="put it into sideband_fabric, or remove the ports")
    for host in facts.members(f"{PREFIX}fabric"):
        if "fabric_ports" not in facts.inventory.hosts[host] and (host, "fabric_ports") in facts.right:
            yield Error(host, "sideband_fabric_ports", "is missing", hint="say which host is behind each port of this switch")


# Ladder, tiers, tenants --------------------------------------------------------------------------------


def _covers(pattern: str, metric: str) -> bool:
    return metric.startswith(pattern[:-1]) if pattern.endswith("*") else metric == pattern


@rule("ladder")
def ladder(facts: Facts) -> Iterator[Error]:
    spec = facts.noun("ladder")
    for needed in ("up", "sideband_policy_level", "sideband_policy_generation"):
        if needed not in spec["always"]["metrics"]:
            yield Error(SITE, "sideband_ladder.always.metrics", f"misses {needed}", hint="health and the level in force survive every level (D8)")
    levels: list[Level] = []
    for level in parse_levels(spec):
        path = f"sideband_ladder.levels[{level.name}]"
        if level.name in {above.name for above in levels}:
            yield Error(SITE, f"{path}.name", "is the name of two levels", got(level.name), "each level has a name of its own")
        if levels and level.period < levels[-1].period:
            yield Error(SITE, f"{path}.period", f"is shorter than that of {levels[-1].name} above it", got(f"{level.period}s"), "levels go down: a lower one samples no faster")
        for metric in level.metrics:
            if levels and not any(_covers(above, metric) for above in levels[-1].metrics):
                yield Error(SITE, f"{path}.metrics", f"has a name that {levels[-1].name} above it has not", got(metric), "levels go down: a lower one keeps no more")
        levels.append(level)


@rule("tiers")
def tiers(facts: Facts) -> Iterator[Error]:
    above = None
    seen: set[str] = set()
    for tier in parse_tiers(facts.noun("tiers")):
        path = f"sideband_tiers[{tier.name}]"
        if tier.name in seen:
            yield Error(SITE, f"{path}.name", "is the name of two tiers", got(tier.name), "each tier has a name of its own")
        seen.add(tier.name)
        if above and tier.resolution <= above.resolution:
            yield Error(SITE, f"{path}.resolution", f"is not coarser than that of {above.name} before it", got(f"{tier.resolution}s"), "tiers go from fine to coarse")
        if above and tier.retention <= above.retention:
            yield Error(SITE, f"{path}.retention", f"is not longer than that of {above.name} before it ({above.retention_text})", got(tier.retention_text),
                        "a coarser tier keeps longer, or is of no use")  # fmt: skip
        above = tier


@rule("tenants")
def tenants(facts: Facts) -> Iterator[Error]:
    known = facts.racks()
    for key in ("name", "certificate"):
        seen: set[str] = set()
        for tenant in facts.noun("tenants"):
            if tenant[key] in seen:
                yield Error(SITE, f"sideband_tenants[{tenant['name']}].{key}", f"is the {key} of two tenants", got(tenant[key]), "one would see what is the other's")
            seen.add(tenant[key])
    for tenant in facts.noun("tenants"):
        for rack in tenant["racks"]:
            if rack not in known:
                yield Error(SITE, f"sideband_tenants[{tenant['name']}].racks", "no host is in this rack", got(rack), nearest(rack, known, "racks: "))


# Shares: last, for they need the whole contract to be right ----------------------------------------------


@rule(*SITE_NOUNS)
def shares(facts: Facts) -> Iterator[Error]:
    hosts = facts.inventory.hosts
    if any((name, noun) not in facts.right for name in hosts for noun in HOST_NOUNS):
        return
    nouns = {**facts.inventory.nouns, "planes": _with_rates(facts.noun("planes"))}
    if any(zone.plane not in facts.planes for zone in facts.zones):
        return
    site = parse_site(nouns, hosts)
    said: set[tuple[str, tuple[str, ...]]] = set()
    for host in site.hosts.values():
        for shape in compile_shapes(site, host):
            names_sharing = tuple(name for part in shape.classes for name in part.flows)
            total = sum(part.rate for part in shape.classes)
            if "egress_rate" not in facts.noun("planes")[shape.plane] or (shape.plane, names_sharing) in said:
                continue
            if total > shape.rate:
                said.add((shape.plane, names_sharing))
                yield Error(SITE, f"sideband_planes.{shape.plane}.egress_rate", f"{', '.join(names_sharing)} on {host.name} share {100 * total // shape.rate} % of it",
                            got(facts.noun("planes")[shape.plane]["egress_rate"]), "raise it, or lower the flows' rates to 100 % in all")  # fmt: skip
