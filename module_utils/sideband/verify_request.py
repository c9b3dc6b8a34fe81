"""Requests: what one host is asked to do in one visit of verify. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import verify_alerts, verify_archive, verify_data, verify_logs, verify_queries
from .verify_pairs import FAMILIES, Plan, address

Record = dict[str, Any]
# What hosts ask each other once the packets are through, each with its judgement.
PARTS = (verify_data, verify_queries, verify_alerts, verify_logs, verify_archive)


def listeners(plan: Plan, host: str) -> list[Record]:
    """Addresses and ports at which probes aim on this host: [own] opened by the probe, the rest a service's.
    UDP listeners are always the probe's own."""
    result: dict[tuple[str, str, int], Record] = {}
    own = {
        address(interface, family): interface
        for interface in plan.hosts[host]["interfaces"].values()
        for family in FAMILIES
    }
    for probe in plan.probes:
        interface = own.get(probe.destination)
        if interface is None or not probe.destination:
            continue
        if interface["kind"] == "training" and not plan.options.training:
            continue
        protocol = "udp" if probe.shape == "udp" else "tcp"
        key = (protocol, probe.destination, probe.port)
        result[key] = {
            "protocol": protocol,
            "address": probe.destination,
            "port": probe.port,
            "own": protocol == "udp" or probe.port == plan.options.port,
        }
    return [result[key] for key in sorted(result)]


def request(
    model: Mapping[str, Any],
    plan: Plan,
    host: str,
    phase: str,
    macs: Mapping[str, Mapping[str, str]],
    patience: float,
) -> Record:
    """The request for one host's visit. `macs` (host: device: address) is known after the phase open."""
    interfaces = plan.hosts[host]["interfaces"]
    if phase == "open":
        return {
            "devices": [part["device"] for part in interfaces.values() if part["kind"] != "training"],
            "training": [part["device"] for part in interfaces.values() if part["kind"] == "training"],
            "listeners": listeners(plan, host),
            "sockets": "node" in plan.hosts[host]["words"],
            "says": verify_logs.SAID if verify_logs.ships(model, host) else "",
        }
    if phase == "collect":
        return {"asks": [one for part in PARTS for one in part.asks(model, host, patience)]}
    mine = [probe for probe in plan.probes if probe.leaves.host == host]
    return {
        "connects": [
            [p.number, p.source, p.destination, p.source_port, p.port] for p in mine if p.shape == "connect"
        ],
        "frames": [
            [
                p.number,
                p.leaves.device,
                macs.get(p.catcher.host, {}).get(p.catcher.device, ""),
                p.source,
                p.destination,
                p.shape,
                p.source_port,
                p.port,
            ]
            # What must arrive nowhere goes last: a switch has learnt by then where everybody is.
            for p in sorted(mine, key=lambda p: p.expect == "nowhere")
            if p.shape != "connect"
        ],
    }
