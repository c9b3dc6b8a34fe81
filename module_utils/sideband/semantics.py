"""What the contract means for one packet, said a second time and on purpose.

This is not derived from the rules that nftables.py prints: it goes from the packet's addresses to their
owners and from there to the flows, where the rules go from flows to addresses. Tests load the printed rules
into a kernel, send packets, and compare."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from .model import CLIENTS, SOURCE_WORDS, Flow, Host, Interface, Site

ICMP_ERRORS = {4: (3, 11, 12), 6: (1, 2, 3, 4)}
ECHO = {4: (8, 0), 6: (128, 129)}
NEIGHBOUR_TYPES = (135, 136)
LISTENER_TYPES = (130, 131, 132, 143)


@dataclass(frozen=True)
class Packet:
    """What a rule can see. `proto`: tcp, udp or icmp (of the packet's own family); others by their number."""

    family: int
    saddr: str
    daddr: str
    proto: str
    sport: int = 0
    dport: int = 0
    syn: bool = False
    ack: bool = False
    icmp_type: int = 0
    hop_limit: int = 64


@dataclass(frozen=True)
class Verdict:
    """Whether a packet enters, and the reason that is counted where it is not listed."""

    enters: bool
    reason: str = ""


PASS = Verdict(True)


def owner(site: Site, address: str) -> tuple[Host, str] | None:
    """(host, plane) that an address belongs to."""
    for host in site.hosts.values():
        for plane, interface in host.interfaces.items():
            if address in interface.addresses():
                return host, plane
    return None


def verdict(site: Site, host: Host, device: str, packet: Packet) -> Verdict:
    """May this packet enter this host by this device?"""
    interface = next((i for i in host.interfaces.values() if i.device == device), None)
    if interface is None or interface.kind == "training" or _keeps_neighbours(packet):
        return PASS
    if interface.kind == "management":
        reason = _management(site, host, interface, packet)
    else:
        reason = _guarded(site, host, interface, packet)
    if not reason:
        return PASS
    return Verdict(interface.mode == "observe", reason)


def _keeps_neighbours(packet: Packet) -> bool:
    if packet.family != 6 or packet.proto != "icmp":
        return False
    neighbour = packet.icmp_type in NEIGHBOUR_TYPES and packet.hop_limit == 255
    return neighbour or (packet.icmp_type in LISTENER_TYPES and packet.hop_limit == 1)


def _is_error(packet: Packet) -> bool:
    return packet.proto == "icmp" and packet.icmp_type in ICMP_ERRORS[packet.family]


def _opens(packet: Packet) -> bool:
    """A bare SYN: what opens a connection, whatever other flags ride along."""
    return packet.syn and not packet.ack


def _management(site: Site, host: Host, here: Interface, packet: Packet) -> str:
    belongs = owner(site, packet.daddr)
    if belongs and belongs[0].name == host.name and belongs[1] != here.plane:
        return "address"
    if "node" not in host.words or _is_error(packet):
        return ""
    sender = owner(site, packet.saddr)
    if sender and set(sender[0].words) & set(SOURCE_WORDS):
        reply = packet.proto == "tcp" and not _opens(packet)
        return "" if reply else "source"
    # Whose a link-local address is cannot be told: it may be a source's.
    nameless = packet.family == 6 and ipaddress.ip_address(packet.saddr).is_link_local
    if nameless and packet.proto == "tcp" and _opens(packet) and any(map(site.sources, (4, 6))):
        return "source"
    return ""


def _guarded(site: Site, host: Host, here: Interface, packet: Packet) -> str:
    if packet.daddr != here.address(packet.family):
        return "address"
    if _is_error(packet):
        return ""
    sender = owner(site, packet.saddr)
    if sender and sender[1] == here.plane and sender[0].name != host.name:
        joined = [flow for flow in site.flows if flow.plane == here.plane and _joins(flow, sender[0], host)]
        served = [flow for flow in site.flows if flow.plane == here.plane and _joins(flow, host, sender[0])]
        if packet.proto == "icmp" and packet.icmp_type in ECHO[packet.family] and joined + served:
            return ""
        if packet.proto == "tcp":
            calls = any(packet.dport == flow.port for flow in joined)
            answers = any(packet.sport == flow.port for flow in served) and not _opens(packet)
            return "" if calls or answers else "unlisted"
        return "unlisted"
    if not _is_anyone(site, here, sender, packet):
        return "unlisted"
    open_ports = {
        flow.port
        for flow in site.flows
        if flow.source == CLIENTS and flow.plane == here.plane and host.is_in(flow.target)
    }
    return "" if packet.proto == "tcp" and packet.dport in open_ports else "unlisted"


def _joins(flow: Flow, caller: Host, server: Host) -> bool:
    """Whether `caller` may open this flow to `server`."""
    if not caller.is_in(flow.source) or not server.is_in(flow.target):
        return False
    return not flow.same_rack or caller.rack == server.rack


def _is_anyone(site: Site, here: Interface, sender: tuple[Host, str] | None, packet: Packet) -> bool:
    """`clients`: an address of the plane's subnets that is no sideband host's on this plane."""
    if sender and sender[1] == here.plane:
        return False
    nets = [ipaddress.ip_network(t) for _, s in site.planes[here.plane].segments() for t in s.subnets()]
    return any(ipaddress.ip_address(packet.saddr) in net for net in nets)


def mark(site: Site, host: Host, device: str, packet: Packet) -> str:
    """The DSCP that a packet leaves with by this device; '' where it is left as it is."""
    interface = next((i for i in host.interfaces.values() if i.device == device), None)
    if interface is None or not site.planes[interface.plane].guarded or packet.proto != "tcp":
        return ""
    receiver = owner(site, packet.daddr)
    found = ""
    for flow in site.flows:
        if flow.plane != interface.plane:
            continue
        to_server = receiver and receiver[1] == flow.plane and _joins(flow, host, receiver[0])
        to_caller = receiver and receiver[1] == flow.plane and _joins(flow, receiver[0], host)
        anyone = flow.source == CLIENTS and host.is_in(flow.target)
        if (to_server and packet.dport == flow.port) or (
            packet.sport == flow.port
            and (to_caller or (anyone and packet.saddr == interface.address(packet.family)))
        ):
            found = flow.dscp
    return found
