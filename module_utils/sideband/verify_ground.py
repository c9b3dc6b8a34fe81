"""What the contract says about two hosts: where they meet, what is allowed, who counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .verify_pairs import FAMILIES, Pair, Record, Spot, address, segment


class Ground:
    """The model as a planner of probes asks for it."""

    def __init__(self, model: Mapping[str, Any], hosts: Mapping[str, Record]) -> None:
        self.hosts = hosts
        self.sources = {family: set(model["sources"][str(family)]) for family in FAMILIES}
        self.flow_ports = [flow["port"] for flow in model["flows"]]

    def _neighbour(self, spot: Spot) -> list[tuple[str, Record]]:
        """Who else is on the segment of this interface."""
        plane, there = next(
            (plane, part)
            for plane, part in self.hosts[spot.host]["interfaces"].items()
            if part["device"] == spot.device
        )
        return [
            (name, host["interfaces"][plane])
            for name, host in self.hosts.items()
            if name != spot.host
            and plane in host["interfaces"]
            and segment(plane, host["interfaces"][plane]) == segment(plane, there)
        ]

    def _shared(self, source: Record, target: Record) -> list[str]:
        """Planes on which the two meet."""
        return [
            plane
            for plane, here in source["interfaces"].items()
            if plane in target["interfaces"]
            and segment(plane, here) == segment(plane, target["interfaces"][plane])
        ]

    def _counter(self, host: str, device: str, reason: str) -> str:
        """The name under which the host's rules count this; a name of its own where they have none, so that
        the judge misses it."""
        for counter in self.hosts[host]["counters"]:
            if (counter["device"], counter["reason"]) == (device, reason):
                return str(counter["name"])
        return f"{device}_{reason}"

    def _allowed(self, source: Record, flow: Mapping[str, Any]) -> bool:
        if flow["clients"] and not source["words"]:
            return True
        return source["name"] in [peer["host"] for peer in flow["peers"]]

    def _service_port(self, pair: Pair, source: Record, target: Record) -> int:
        """The port whose replies the target lets in from the source, if there is one: a bare SYN from it must
        not slip through with them."""
        for name, ends in target["reaches"].items():
            if pair.source in [end["host"] for end in ends]:
                return int(source["serves"][name]["port"])
        return int(self.flow_ports[0])

    def _management_address(self, source: Record, pair: Pair) -> str:
        """A management address to lie with: the source's own, or that of a host that is not the target."""
        for host in [source, *(h for h in self.hosts.values() if h["name"] != pair.destination)]:
            for interface in host["interfaces"].values():
                if interface["kind"] == "management" and address(interface, pair.family):
                    return address(interface, pair.family)
        return ""
