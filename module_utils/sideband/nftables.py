"""A host's own rules: one table of the netdev family, stateless and per interface.

Why netdev: a single `ct` expression anywhere would start connection tracking on the training interface too,
and the training interface gets no hook at all. Why add, delete, add: the first load must not fail on a
missing table, and a reload must not keep what was renamed (case 25); nothing but our own table is named, so
nobody else's rules are touched (case 23).

What is accepted on a guarded interface, in this order:
1. ARP and LLDP; neighbour discovery and multicast listener reports of IPv6 (case 26), wherever they go;
2. nothing whose destination is not an address of this very interface: counter `<device>_address`;
3. ICMP errors (path MTU), and echo between the two ends of a listed flow;
4. listed flows in; replies to listed flows out, never a bare SYN;
5. nothing else: counter `<device>_unlisted`.

A plane that only observes accepts what it counts, and remembers whom enforcing would hit: sets
`<device>_seen4` and `<device>_seen6` of source, protocol and destination port, each element with its counter.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .model import CLIENTS, Flow, Host, Interface, Site, sort_addresses

TABLE = "sideband"
FAMILY = "netdev"
FAMILIES = ((4, "ip"), (6, "ip6"))
NEIGHBOUR = (
    "ip6 hoplimit 255 icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
    # Listener queries and reports (130-132, 143): a snooping switch forgets the host without them.
    "ip6 hoplimit 1 icmpv6 type { 130, 131, 132, 143 } accept",
)
ICMP_ERRORS = (
    "icmp type { destination-unreachable, time-exceeded, parameter-problem } accept",
    "icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } accept",
)
NOT_BARE_SYN = "tcp flags & (syn | ack) != syn"
BARE_SYN = "tcp flags & (syn | ack) == syn"
# Every interface has such an address by itself, and it does not say whose it is.
LINK_LOCAL = "fe80::/10"
# Who would be refused, under `observe`: bounded, for whoever sends chooses how many there are; forgotten a
# day after the last packet.
SEEN_SIZE = 512
SEEN_SECONDS = 86400
SEEN_TYPES = {4: "ipv4_addr", 6: "ipv6_addr"}


@dataclass(frozen=True)
class Counter:
    """A named counter, and which drops it counts."""

    name: str
    device: str
    plane: str
    reason: str


@dataclass(frozen=True)
class Ruleset:
    text: str
    counters: tuple[Counter, ...]


def labels(devices: Iterable[str]) -> dict[str, str]:
    """Names that nft takes, one for each device and never the same for two."""
    result: dict[str, str] = {}
    for device in devices:
        label = stem = re.sub(r"[^A-Za-z0-9_]", "_", device if device[:1].isalpha() else f"d{device}")
        number = 2
        while label in result.values():
            label, number = f"{stem}_{number}", number + 1
        result[device] = label
    return result


def _set(addresses: Iterable[str]) -> str:
    return "{ " + ", ".join(addresses) + " }"


def _peers(hosts: Iterable[Host], plane: str, family: int) -> list[str]:
    return sort_addresses(host.interfaces[plane].address(family) for host in hosts)


class _Part(ABC):
    """The chains of one interface, and what they refuse."""

    def __init__(self, site: Site, host: Host, interface: Interface, label: str) -> None:
        self.site, self.host, self.interface, self.label = site, host, interface, label
        self.observes = interface.mode == "observe"

    @abstractmethod
    def reasons(self) -> list[str]:
        """What its counters count."""

    def counters(self) -> list[Counter]:
        return [
            Counter(f"{self.label}_{reason}", self.interface.device, self.interface.plane, reason)
            for reason in self.reasons()
        ]

    def sets(self) -> list[str]:
        if not self.observes:
            return []
        return [
            f"  set {self.label}_seen{family} {{ type {kind} . inet_proto . inet_service; size {SEEN_SIZE};"
            f" flags dynamic, timeout; timeout {SEEN_SECONDS}s; }}"
            for family, kind in SEEN_TYPES.items()
        ]

    def _refuse(self, reason: str, match: str = "", families: Iterable[int] = (4, 6)) -> list[str]:
        """What is not let in. `match` says which packets, and can only be of these families."""
        words = match.split()
        counted = " ".join(
            [*words, "counter name", f"{self.label}_{reason}", "accept" if self.observes else "drop"]
        )
        if not self.observes:
            return [counted]
        # A rule of its own: a full set must not let a packet pass uncounted.
        noted = []
        for family, word in FAMILIES:
            if family in families:
                key = f"{{ {word} saddr . meta l4proto . th dport counter }}"
                note = f"meta l4proto {{ tcp, udp }} update @{self.label}_seen{family} {key}"
                noted.append(" ".join([*(words or ["meta", "protocol", word]), note]))
        return [*noted, counted]


class _Guarded(_Part):
    """The chains of one interface of kind telemetry or query."""

    def __init__(self, site: Site, host: Host, interface: Interface, label: str) -> None:
        super().__init__(site, host, interface, label)
        self.plane = site.planes[interface.plane]

    def reasons(self) -> list[str]:
        return ["address", "unlisted"]

    def flows(self) -> list[Flow]:
        return [flow for flow in self.site.flows if flow.plane == self.interface.plane]

    def _clients(self, family: int) -> str:
        """`clients`: every address of the plane's subnets that is no sideband host's."""
        word = "ip" if family == 4 else "ip6"
        subnets = [
            segment.subnet4 if family == 4 else segment.subnet6 for _, segment in self.plane.segments()
        ]
        subnets = [subnet for subnet in subnets if subnet]
        if not subnets:
            return ""
        own = self.site.plane_addresses(self.interface.plane, family)
        return f"{word} saddr {_set(subnets)}" + (f" {word} saddr != {_set(own)}" if own else "")

    def ingress(self) -> list[str]:
        lines = ["meta protocol { arp, 0x88cc } accept", *NEIGHBOUR]
        for family, word in FAMILIES:
            own = self.interface.address(family)
            match = f"{word} daddr != {own}" if own else f"meta protocol {word}"
            lines += self._refuse("address", match, (family,))
        lines += ICMP_ERRORS
        for family, word in FAMILIES:
            if self.interface.address(family):
                lines += self._echo(family, word)
                for flow in self.flows():
                    lines += self._flow_in(flow, family, word)
        return lines + self._refuse("unlisted")

    def _echo(self, family: int, word: str) -> list[str]:
        ends: list[Host] = []
        for flow in self.flows():
            for hosts in self.site.pairs(flow, self.host):
                ends += hosts
        addresses = _peers(ends, self.interface.plane, family)
        protocol = "icmp" if family == 4 else "icmpv6"
        kinds = "{ echo-request, echo-reply }"
        return [f"{word} saddr {_set(addresses)} {protocol} type {kinds} accept"] if addresses else []

    def _flow_in(self, flow: Flow, family: int, word: str) -> list[str]:
        lines = []
        reaches, peers = self.site.pairs(flow, self.host)
        callers = _peers(peers, flow.plane, family)
        servers = _peers(reaches, flow.plane, family)
        if flow.source == CLIENTS and self.host.is_in(flow.target):
            clients = self._clients(family)
            if clients:
                lines.append(f"{clients} tcp dport {flow.port} accept")
        if callers:
            lines.append(f"{word} saddr {_set(callers)} tcp dport {flow.port} accept")
        if servers:
            lines.append(f"{word} saddr {_set(servers)} tcp sport {flow.port} {NOT_BARE_SYN} accept")
        return lines

    def egress(self) -> list[str]:
        lines = []
        for family, word in FAMILIES:
            if not self.interface.address(family):
                continue
            for flow in self.flows():
                mark = f"{word} dscp set {flow.dscp}"
                reaches, peers = self.site.pairs(flow, self.host)
                servers = _peers(reaches, flow.plane, family)
                callers = _peers(peers, flow.plane, family)
                if servers:
                    lines.append(f"{word} daddr {_set(servers)} tcp dport {flow.port} {mark}")
                if callers:
                    lines.append(f"{word} daddr {_set(callers)} tcp sport {flow.port} {mark}")
                if flow.source == CLIENTS and self.host.is_in(flow.target):
                    lines.append(
                        f"{word} saddr {self.interface.address(family)} tcp sport {flow.port} {mark}"
                    )
        return lines


class _Management(_Part):
    """The chain of a management interface: the site's own traffic passes; another plane's address does not
    answer here, and a training node takes nothing from a source but replies. A link-local sender may be a
    source, so it opens no connection to a training node either."""

    def reasons(self) -> list[str]:
        return ["address", "source"] if "node" in self.host.words else ["address"]

    def ingress(self) -> list[str]:
        lines = list(NEIGHBOUR)
        for family, word in FAMILIES:
            others = sort_addresses(
                other.address(family)
                for name, other in self.host.interfaces.items()
                if name != self.interface.plane
            )
            if others:
                lines += self._refuse("address", f"{word} daddr {_set(others)}", (family,))
        if "source" not in self.reasons():
            return lines
        lines += ICMP_ERRORS
        for family, word in FAMILIES:
            sources = self.site.sources(family)
            if sources:
                lines.append(f"{word} saddr {_set(sources)} {NOT_BARE_SYN} accept")
                lines += self._refuse("source", f"{word} saddr {_set(sources)}", (family,))
        if self.site.sources(4) + self.site.sources(6):
            lines += self._refuse("source", f"ip6 saddr {LINK_LOCAL} {BARE_SYN}", (6,))
        return lines

    def egress(self) -> list[str]:
        return []


def _chain(hook: str, label: str, device: str, rules: Iterable[str]) -> list[str]:
    body = [f"    {rule}" for rule in rules]
    head = f'    type filter hook {hook} device "{device}" priority 0; policy accept;'
    return [f"  chain {hook}_{label} {{", head, *body, "  }"]


def hooked(host: Host) -> Mapping[str, Interface]:
    """The interfaces that carry our rules: all but training's, and loopback, which nobody else reaches."""
    return {
        name: interface
        for name, interface in host.interfaces.items()
        if interface.kind != "training" and not interface.local
    }


def compile_ruleset(site: Site, host: Host) -> Ruleset:
    """The complete file for one host; empty where there is nothing to hook."""
    interfaces = hooked(host)
    names = labels(interface.device for interface in interfaces.values())
    counters: list[Counter] = []
    sets: list[str] = []
    chains: list[str] = []
    for interface in interfaces.values():
        label = names[interface.device]
        kind = _Management if interface.kind == "management" else _Guarded
        part = kind(site, host, interface, label)
        counters += part.counters()
        sets += part.sets()
        chains += _chain("ingress", label, interface.device, part.ingress())
        egress = part.egress()
        if egress:
            chains += _chain("egress", label, interface.device, egress)
    if not chains:
        return Ruleset("", ())
    lines = [
        f"# {host.name}: what may enter, and how it is marked. Compiled from the contract of {site.name}.",
        f"add table {FAMILY} {TABLE}",
        f"delete table {FAMILY} {TABLE}",
        f"table {FAMILY} {TABLE} {{",
        *(f"  counter {counter.name} {{ }}" for counter in counters),
        *sets,
        *chains,
        "}",
    ]
    return Ruleset("\n".join(lines) + "\n", tuple(counters))
