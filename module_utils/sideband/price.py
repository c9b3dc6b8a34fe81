"""What telemetry costs: series, samples and bytes of each level, for the capacity plan and for the intake
limit that a rack puts on every node's certificate.

The figures and where they come from, all measured at a node's telemetry interface with vmagent 1.112 and the
policy process over mutual TLS, TCP and TLS framing and acknowledgements included:

`WIRE_REQUEST_BYTES` 575: a remote-write request before its first series, and its answer.
`WIRE_SERIES_BYTES` 20: one more series with one sample in it, compressed. Counters of one kind compress best;
label sets of their own cost up to twice as much.
`WIRE_TEXT_BYTES` 45: one more series in a report of the policy process, which is plain text.
`WIRE_POLL_BYTES` 283: asking for the level and hearing that it is the same.

`ROOMY_NODE`: the node that a limit must not hurt. A limit is admission control: it has to be above what the
largest honest node sends at a level and far below what the level above sends. `families` gives how many
series a metric has for each CPU, disk, network interface and filesystem of the node; what is not listed is
one series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

WIRE_REQUEST_BYTES = 575
WIRE_SERIES_BYTES = 20
WIRE_TEXT_BYTES = 45
WIRE_POLL_BYTES = 283
# vmagent cuts a scrape into requests of at most this many rows (its -remoteWrite.maxRowsPerBlock).
REQUEST_ROWS = 10000
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
    gpus: int = 0
    jobs: int = 0


ROOMY_NODE = NodeSize(cpus=256, disks=32, interfaces=32, filesystems=32, gpus=16, jobs=64)
SMALL_NODE = NodeSize(cpus=2, disks=1, interfaces=4, filesystems=3)

# (beginning of a name, names in the family when a pattern takes all of it, series per name's unit, unit).
# Counted on node_exporter 1.9 with its default collectors, and on what nodeagent and curves write. A GPU has
# had two kinds of Xid errors; a job says the six of its quantities that most frameworks print.
FAMILIES = (
    ("DCGM_FI_DEV_", 18, 1, "gpus"),
    ("sideband_gpu_xid_errors_total", 1, 2, "gpus"),
    ("sideband_gpu_xid_any_total", 1, 1, "gpus"),
    ("sideband_gpu_lost", 1, 1, "gpus"),
    ("sideband_gpu_", 11, 1, ""),
    ("sideband_job_", 6, 1, "jobs"),
    ("sideband_jobs_", 10, 1, ""),
    ("sideband_train_", 6, 1, "jobs"),
    ("sideband_nccl_events_total", 1, 4, "jobs"),
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
    stem, all_of_it = metric.rstrip("*"), metric.endswith("*")
    families = [family for family in FAMILIES if all_of_it and family[0].startswith(stem)]
    families = families or [family for family in FAMILIES if stem.startswith(family[0])][:1]
    if not families:
        return 1
    return sum(
        each * (getattr(node, unit) if unit else 1) * (names if all_of_it else 1)
        for _, names, each, unit in families
    )


def keep_pattern(metrics: Iterable[str]) -> str:
    """An anchored RE2 expression over metric names; '' where a level keeps none."""
    parts = [
        re.escape(metric[:-1]) + ".*" if metric.endswith("*") else re.escape(metric) for metric in metrics
    ]
    return "^(?:" + "|".join(parts) + ")$" if parts else ""


def batch_bytes(count: float, each: int = WIRE_SERIES_BYTES) -> float:
    """What `count` samples weigh that are sent at once; nothing where there are none."""
    return math.ceil(count / REQUEST_ROWS) * WIRE_REQUEST_BYTES + count * each


def level_bytes_per_second(count: int, period: float) -> float:
    """The sampler at a level that keeps `count` series, on the wire."""
    return batch_bytes(count) / period


def always_bytes_per_second(count: int, period: float, poll: float) -> float:
    """The policy process at a level that it polls every `poll` seconds, on the wire."""
    return batch_bytes(count, WIRE_TEXT_BYTES) / period + WIRE_POLL_BYTES / poll


def intake_bytes_per_second(metrics: Iterable[str], period: int) -> int:
    """The limit that a rack puts on one node's certificate at a level."""
    sent = level_bytes_per_second(series(metrics, ROOMY_NODE), period)
    return max(INTAKE_FLOOR_BYTES, math.ceil(sent * INTAKE_HEADROOM))
