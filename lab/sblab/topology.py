"""lab/topology.yml as typed data, and the names that follow from it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .paths import LAB
from .say import LabError

SYSTEMS = ("nspawn", "uml")
CONFIGURED = ("lab", "sideband")
MANAGEMENT = "management"


@dataclass(frozen=True)
class Link:
    """One interface of a host. `port` is the switch port behind it; '' is the management bridge."""

    host: str
    device: str
    plane: str
    port: str
    ipv4: str
    ipv6: str
    configured: str

    @property
    def mac(self) -> str:
        """Stable over restarts, so that no neighbour table goes stale: the IPv4 address in a local MAC."""
        octets = ipaddress.ip_interface(self.ipv4).ip.packed
        return "02:5b:" + ":".join(f"{octet:02x}" for octet in octets)

    @property
    def machine_end(self) -> str:
        """The name of the link's end on the lab's side, in the namespace of the wires."""
        return f"v-{self.port}" if self.port else f"m-{self.host}"


@dataclass(frozen=True)
class Host:
    name: str
    suite: str
    system: str
    links: tuple[Link, ...]
    rack: str = ""
    extra: str = ""
    memory_mb: int = 0
    mirror: bool = False
    gpus: int = 0

    @property
    def namespace(self) -> str:
        return f"sbl-{self.name}"

    @property
    def management(self) -> Link | None:
        return next((link for link in self.links if link.plane == MANAGEMENT), None)

    @property
    def address(self) -> str:
        """Where the controller reaches it; '' for a host that is not on the management bridge."""
        link = self.management
        return str(ipaddress.ip_interface(link.ipv4).ip) if link else ""

    def link(self, device: str) -> Link:
        for link in self.links:
            if device in (link.device, link.port, link.plane):
                return link
        raise LabError(
            f"{self.name} has no link {device}", "one of: " + " ".join(x.device for x in self.links)
        )


@dataclass(frozen=True)
class Topology:
    hosts: dict[str, Host]
    controller4: str
    controller6: str
    extras: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            raise LabError(f"no host {name} in the lab", "one of: " + " ".join(self.hosts))
        return self.hosts[name]

    @property
    def switch(self) -> Host:
        return next(host for host in self.hosts.values() if host.system == "uml")

    @property
    def containers(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.system == "nspawn"]

    @property
    def ports(self) -> dict[str, Link]:
        """Switch port -> the link behind it, in the order of the ports' numbers."""
        found = {link.port: link for host in self.hosts.values() for link in host.links if link.port}
        return dict(sorted(found.items(), key=lambda item: int(item[0].removeprefix("vec"))))

    @property
    def suites(self) -> list[str]:
        return sorted({host.suite for host in self.hosts.values()})

    def find_link(self, names: list[str]) -> Link:
        """A link by `node1 edge0`, `node1 edge`, `node1:edge0` or the switch port `vec2`."""
        parts = [part for name in names for part in name.replace(":", "/").split("/")]
        if len(parts) == 1 and parts[0] in self.ports:
            return self.ports[parts[0]]
        if len(parts) != 2:
            raise LabError(
                f"not a link: {' '.join(names)}", "HOST DEVICE, as in `node1 edge0`, or a port, as in `vec2`"
            )
        return self.host(parts[0]).link(parts[1])


def parse_host(name: str, spec: dict[str, Any], planes: dict[str, str]) -> Host:
    links = tuple(
        Link(
            host=name,
            device=raw["device"],
            plane=raw["plane"],
            port=raw.get("port", ""),
            ipv4=raw["ipv4"],
            ipv6=raw["ipv6"],
            configured=raw.get("configured", planes.get(raw["plane"], "")),
        )
        for raw in spec["links"]
    )
    return Host(
        name=name,
        suite=spec["suite"],
        system=spec["system"],
        links=links,
        rack=spec.get("rack", ""),
        extra=spec.get("extra", ""),
        memory_mb=spec.get("memory_mb", 0),
        mirror=spec.get("mirror", False),
        gpus=spec.get("gpus", 0),
    )


def parse(data: dict[str, Any]) -> Topology:
    planes = {name: plane["configured"] for name, plane in data["planes"].items()}
    hosts: dict[str, Host] = {}
    for name, spec in data["hosts"].items():
        hosts[name] = parse_host(name, spec, planes)
    topology = Topology(
        hosts=hosts,
        controller4=data["controller"]["ipv4"],
        controller6=data["controller"]["ipv6"],
        extras={name: tuple(packages) for name, packages in data.get("extras", {}).items()},
    )
    problems = list(_problems(topology, planes))
    if problems:
        raise LabError("lab/topology.yml: " + "; ".join(problems), "correct the file")
    return topology


def _problems(topology: Topology, planes: dict[str, str]) -> list[str]:
    found: list[str] = []
    switches = [host.name for host in topology.hosts.values() if host.system == "uml"]
    if len(switches) != 1:
        found.append(f"hosts: there must be one uml switch (got {len(switches)})")
    seen: dict[str, str] = {}
    for host in topology.hosts.values():
        where = f"hosts.{host.name}"
        if not re.fullmatch(r"[a-z][a-z0-9]{0,11}", host.name):
            found.append(f"{where}: a name is at most 12 small letters and digits")
        if host.system not in SYSTEMS:
            found.append(f"{where}.system: not one of {SYSTEMS} (got {host.system})")
        if host.gpus and host.system != "nspawn":
            found.append(f"{where}.gpus: stand-ins are for nspawn hosts (got {host.gpus})")
        if host.extra and host.extra not in topology.extras:
            found.append(f"{where}.extra: unknown (got {host.extra})")
        for link in host.links:
            at = f"{where}.{link.device}"
            if link.plane not in planes:
                found.append(f"{at}: unknown plane (got {link.plane})")
            if link.configured not in CONFIGURED:
                found.append(f"{at}.configured: not one of {CONFIGURED} (got {link.configured})")
            if (link.plane == MANAGEMENT) == bool(link.port):
                found.append(f"{at}: a link has a switch port unless it is on the management bridge")
            if link.port and not re.fullmatch(r"vec[1-9][0-9]?", link.port):
                found.append(f"{at}.port: not vec1..vec99 (got {link.port})")
            for value in filter(None, (link.port, link.ipv4, link.ipv6)):
                if value in seen:
                    found.append(f"{at}: {value} is also {seen[value]}")
                seen[value] = at
    return found


def load(path: Path = LAB / "topology.yml") -> Topology:
    with path.open(encoding="utf-8") as file:
        return parse(yaml.safe_load(file))
