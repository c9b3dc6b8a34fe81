"""What telemetry costs: series, samples and bytes of each level, for the capacity plan and for the intake
limit that a rack puts on every node's certificate.

The figures and where they come from:

`WIRE_BYTES_PER_SAMPLE` 229: measured at a node's telemetry interface with vmagent 1.112 remote write over
mutual TLS and small batches (tens of series), each series with its identity label, TCP and TLS framing
included. Bigger batches compress far better, so for `full` it is an upper bound.

`ROOMY_NODE`: the node that a limit must not hurt. A limit is admission control: it has to be above what the
largest honest node sends at a level and far below what the level above sends. `families` gives how many
series a metric has for each CPU, disk, network interface and filesystem of the node; what is not listed is
one series.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

WIRE_BYTES_PER_SAMPLE = 229
# The rack averages over a minute: one batch more than the average may fall into it, and a retry sends twice.
INTAKE_HEADROOM = 2.0
# Below this a limit would stop connection set-up and vmagent's own `up` and scrape_* series.
INTAKE_FLOOR_BYTES = 512


@dataclass(frozen=True)
class NodeSize:
    """What the number of series of a node depends on."""

    cpus: int
    disks: int
    interfaces: int
    filesystems: int


ROOMY_NODE = NodeSize(cpus=256, disks=32, interfaces=32, filesystems=32)
SMALL_NODE = NodeSize(cpus=2, disks=1, interfaces=4, filesystems=3)

# (beginning of a name, names in the family when a pattern takes all of it, series per name's unit, unit).
# Counted on node_exporter 1.9 with its default collectors.
FAMILIES = (
    ("node_cpu_seconds_total", 1, 8, "cpus"),
    ("node_disk_", 18, 1, "disks"),
    ("node_network_", 38, 1, "interfaces"),
    ("node_filesystem_", 9, 1, "filesystems"),
    ("node_memory_", 52, 1, ""),
    ("node_netstat_", 42, 1, ""),
    ("node_sockstat_", 20, 1, ""),
    ("node_vmstat_", 7, 1, ""),
    ("node_pressure_", 5, 1, ""),
    ("node_procs_", 2, 1, ""),
    ("node_load", 3, 1, ""),
)


def series(metrics: Iterable[str], node: NodeSize) -> int:
    """How many series a list of names and patterns yields on a node of that size."""
    return sum(_series_of(metric, node) for metric in metrics)


def _series_of(metric: str, node: NodeSize) -> int:
    stem = metric.rstrip("*")
    for beginning, names, each, unit in FAMILIES:
        takes_family = metric.endswith("*") and beginning.startswith(stem)
        if stem.startswith(beginning) or takes_family:
            count = each * (getattr(node, unit) if unit else 1)
            return int(count * (names if metric.endswith("*") else 1))
    return 1


def keep_pattern(metrics: Iterable[str]) -> str:
    """An anchored RE2 expression over metric names; '' where a level keeps none."""
    parts = [
        re.escape(metric[:-1]) + ".*" if metric.endswith("*") else re.escape(metric) for metric in metrics
    ]
    return "^(?:" + "|".join(parts) + ")$" if parts else ""


def bytes_per_second(metrics: Iterable[str], period: int, node: NodeSize) -> int:
    """What a node of that size sends of these metrics, on the wire; rounded up."""
    return -(-series(metrics, node) * WIRE_BYTES_PER_SAMPLE // period)


def intake_bytes_per_second(metrics: Iterable[str], period: int) -> int:
    """The limit that a rack puts on one node's certificate at a level."""
    return max(INTAKE_FLOOR_BYTES, int(bytes_per_second(metrics, period, ROOMY_NODE) * INTAKE_HEADROOM))
