"""The shape of what a host sends on its telemetry and query interfaces: one HTB tree per interface.

Every derived value is explicit (case 34), because tc's own choices are wrong at both ends: its quantum is
rate / r2q with r2q 10, which the kernel refuses to take above 200000 or below 1000 bytes (sch_htb.c,
`quantum of class %X is big/small`), while tc exits 0; its burst is one packet, which at high rates is less
than a class may send between two timer ticks.

    quantum = rate x 1 ms, within [1514, 60000]       (tc-htb(8): at least one MTU; below the kernel's limit)
    burst   = rate x 4 ms, within [2 x 1514, 1 MiB]   (tc-htb(8): rate / HZ; 4 ms is a tick at HZ=250)
    cburst  = the same from the ceiling

The upper bound of a burst keeps a 100 Gbit/s ceiling from sending 50 MB at line rate in one go.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import CLIENTS, Flow, Host, Interface, Site

FRAME_BYTES = 1514
QUANTUM_BYTES = (FRAME_BYTES, 60_000)
BURST_BYTES = (2 * FRAME_BYTES, 2**20)
QUANTUM_MILLISECONDS = 1
BURST_MILLISECONDS = 4
DEFAULT_CLASS = 99
DEFAULT_SHARE = 100  # what no flow names gets a hundredth, and what is left over
FIRST_CLASS, CLASS_STEP = 10, 1


@dataclass(frozen=True)
class ShapeClass:
    id: int
    flows: tuple[str, ...]
    dscp: str
    tos: int
    rate: int
    ceil: int


@dataclass(frozen=True)
class Shape:
    device: str
    plane: str
    rate: int
    classes: tuple[ShapeClass, ...]
    default_rate: int


def _bytes_in(rate: int, milliseconds: int, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return max(low, min(high, rate * milliseconds // 8000))


def quantum_bytes(rate: int) -> int:
    return _bytes_in(rate, QUANTUM_MILLISECONDS, QUANTUM_BYTES)


def burst_bytes(rate: int) -> int:
    return _bytes_in(rate, BURST_MILLISECONDS, BURST_BYTES)


def sends(site: Site, host: Host, plane: str) -> list[Flow]:
    """The flows that make this host send on a plane, in either role: a reply needs its share too."""
    result = []
    for flow in site.flows:
        if flow.plane == plane:
            reaches, peers = site.pairs(flow, host)
            if reaches or peers or (flow.source == CLIENTS and host.is_in(flow.target)):
                result.append(flow)
    return result


def shape_of(site: Site, host: Host, interface: Interface) -> Shape:
    """One class per DSCP on this interface: flows that leave with the same mark cannot be told apart, so
    they share a class that is guaranteed the sum of their rates."""
    rate = site.planes[interface.plane].egress_rate
    by_dscp: dict[str, list[Flow]] = {}
    for flow in sends(site, host, interface.plane):
        by_dscp.setdefault(flow.dscp, []).append(flow)
    classes = tuple(
        ShapeClass(
            id=FIRST_CLASS + CLASS_STEP * number,
            flows=tuple(flow.name for flow in flows),
            dscp=dscp,
            tos=flows[0].tos,
            rate=sum(flow.rate for flow in flows),
            ceil=rate,
        )
        for number, (dscp, flows) in enumerate(by_dscp.items())
    )
    left = rate - sum(part.rate for part in classes)
    return Shape(interface.device, interface.plane, rate, classes, max(left, rate // DEFAULT_SHARE))


def compile_shapes(site: Site, host: Host) -> list[Shape]:
    return [
        shape_of(site, host, interface)
        for interface in host.interfaces.values()
        if site.planes[interface.plane].guarded
    ]


def shape_record(shape: Shape) -> dict[str, object]:
    """The shape as data for those who load it, every derived value spelt out."""
    return {
        "device": shape.device,
        "plane": shape.plane,
        "rate_bits_per_second": shape.rate,
        "quantum_bytes": quantum_bytes(shape.rate),
        "burst_bytes": burst_bytes(shape.rate),
        "cburst_bytes": burst_bytes(shape.rate),
        "classes": [
            {
                "id": part.id,
                "flow": "+".join(part.flows),
                "flows": list(part.flows),
                "dscp": part.dscp,
                "tos": part.tos,
                **_class_rates(part.rate, part.ceil),
            }
            for part in shape.classes
        ],
        "default_class": DEFAULT_CLASS,
        "default": _class_rates(shape.default_rate, shape.rate),
    }


def _class_rates(rate: int, ceil: int) -> dict[str, int]:
    return {
        "rate_bits_per_second": rate,
        "ceil_bits_per_second": ceil,
        "quantum_bytes": quantum_bytes(rate),
        "burst_bytes": burst_bytes(rate),
        "cburst_bytes": burst_bytes(ceil),
    }
