"""The switches' part: which VLAN each port is in. It follows from the plane behind the port and, on a plane
with one VLAN per rack, from the rack of the host behind it."""

from __future__ import annotations

from dataclasses import dataclass

from .model import Site


@dataclass(frozen=True)
class Port:
    port: str
    host: str
    plane: str
    vlan: int


def compile_ports(site: Site, switch: str) -> list[Port]:
    ports = []
    for port, (host, plane) in site.hosts[switch].ports.items():
        rack = site.hosts[host].rack if host in site.hosts else ""
        segment = site.planes[plane].segment_of(rack)
        if segment is not None:
            ports.append(Port(port, host, plane, segment.vlan))
    return ports
