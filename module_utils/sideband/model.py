"""The contract as types: what a site says, after its shape is known to be right, and before anything is
printed from it. Every compiler reads these types and nothing else, so that rules, switch ports, probes and
documents cannot disagree."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from .units import DSCP, duration_seconds, rate_bits, size_bytes

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

# The roles of the house, in the order of the data's way. A group is `sideband_<word>`.
WORDS = (
    "mirror", "pki", "fabric", "planes", "node", "rack", "region", "lake", "logs", "gateway", "alerts",
    "policy", "archive", "dashboards", "pull",
)  # fmt: skip
# "Sources": hosts that may never open a connection to a training node, on any plane (B3).
SOURCE_WORDS = ("rack", "region", "lake", "logs", "gateway", "alerts", "archive")
GUARDED_KINDS = ("telemetry", "query")
CLIENTS = "clients"
LOOPBACK = "loopback"


@dataclass(frozen=True)
class Segment:
    """One VLAN with its subnets; a plane has one, or one per rack."""

    vlan: int
    subnet4: str = ""
    subnet6: str = ""

    def subnets(self) -> list[str]:
        return [subnet for subnet in (self.subnet4, self.subnet6) if subnet]

    def prefix(self, family: int) -> int:
        subnet = self.subnet4 if family == 4 else self.subnet6
        return ipaddress.ip_network(subnet).prefixlen if subnet else 0


@dataclass(frozen=True)
class Plane:
    name: str
    kind: str
    fabric: str
    mode: str
    segment: Segment | None
    per_rack: Mapping[str, Segment]
    egress_rate: int
    lossless_dscp: tuple[str, ...]

    def segments(self) -> list[tuple[str, Segment]]:
        """(rack or '', segment): everything that this plane is made of."""
        whole = [("", self.segment)] if self.segment else []
        return whole + sorted(self.per_rack.items())

    def segment_of(self, rack: str) -> Segment | None:
        return self.segment or self.per_rack.get(rack)

    @property
    def local(self) -> bool:
        """Whether it lives inside one machine: on loopback, where there is nothing to hook, shape or mark."""
        return self.fabric == LOOPBACK

    @property
    def guarded(self) -> bool:
        """Whether we hook, shape and mark here."""
        return self.kind in GUARDED_KINDS and not self.local


@dataclass(frozen=True)
class Zone:
    group: str
    plane: str
    device: str


@dataclass(frozen=True)
class Flow:
    name: str
    source: str
    target: str
    plane: str
    proto: str
    port: int
    same_rack: bool
    dscp: str
    rate: int
    connections: int

    @property
    def tos(self) -> int:
        return DSCP[self.dscp] << 2


@dataclass(frozen=True)
class Level:
    name: str
    period: int
    poll: int
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Tier:
    name: str
    engine: str
    resolution: int
    retention: int
    retention_text: str
    cap: int


@dataclass(frozen=True)
class Tenant:
    name: str
    certificate: str
    racks: tuple[str, ...]
    uids: tuple[str, ...] = ()
    slurm_accounts: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interface:
    """A host's place on a plane."""

    plane: str
    device: str
    kind: str
    mode: str
    vlan: int
    ipv4: str
    ipv6: str
    prefix4: int
    prefix6: int
    mac: str = ""
    local: bool = False

    def address(self, family: int) -> str:
        return self.ipv4 if family == 4 else self.ipv6

    def addresses(self) -> list[str]:
        return [address for address in (self.ipv4, self.ipv6) if address]


@dataclass(frozen=True)
class Host:
    name: str
    words: tuple[str, ...]
    rack: str
    address: str
    interfaces: Mapping[str, Interface]
    ports: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def is_in(self, group: str) -> bool:
        return group.startswith("sideband_") and group[len("sideband_") :] in self.words


