"""Rules about hosts: racks, addresses, names, and the switch ports behind which they stand."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

from .errors import Error, got, nearest
from .facts import RACKED_WORDS, Facts, rule
from .load import PREFIX, SITE
from .model import CLIENTS, canonical_address
from .rules_names import distance

# What Ansible means by these is no host, or another one.
NO_NAMES = ("all", "ungrouped")


@rule()
def a_part_to_play(facts: Facts) -> Iterator[Error]:
    for host in facts.inventory.hosts:
        if not facts.words(host):
            hint = "add it to the group of its role, or remove it from `sideband`"
            yield Error(host, "groups", "is in no sideband_<word> group", hint=hint)
    # Plays that serve every host are for these two groups.
    groups = facts.inventory.groups
    visited = {*groups.get("sideband", ()), *groups.get(f"{PREFIX}fabric", ())}
    for host in facts.inventory.hosts:
        if host not in visited:
            hint = "make its group a child of `sideband`; plays for every host would leave it out"
            yield Error(host, "groups", "is not in group sideband", hint=hint)


@rule()
def host_names(facts: Facts) -> Iterator[Error]:
    """A host's name goes into certificates, files, labels and the scope of documents."""
    for host in facts.inventory.hosts:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", host):
            hint = (
                "at most 63 letters, digits, dots, hyphens and underscores; an address goes into ansible_host"
            )
            yield Error(host, "inventory_hostname", "is no name for a host", hint=hint)
            continue
        problem, hint = _ambiguous(facts, host)
        if problem:
            yield Error(host, "inventory_hostname", problem, hint=hint)
    spelt: dict[str, str] = {}
    for host in facts.inventory.hosts:
        first = spelt.setdefault(host.lower(), host)
        if first != host:
            hint = "certificates and resolvers do not tell them apart; give one another name"
            yield Error(host, "inventory_hostname", f"is {first} in other letters", hint=hint)


def _ambiguous(facts: Facts, host: str) -> tuple[str, str]:
    """(problem, hint) of a name that stands for something else too."""
    if host in NO_NAMES or host in facts.inventory.groups:
        return "is a group's name", "a limit could not say which is meant; give the host another name"
    if host.endswith("."):
        return "ends with a dot", f"write it without, {host.rstrip('.')!r}; certificates do not hold the dot"
    if re.fullmatch(r"[0-9.]+", host):
        return "is an address or a number", "give the host a name; its address goes into ansible_host"
    if host.lower() == "localhost" and len(facts.inventory.hosts) > 1:
        return "is the controller itself", "give the host a name of its own"
    return "", ""


@rule()
def racks(facts: Facts) -> Iterator[Error]:
    receivers: dict[str, list[str]] = {}
    for host, variables in facts.inventory.hosts.items():
        racked = sorted(set(RACKED_WORDS) & set(variables["words"]))
        if racked and "rack" not in variables and (host, "rack") in facts.right:
            yield Error(
                host,
                "sideband_rack",
                "is missing",
                hint=f"a host of sideband_{racked[0]} stands in a rack; set sideband_rack in its host_vars",
            )
        if "rack" in racked and facts.rack(host):
            receivers.setdefault(facts.rack(host), []).append(host)
    for rack, hosts in sorted(receivers.items()):
        if len(hosts) > 1:
            yield Error(
                hosts[1],
                "sideband_rack",
                f"has a receiver already, {hosts[0]}",
                got(rack),
                "a node pushes to the one receiver of its rack; give each its own",
            )
    for host in facts.members(f"{PREFIX}node"):
        rack = facts.rack(host)
        if rack and rack not in receivers and not facts.strangers(host) and facts.members(f"{PREFIX}rack"):
            yield Error(
                host,
                "sideband_rack",
                "has no receiver",
                got(rack),
                nearest(rack, receivers, "racks with a receiver: ") if receivers else "no rack has one",
            )


@rule("planes", "zones")
def known_racks(facts: Facts) -> Iterator[Error]:
    for host in facts.inventory.hosts:
        rack = facts.rack(host)
        for plane in facts.strangers(host):
            if rack:
                hint = nearest(rack, plane.per_rack, "racks: ")
                path = f"sideband_planes.{plane.name}.per_rack"
                yield Error(host, "sideband_rack", f"is no rack of {path}", got(rack), hint)
            elif not set(RACKED_WORDS) & set(facts.words(host)):
                hint = f"plane {plane.name} has one VLAN for each rack, and this host is on it"
                yield Error(host, "sideband_rack", "is missing", hint=hint)


@rule("planes", "zones")
def addresses_there(facts: Facts) -> Iterator[Error]:
    for host in facts.inventory.hosts:
        if (host, "addresses") not in facts.right:
            continue
        given = facts.inventory.hosts[host].get("addresses", {})
        wanted = facts.planes_of(host)
        for plane in wanted:
            if plane not in given and (not facts.planes[plane].per_rack or facts.segment(host, plane)):
                yield Error(
                    host,
                    f"sideband_addresses.{plane}",
                    "is missing",
                    hint=f"its zones put it on plane {plane}; give it an ipv4, an ipv6 or both",
                )
        for plane in given:
            path = f"sideband_addresses.{plane}"
            if plane not in facts.planes:
                yield Error(
                    host,
                    path,
                    "is no plane of sideband_planes",
                    hint=nearest(plane, facts.planes, "planes: "),
                )
            elif plane not in wanted and facts.placed(host):
                yield Error(
                    host,
                    path,
                    "has an address, and no zone puts this host on the plane",
                    hint="add a zone for one of its groups, or remove the address",
                )


