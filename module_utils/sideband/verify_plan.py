"""What verify tries: every pair of (source host, destination host, destination's plane, family), and for each
the packets that the contract lets us foretell. Pure: the same model and options give the same plan, so the
controller makes it anew for every request and once more to judge.

Where source and destination meet decides what is tried:
- on the destination's own plane: a listed flow must connect; all else must be dropped and counted;
- on another plane only: frames for the address that belongs elsewhere (Linux's weak host model would answer)
  must be dropped and counted where they arrive;
- nowhere: frames go to every host that the source does meet, and must be dropped and counted there.
A training interface gets no frame at all; only where the site says so (a lab) do training hosts connect to
each other's probe listener, to show that what passes there is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import packets
from .verify_ground import Ground
from .verify_pairs import (
    GUARDED,
    SSH,
    Options,
    Pair,
    Plan,
    Probe,
    Record,
    Spot,
    address,
    list_pairs,
    outside_hosts,
    segment,
    sideband_hosts,
)


def make(model: Mapping[str, Any], options: Options) -> Plan:
    hosts = {**sideband_hosts(model), **outside_hosts(model, options)}
    planner = _Planner(model, hosts, options)
    pairs = list_pairs(model, options)
    drafts = [draft for pair in pairs for draft in planner.pair(pair)]
    drafts += planner.controls(drafts)
    if len(drafts) > packets.LIMIT:
        raise ValueError(
            f"verify: {len(drafts)} probes do not fit in one run (at most {packets.LIMIT}); "
            "limit it with sideband_verify_only"
        )
    return Plan(
        tuple(pairs), tuple(Probe(number, **draft) for number, draft in enumerate(drafts)), hosts, options
    )


class _Planner(Ground):
    """Probes for one pair after another; a draft is a Probe without its number."""

    def __init__(self, model: Mapping[str, Any], hosts: Mapping[str, Record], options: Options) -> None:
        super().__init__(model, hosts)
        self.options = options
        self.connections: dict[str, int] = {}

    def pair(self, pair: Pair) -> Iterator[Record]:
        source, target = self.hosts[pair.source], self.hosts[pair.destination]
        there = target["interfaces"][pair.plane]
        shared = self._shared(source, target)
        if pair.plane in shared:
            here = source["interfaces"][pair.plane]
            if there["kind"] == "training":
                if self.options.training:
                    yield self._connect(pair, "pass", here, there, self.options.port)
            elif there["kind"] == "management":
                yield from self._management(pair, source, here, there)
            else:
                yield from self._guarded(pair, source, target, here, there)
        for plane in shared:
            if plane != pair.plane and source["interfaces"][plane]["kind"] != "training":
                yield from self._weak(pair, target, plane, pair.destination)
        if not shared:
            for other in self.hosts.values():
                for plane in self._shared(source, other):
                    if other["counters"]:
                        yield from self._weak(pair, target, plane, other["name"])
        yield from self._astray(pair, source, there)

    # What is tried, by where the two meet -----------------------------------------------------------------

    def _guarded(
        self, pair: Pair, source: Record, target: Record, here: Record, there: Record
    ) -> Iterator[Record]:
        served = [(name, flow) for name, flow in target["serves"].items() if flow["plane"] == pair.plane]
        own = self.options.port
        reason = "unlisted"
        listed = own
        for name, flow in served:
            listed = flow["port"]
            if self._allowed(source, flow):
                yield self._connect(pair, "flow", here, there, flow["port"], name)
            else:
                yield self._frame(pair, "listed", here, there, reason, "syn", flow["port"])
        yield self._frame(pair, "unlisted", here, there, reason, "syn", own)
        yield self._frame(pair, "udp", here, there, reason, "udp", own)
        yield self._frame(pair, "ack", here, there, reason, "ack", own)
        yield self._frame(
            pair,
            "service port",
            here,
            there,
            reason,
            "syn",
            own,
            source_port=self._service_port(pair, source, target),
        )
        spoof = self._management_address(source, pair)
        if spoof:
            yield self._frame(pair, "spoofed", here, there, reason, "syn", listed, source=spoof)

    def _management(self, pair: Pair, source: Record, here: Record, there: Record) -> Iterator[Record]:
        ssh = self.options.ssh_ports.get(pair.destination, SSH)
        denied = "node" in self.hosts[pair.destination]["words"] and (
            address(here, pair.family) in self.sources[pair.family]
        )
        if not denied:
            yield self._connect(pair, "site", here, there, ssh)
            return
        reason = "source"
        yield self._frame(pair, "source", here, there, reason, "syn", ssh)
        yield self._frame(pair, "unlisted", here, there, reason, "syn", self.options.port)
        yield self._frame(pair, "udp", here, there, reason, "udp", self.options.port)
        yield self._frame(
            pair, "service port", here, there, reason, "syn", self.options.port, source_port=ssh
        )
        for plane, other in source["interfaces"].items():
            if plane != pair.plane and address(other, pair.family):
                yield self._frame(
                    pair, "spoofed", here, there, reason, "syn", ssh, source=address(other, pair.family)
                )

    def _weak(self, pair: Pair, target: Record, plane: str, catcher: str) -> Iterator[Record]:
        here = self.hosts[pair.source]["interfaces"][plane]
        there = self.hosts[catcher]["interfaces"][plane]
        aim = {**there, **{key: target["interfaces"][pair.plane][key] for key in ("ipv4", "ipv6")}}
        served = [flow["port"] for flow in target["serves"].values() if flow["plane"] == pair.plane]
        kind = "other plane's address"
        for shape, port in (
            ("syn", (served or [self.options.port])[0]),
            ("udp", self.options.port),
            ("ack", self.options.port),
        ):
            yield self._frame(pair, kind, here, aim, "address", shape, port, catcher=catcher)

    def _astray(self, pair: Pair, source: Record, there: Record) -> Iterator[Record]:
        """Frames for the destination's interface, sent on a segment that it is not part of: the switches must
        keep them apart."""
        if there["kind"] not in GUARDED or not self._neighbour(Spot(pair.destination, there["device"])):
            return
        for plane, here in source["interfaces"].items():
            if here["kind"] in GUARDED and segment(plane, here) != segment(pair.plane, there):
                yield self._frame(
                    pair, "other segment", here, there, "", "syn", self.options.port, expect="nowhere"
                )

    def controls(self, drafts: list[Record]) -> Iterator[Record]:
        """That a frame did not arrive says something only where another one did: in a run that is limited to
        some hosts, a neighbour sends it."""
        reached = {draft["catcher"] for draft in drafts if draft["expect"] != "nowhere"}
        for draft in drafts:
            spot, pair = draft["catcher"], draft["pair"]
            if spot in reached:
                continue
            reached.add(spot)
            neighbour, here = self._neighbour(spot)[0]
            there = self.hosts[spot.host]["interfaces"][pair.plane]
            frame = self._frame(pair, "control", here, there, "unlisted", "syn", self.options.port)
            yield {**frame, "leaves": Spot(neighbour, here["device"])}

    # How a probe is written down --------------------------------------------------------------------------

    def _connect(
        self, pair: Pair, kind: str, here: Record, there: Record, port: int, flow: str = ""
    ) -> Record:
        used = self.connections.get(pair.source, 0)
        self.connections[pair.source] = used + 1
        return self._draft(
            pair,
            kind,
            "answer",
            here,
            there,
            "",
            "connect",
            port,
            flow=flow,
            source_port=packets.PORTS[0] + used % (packets.PORTS[1] - packets.PORTS[0]),
        )

    def _frame(
        self,
        pair: Pair,
        kind: str,
        here: Record,
        there: Record,
        reason: str,
        shape: str,
        port: int,
        *,
        source: str = "",
        source_port: int = 0,
        expect: str = "",
        catcher: str = "",
    ) -> Record:
        counter = self._counter(catcher or pair.destination, there["device"], reason) if reason else ""
        return self._draft(
            pair,
            kind,
            expect or ("observe" if there["mode"] == "observe" else "drop"),
            here,
            there,
            counter,
            shape,
            port,
            source=source,
            source_port=source_port or 62000 + pair.family,
            catcher=catcher,
        )

    def _draft(
        self,
        pair: Pair,
        kind: str,
        expect: str,
        here: Record,
        there: Record,
        counter: str,
        shape: str,
        port: int,
        *,
        source: str = "",
        source_port: int,
        flow: str = "",
        catcher: str = "",
    ) -> Record:
        return {
            "pair": pair,
            "kind": kind,
            "expect": expect,
            "leaves": Spot(pair.source, here["device"]),
            "catcher": Spot(catcher or pair.destination, there["device"]),
            "counter": counter,
            "source": source or address(here, pair.family),
            "destination": address(there, pair.family),
            "shape": shape,
            "source_port": source_port,
            "port": port,
            "flow": flow,
        }