@dataclass(frozen=True)
class Site:
    """The whole contract."""

    name: str
    planes: Mapping[str, Plane]
    zones: tuple[Zone, ...]
    flows: tuple[Flow, ...]
    always_period: int
    always_metrics: tuple[str, ...]
    levels: tuple[Level, ...]
    tiers: tuple[Tier, ...]
    tenants: tuple[Tenant, ...]
    versions: Mapping[str, str]
    hosts: Mapping[str, Host]

    def members(self, group: str) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_in(group)]

    def pairs(self, flow: Flow, host: Host) -> tuple[list[Host], list[Host]]:
        """(whom this host may reach by the flow, who may reach it)."""
        on_plane = flow.plane in host.interfaces
        reaches: list[Host] = []
        peers: list[Host] = []
        if on_plane and host.is_in(flow.source):
            reaches = self._others(flow, flow.target, host)
        if on_plane and host.is_in(flow.target) and flow.source != CLIENTS:
            peers = self._others(flow, flow.source, host)
        return reaches, peers

    def _others(self, flow: Flow, group: str, host: Host) -> list[Host]:
        return [
            other
            for other in self.members(group)
            if (other.name != host.name or self.planes[flow.plane].local)
            and flow.plane in other.interfaces
            and (not flow.same_rack or other.rack == host.rack)
        ]

    def plane_addresses(self, plane: str, family: int) -> list[str]:
        """All addresses of sideband hosts on a plane."""
        return sort_addresses(
            host.interfaces[plane].address(family) for host in self.hosts.values() if plane in host.interfaces
        )

    def sources(self, family: int) -> list[str]:
        """All addresses, on every plane, of the hosts that a training node accepts nothing from."""
        return sort_addresses(
            interface.address(family)
            for host in self.hosts.values()
            if set(host.words) & set(SOURCE_WORDS)
            for interface in host.interfaces.values()
        )


def sort_addresses(addresses: Iterable[str]) -> list[str]:
    """Unique, in numeric order, so that what is printed from them never changes by chance."""
    unique = {address for address in addresses if address}
    return sorted(
        unique, key=lambda text: (ipaddress.ip_address(text).version, int(ipaddress.ip_address(text)))
    )


def canonical_address(text: object) -> str:
    return str(ipaddress.ip_address(str(text))) if text else ""


def _segment(spec: Mapping[str, Any]) -> Segment:
    nets = [ipaddress.ip_network(text) for text in spec["subnets"]]
    by_family = {net.version: str(net) for net in nets}
    return Segment(int(spec.get("vlan", 0)), by_family.get(4, ""), by_family.get(6, ""))


def parse_planes(spec: Mapping[str, Any]) -> dict[str, Plane]:
    planes = {}
    for name, plane in spec.items():
        planes[name] = Plane(
            name=name,
            kind=plane["kind"],
            fabric=plane.get("fabric", "ethernet"),
            mode=plane.get("mode", "enforce") if plane["kind"] != "training" else "",
            segment=_segment(plane) if "subnets" in plane else None,
            per_rack={rack: _segment(part) for rack, part in plane.get("per_rack", {}).items()},
            egress_rate=rate_bits(plane["egress_rate"]) if "egress_rate" in plane else 0,
            lossless_dscp=tuple(plane.get("lossless_dscp", ())),
        )
    return planes


def parse_flows(spec: Iterable[Mapping[str, Any]]) -> tuple[Flow, ...]:
    return tuple(
        Flow(
            name=flow["name"],
            source=flow["from"],
            target=flow["to"],
            plane=flow["plane"],
            proto=flow["proto"],
            port=int(flow["port"]),
            same_rack=bool(flow.get("same_rack", False)),
            dscp=flow["dscp"],
            rate=rate_bits(flow["rate"]),
            connections=int(flow["connections"]),
        )
        for flow in spec
    )


def parse_levels(spec: Mapping[str, Any]) -> tuple[Level, ...]:
    return tuple(
        Level(
            level["name"],
            duration_seconds(level["period"]),
            duration_seconds(level["poll"]),
            tuple(level["metrics"]),
        )
        for level in spec["levels"]
    )