@rule("planes", "zones")
def addresses_fit(facts: Facts) -> Iterator[Error]:
    for host, given in facts.hosts("addresses"):
        for plane in given:
            segment = facts.segment(host, plane) if plane in facts.planes else None
            if segment is None:
                continue
            for key, subnet in (("ipv4", segment.subnet4), ("ipv6", segment.subnet6)):
                if key in given[plane]:
                    yield from _address_fits(
                        host, f"sideband_addresses.{plane}.{key}", given[plane][key], subnet
                    )


def _address_fits(host: str, path: str, text: str, subnet: str) -> Iterator[Error]:
    if not subnet:
        family = "IPv6" if ":" in text else "IPv4"
        yield Error(
            host,
            path,
            f"the plane has no {family} subnet",
            got(text),
            "add one to its subnets, or remove the address",
        )
        return
    address, net = ipaddress.ip_address(text), ipaddress.ip_network(subnet)
    if address not in net:
        yield Error(
            host,
            path,
            f"is outside its subnet {net}",
            got(text),
            "take an address inside, or correct the subnet",
        )
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
                        yield Error(
                            host,
                            f"{path}.{key}",
                            f"is the address of {owner} too",
                            got(spec[key]),
                            "an address belongs to one interface",
                        )
            if "mac" in spec:
                digits = int(spec["mac"].replace(":", ""), 16)
                if digits == 0 or digits >> 40 & 1:
                    problem = "is no card's own address"
                    yield Error(
                        host, f"{path}.mac", problem, got(spec["mac"]), "read it from the card: ip link"
                    )
                owner = macs.setdefault(spec["mac"].lower(), f"{host} ({plane})")
                if owner != f"{host} ({plane})":
                    yield Error(
                        host,
                        f"{path}.mac",
                        f"is the MAC of {owner} too",
                        got(spec["mac"]),
                        "read it from the card: ip link",
                    )


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
            everywhere = all((other, name, text) in facts.inventory.urls for other in facts.inventory.hosts)
            yield Error(
                SITE if everywhere else host,
                name,
                "has an IPv6 address without brackets",
                got(text),
                f"write {text.replace(place, f'[{whole}]{tail}')!r}",
            )


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
                families = [
                    {key for key in ("ipv4", "ipv6") if key in end} for end in ends if end is not None
                ]
                if not families[0] & families[1]:
                    yield Error(
                        one,
                        f"sideband_addresses.{flow.plane}",
                        f"shares no address family with {two}, which flow {flow.name} joins to it",
                        got(", ".join(sorted(families[0]))),
                        "give both an IPv4 or both an IPv6 address",
                    )


@rule("planes", "zones")
def ports(facts: Facts) -> Iterator[Error]:
    places: dict[tuple[str, str], str] = {}
    carried: set[str] = set()
    for switch, given in facts.hosts("fabric_ports"):
        for port, end in given.items():
            path, host, plane = f"sideband_fabric_ports.{port}", end["host"], end["plane"]
            if plane not in facts.planes:
                yield Error(
                    switch,
                    f"{path}.plane",
                    "is no plane of sideband_planes",
                    got(plane),
                    nearest(plane, facts.planes, "planes: "),
                )
                continue
            carried.add(plane)
            first = places.setdefault((host, plane), f"{switch} {port}")
            if first != f"{switch} {port}":
                yield Error(
                    switch,
                    path,
                    f"repeats the port {first}",
                    got(f"{host} on {plane}"),
                    "a host has one port for a plane",
                )
            if host in facts.inventory.hosts:
                if plane not in facts.planes_of(host) and facts.placed(host):
                    yield Error(
                        switch,
                        f"{path}.plane",
                        f"no zone puts {host} on this plane",
                        got(plane),
                        "name another plane, or add a zone",
                    )
            elif facts.planes[plane].kind != "query":
                yield Error(
                    switch,
                    f"{path}.host",
                    f"is no host of the contract, and {plane} is no query plane",
                    got(host),
                    nearest(host, facts.inventory.hosts, "")
                    or "only a query plane has ports for others' machines",
                )
    for host in facts.inventory.hosts:
        for plane in facts.planes_of(host):
            if plane in carried and (host, plane) not in places:
                yield Error(
                    host,
                    "sideband_fabric_ports",
                    f"no switch has a port for it on plane {plane}",
                    hint=_port_hint(facts, places, host, plane),
                )


def _port_hint(facts: Facts, places: Mapping[tuple[str, str], str], host: str, plane: str) -> str:
    strangers = [name for name, where in places if where == plane and name not in facts.inventory.hosts]
    close = [name for name in strangers if distance(name, host) <= 2]
    if close:
        return f"is {close[0]!r} on {places[close[0], plane]} meant?"
    return "add the port to the switch's sideband_fabric_ports"


@rule("planes", "zones")
def switches(facts: Facts) -> Iterator[Error]:
    for host, _ in facts.hosts("fabric_ports"):
        if "fabric" not in facts.words(host):
            yield Error(
                host,
                "sideband_fabric_ports",
                "this host is no switch",
                hint="put it into sideband_fabric, or remove the ports",
            )
    for host in facts.members(f"{PREFIX}fabric"):
        if "fabric_ports" not in facts.inventory.hosts[host] and (host, "fabric_ports") in facts.right:
            yield Error(
                host,
                "sideband_fabric_ports",
                "is missing",
                hint="say which host is behind each port of this switch",
            )
        elif facts.inventory.hosts[host].get("fabric_ports") == {}:
            yield Error(
                host,
                "sideband_fabric_ports",
                "is empty",
                hint="say which host is behind each port, or take the switch out of sideband_fabric",
            )