def parse_tiers(spec: Iterable[Mapping[str, Any]]) -> tuple[Tier, ...]:
    return tuple(
        Tier(
            tier["name"],
            tier["engine"],
            duration_seconds(tier["resolution"]),
            duration_seconds(tier["retention"]),
            tier["retention"],
            size_bytes(tier["cap"]),
        )
        for tier in spec
    )


def parse_tenants(spec: Iterable[Mapping[str, Any]]) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(
            tenant["name"],
            tenant["certificate"],
            tuple(tenant["racks"]),
            tuple(tenant.get("uids", ())),
            tuple(tenant.get("slurm_accounts", ())),
            tuple(tenant.get("namespaces", ())),
        )
        for tenant in spec
    )


def _inside(plane: Plane, segment: Segment) -> Interface:
    """Where a plane that never leaves its machine answers: at the first address of its subnet."""
    net = ipaddress.ip_network(segment.subnet4)
    first, length = str(net[min(1, net.num_addresses - 1)]), net.prefixlen
    return Interface(plane.name, "lo", plane.kind, plane.mode, 0, first, "", length, 0, local=True)


def parse_interfaces(
    words: Iterable[str],
    rack: str,
    addresses: Mapping[str, Mapping[str, Any]],
    planes: Mapping[str, Plane],
    zones: Iterable[Zone],
) -> dict[str, Interface]:
    """A host's interfaces, in the order of the planes; the first zone that gives a plane names the device."""
    groups = {f"sideband_{word}" for word in words}
    devices: dict[str, str] = {}
    for zone in zones:
        if zone.group in groups:
            devices.setdefault(zone.plane, zone.device)
    interfaces = {}
    for name, plane in planes.items():
        segment = plane.segment_of(rack)
        if plane.local and segment and segment.subnet4:
            interfaces[name] = _inside(plane, segment)
            continue
        if name not in devices or name not in addresses or segment is None:
            continue
        spec = addresses[name]
        ipv4, ipv6 = canonical_address(spec.get("ipv4")), canonical_address(spec.get("ipv6"))
        interfaces[name] = Interface(
            plane=name,
            device=devices[name],
            kind=plane.kind,
            mode=plane.mode,
            vlan=segment.vlan,
            ipv4=ipv4,
            ipv6=ipv6,
            prefix4=segment.prefix(4) if ipv4 else 0,
            prefix6=segment.prefix(6) if ipv6 else 0,
            mac=str(spec.get("mac", "")).lower(),
        )
    return interfaces


def parse_site(nouns: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> Site:
    """A contract whose shape and meaning were found right. `hosts`: words, address and host variables."""
    planes = parse_planes(nouns["planes"])
    zones = tuple(Zone(zone["group"], zone["plane"], zone["device"]) for zone in nouns["zones"])
    parsed = {}
    for name in sorted(hosts):
        host = hosts[name]
        rack = host.get("rack", "")
        parsed[name] = Host(
            name=name,
            words=tuple(host["words"]),
            rack=rack,
            address=host["address"],
            interfaces=parse_interfaces(host["words"], rack, host.get("addresses", {}), planes, zones),
            ports={port: (end["host"], end["plane"]) for port, end in host.get("fabric_ports", {}).items()},
        )
    return Site(
        name=nouns["site"],
        planes=planes,
        zones=zones,
        flows=parse_flows(nouns["flows"]),
        always_period=duration_seconds(nouns["ladder"]["always"]["period"]),
        always_metrics=tuple(nouns["ladder"]["always"]["metrics"]),
        levels=parse_levels(nouns["ladder"]),
        tiers=parse_tiers(nouns["tiers"]),
        tenants=parse_tenants(nouns["tenants"]),
        versions=dict(nouns["versions"]),
        hosts=parsed,
    )
