"""The capacity plan (O9): series, samples, bytes on each hop, disk of each tier and memory of each role, from
the compiled model alone; and what of it exceeds the contract's limits.

Every figure that is not arithmetic is a `Figure` with its source, and the plan lists them. Where a source
gives a range, the dearer end is taken: a plan that is too high costs money once, one too low costs data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import whose
from .budget import assumed, node_size
from .catalogue import entry_of, statistics
from .errors import Error
from .load import SITE
from .price import (
    WIRE_POLL_BYTES,
    WIRE_REQUEST_BYTES,
    WIRE_SERIES_BYTES,
    WIRE_TEXT_BYTES,
    NodeSize,
    always_bytes_per_second,
    batch_bytes,
    level_bytes_per_second,
    series,
)

Record = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    source: str


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "wire_request", WIRE_REQUEST_BYTES, "bytes a request on every hop",
            "measured at a node's interface: remote write, vmagent 1.112, mutual TLS, its answer included",
        ),
        Figure(
            "wire_series", WIRE_SERIES_BYTES, "bytes a sample in it",
            "measured there: compressed, the labels included",
        ),
        Figure(
            "wire_text", WIRE_TEXT_BYTES, "bytes a sample that is always sent",
            "measured there: the policy process reports in plain text",
        ),
        Figure("wire_poll", WIRE_POLL_BYTES, "bytes a question for the level", "measured there: unchanged"),
        Figure(
            "prometheus", 2, "bytes a sample on disk",
            "Prometheus' storage documentation: 1 to 2 bytes a sample on average",
        ),
        Figure(
            "prometheus_room", 1.1, "times, for blocks that outlive the retention",
            "Prometheus' storage documentation: blocks span up to a tenth of the retention",
        ),
        Figure(
            "victoriametrics", 1, "byte a sample on disk",
            "VictoriaMetrics' documentation: under 1 byte a sample after compression",
        ),
        Figure(
            "victoriametrics_room", 31 * 86400, "seconds more than the retention",
            "VictoriaMetrics deletes whole months",
        ),
        Figure(
            "node_memory", 80 * 10**6, "bytes on a node",
            "measured: node_exporter and vmagent 37 MB, the policy process 20 MB, GPUs and jobs 23 MB",
        ),
        Figure(
            "scrape_cpu", 30, "microseconds of CPU a series and scrape",
            "measured: 12 ms a scrape of about 400 series",
        ),
        Figure(
            "watch_cpu", 3.5, "percent of a CPU on a node",
            "GPUs and jobs: 0.5 measured on a node of 60 processes; 3 is the cap on looking at processes",
        ),
        Figure("base_memory", 60 * 10**6, "bytes for a host's idle daemons", "assumed, to be measured"),
        Figure(
            "series_memory_victoriametrics", 1024, "bytes an active series",
            "VictoriaMetrics' documentation: 1 KiB an active series",
        ),
        Figure(
            "series_memory_prometheus", 4096, "bytes a series of the last three hours",
            "rule of thumb among operators: 3 to 4 KiB a head series",
        ),
        Figure(
            "querygate_memory", 88 * 10**6, "bytes for questions and their answers",
            "measured: two programs of 40 MB; 256 KiB of each of 16 answers that are on their way",
        ),
        Figure(
            "alerts_memory", 210 * 10**6, "bytes for rules, their store and who tells of them",
            "measured: a store of 55 MB, two vmalert of 30, Alertmanager 45, the notifier 50; few series",
        ),
        Figure(
            "connection_memory", 72 * 1024, "bytes a connection at a front",
            "HAProxy: two buffers of 16 KiB; TLS about 40 KiB",
        ),
    )
}  # fmt: skip

# The hops of the data's way, by the flow that carries them and the role that sends.
HOPS = (("push", "node"), ("relay", "rack"), ("store", "region"))


def value(name: str) -> float:
    return FIGURES[name].value


@dataclass(frozen=True)
class Load:
    """What one node brings."""

    series: int
    samples: float  # a second

    def __add__(self, other: Load) -> Load:
        return Load(self.series + other.series, self.samples + other.samples)


def metric_series(model: Mapping[str, Any], metric: str, size: NodeSize) -> int:
    entry = entry_of(model["catalogue"]["metrics"], metric)
    if entry and entry["series"] and entry["name"] == metric:
        return int(entry["series"])
    return series([metric], size)


def _streams(model: Mapping[str, Any], size: NodeSize) -> Iterator[tuple[str, int, int]]:
    """(metric, series, period) of a node at the highest level, what is always sent included."""
    ladder = model["ladder"]
    level = ladder["levels"][ladder["order"][0]]
    for metric in level["metrics"]:
        yield metric, metric_series(model, metric, size), level["period_seconds"]
    for metric in ladder["always"]["metrics"]:
        yield metric, metric_series(model, metric, size), ladder["always"]["period_seconds"]


def _raw(streams: Iterable[tuple[str, int, int]]) -> Load:
    listed = list(streams)
    return Load(sum(count for _, count, _ in listed), sum(count / period for _, count, period in listed))


def _sent(model: Mapping[str, Any], size: NodeSize) -> float:
    """Bytes a second on a node's telemetry interface, at the highest level."""
    ladder = model["ladder"]
    level, always = ladder["levels"][ladder["order"][0]], ladder["always"]
    kept, steady = (
        sum(metric_series(model, metric, size) for metric in part["metrics"]) for part in (level, always)
    )
    return level_bytes_per_second(kept, level["period_seconds"]) + always_bytes_per_second(
        steady, always["period_seconds"], level["poll_seconds"]
    )


def _coarse(
    model: Mapping[str, Any],
    tier: Mapping[str, Any],
    streams: Iterable[tuple[str, int, int]],
    size: NodeSize,
) -> Load:
    """What a downsampled tier takes: one sample of each statistic and series in each of its intervals, the
    same once more for each job of what GPUs carry, and of some metrics every sample."""
    total = 0
    for metric, count, _ in streams:
        entry = entry_of(model["catalogue"]["metrics"], metric)
        left = _left(model, entry, tier["name"], count)
        if entry and entry["of"] == whose.GPU:
            left += count * size.jobs // max(1, size.gpus)
        total += left * len([one for one in statistics(entry, metric, tier["name"]) if one != whose.SAMPLES])
    whole = 0
    seconds = 0.0
    for entry in model["catalogue"]["metrics"]:
        if whose.SAMPLES in entry["keep"].get(tier["name"], {}).get("statistics", ()):
            count = metric_series(model, entry["name"], size)
            whole += count
            seconds += count / max(1, entry["period_seconds"])
    return Load(total + whole, total / tier["resolution_seconds"] + seconds)


def _finest(model: Mapping[str, Any], streams: Iterable[tuple[str, int, int]]) -> Load:
    """What the tier takes that takes samples as they come: everything but what tells of jobs."""
    metrics = model["catalogue"]["metrics"]
    return _raw(stream for stream in streams if (entry_of(metrics, stream[0]) or {}).get("of") != whose.JOB)


def _left(model: Mapping[str, Any], entry: Mapping[str, Any] | None, tier: str, count: int) -> int:
    """How many of a node's series survive where only some labels do."""
    dimensions = entry["keep"].get(tier, {}).get("dimensions") if entry else None
    if dimensions is None:
        return count
    values: dict[str, int] = {label["name"]: label["max_values"] for label in model["labels"]}
    return min(count, math.prod(values.get(name, 1) for name in dimensions))


def classes(model: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """(class, its nodes), with a class of assumed size for nodes that the budget leaves out."""
    nodes = [name for name, host in model["hosts"].items() if "node" in host["words"]]
    of = model["budget"]["classes"]
    found: list[tuple[Mapping[str, Any], list[str]]] = [
        (spec, [node for node in nodes if of.get(node) == spec["name"]]) for spec in model["budget"]["nodes"]
    ]
    left = [node for node in nodes if node not in of]
    return found + ([(assumed(), left)] if left else [])


def plan(model: Mapping[str, Any]) -> Record:
    """The whole plan as plain data, as it is recorded after a rollout."""
    node_load: dict[str, Load] = {}
    node_sent: dict[str, float] = {}
    tiers = list(model["tiers"].values())
    stored = {tier["name"]: Load(0, 0.0) for tier in tiers}
    by_class = []
    for spec, nodes in classes(model):
        streams = list(_streams(model, node_size(spec)))
        load = _raw(streams)
        sent = _sent(model, node_size(spec))
        node_load.update(dict.fromkeys(nodes, load))
        node_sent.update(dict.fromkeys(nodes, sent))
        for number, tier in enumerate(tiers):
            one = _coarse(model, tier, streams, node_size(spec)) if number else _finest(model, streams)
            stored[tier["name"]] += Load(one.series * len(nodes), one.samples * len(nodes))
        by_class.append(_class(spec, nodes, load, sent))
    return {
        "level": model["ladder"]["order"][0],
        "series": sum(load.series for load in node_load.values()),
        "samples_per_second": round(sum(load.samples for load in node_load.values()), 3),
        "nodes": by_class,
        "metrics": _metrics(model),
        "hops": list(_hops(model, node_load, node_sent)),
        "tiers": [_tier(model, tier, stored[tier["name"]]) for tier in tiers],
        "memory": list(_memory(model, node_load, stored)),
    }


def _class(spec: Mapping[str, Any], nodes: list[str], load: Load, sent: float) -> Record:
    return {
        "name": spec["name"],
        "count": len(nodes),
        "series": load.series,
        "samples_per_second": round(load.samples, 3),
        "bytes_per_second": math.ceil(sent),
        "cpu_percent": round(100 * load.samples * value("scrape_cpu") / 10**6 + value("watch_cpu"), 2),
        "memory_bytes": int(value("node_memory")),
        "limits": {key: spec[key] for key in ("bytes_per_second", "cpu_percent", "memory_bytes")},
    }


def _metrics(model: Mapping[str, Any]) -> Record:
    """What each line of the ladder's highest level costs the site: the price of a change (A3)."""
    found: Record = {}
    for spec, nodes in classes(model):
        for metric, count, period in _streams(model, node_size(spec)):
            one = found.setdefault(metric, {"series": 0, "samples_per_second": 0.0})
            one["series"] += count * len(nodes)
            one["samples_per_second"] = round(one["samples_per_second"] + count * len(nodes) / period, 3)
    return found


def _hops(
    model: Mapping[str, Any], node_load: Mapping[str, Load], node_sent: Mapping[str, float]
) -> Iterator[Record]:
    """The busiest sender of each hop, and the share that its flow guarantees it. Above the nodes an agent
    sends once a second what came in."""
    rates = {flow["name"]: flow["rate_bits_per_second"] // 8 for flow in model["flows"]}
    sent = dict(node_sent)
    for flow, word in HOPS:
        senders = [name for name, host in model["hosts"].items() if word in host["words"]]
        if flow not in rates or not senders:
            continue
        if word == "rack":
            for host in senders:
                rack = model["hosts"][host]["rack"]
                below = (node for node in node_load if model["hosts"][node]["rack"] == rack)
                sent[host] = batch_bytes(sum(node_load[node].samples for node in below))
        if word == "region":
            # Each rack sends to its first region: the busiest case is one region that takes them all.
            total = batch_bytes(sum(load.samples for load in node_load.values()))
            sent.update(dict.fromkeys(senders, total))
        busiest = max(senders, key=lambda name: sent.get(name, 0.0))
        yield {
            "flow": flow,
            "host": busiest,
            "bytes_per_second": math.ceil(sent.get(busiest, 0.0)),
            "limit_bytes_per_second": rates[flow],
        }


def _tier(model: Mapping[str, Any], tier: Mapping[str, Any], load: Load) -> Record:
    seconds = tier["retention_seconds"]
    if tier["engine"] == "prometheus":
        kept = seconds * value("prometheus_room")
    else:
        kept = seconds + value("victoriametrics_room")
    per_sample = value(tier["engine"])
    budget = model["budget"]["disk"].get(tier["name"])
    return {
        "name": tier["name"],
        "engine": tier["engine"],
        "series": load.series,
        "samples_per_second": round(load.samples, 3),
        "bytes_per_sample": per_sample,
        "retention": tier["retention"],
        "retention_seconds": seconds,
        "bytes": math.ceil(load.samples * kept * per_sample),
        "cap_bytes": tier["cap_bytes"],
        "limit_bytes": min(budget, tier["cap_bytes"]) if budget else tier["cap_bytes"],
    }


def _memory(
    model: Mapping[str, Any], node_load: Mapping[str, Load], stored: Mapping[str, Load]
) -> Iterator[Record]:
    """The largest host of each role that takes samples."""
    limits = model["budget"]["memory"]
    for word in ("node", "rack", "region", "lake", "gateway", "alerts"):
        hosts = [host for host in model["hosts"].values() if word in host["words"]]
        if not hosts:
            continue
        if word in ("node", "alerts"):
            need = value(f"{word}_memory")
        else:
            need = value("base_memory") + max(_connections(host) for host in hosts) * value(
                "connection_memory"
            )
        if word == "gateway":
            need += value("querygate_memory")
        if word in ("rack", "region"):
            need += sum(load.series for load in node_load.values()) * value("series_memory_victoriametrics")
        if word == "lake":
            for tier in model["tiers"].values():
                need += stored[tier["name"]].series * value(f"series_memory_{tier['engine']}")
        yield {"word": word, "bytes": math.ceil(need), "limit_bytes": limits.get(word)}


def _connections(host: Mapping[str, Any]) -> int:
    return sum(served["connections"] * max(1, len(served["peers"])) for served in host["serves"].values())


def excess(model: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[Error]:
    """One error for each limit that the plan exceeds; none where the site states no budget."""
    if not model["budget"]["held"]:
        return
    level = planned["level"]
    for one in planned["nodes"]:
        yield from _class_excess(one, level)
    for hop in planned["hops"]:
        if hop["bytes_per_second"] > hop["limit_bytes_per_second"]:
            yield Error(
                SITE,
                f"sideband_flows[{hop['flow']}].rate",
                f"is below what {hop['host']} sends at {level}, {bits(hop['bytes_per_second'])}",
                bits(hop["limit_bytes_per_second"]),
                f"raise it, or sample less at {level}",
            )
    for tier in planned["tiers"]:
        if tier["bytes"] > tier["limit_bytes"]:
            own = tier["limit_bytes"] < tier["cap_bytes"]
            yield Error(
                SITE,
                f"sideband_budget.disk.{tier['name']}" if own else f"sideband_tiers[{tier['name']}].cap",
                f"is below what {tier['retention']} take, {size(tier['bytes'])}",
                size(tier["limit_bytes"]),
                "raise it, shorten the retention, or keep fewer series or statistics",
            )
    for one in planned["memory"]:
        if one["limit_bytes"] is not None and one["bytes"] > one["limit_bytes"]:
            yield Error(
                SITE,
                f"sideband_budget.memory.{one['word']}",
                f"is below what a {one['word']} host needs, {size(one['bytes'])}",
                size(one["limit_bytes"]),
                "raise it, or bring fewer series or connections to one host",
            )


def _class_excess(one: Mapping[str, Any], level: str) -> Iterator[Error]:
    path = f"sideband_budget.nodes[{one['name']}]"
    limits, hint = one["limits"], f"raise it, or lengthen the period of {level} or shorten its list"
    if not one["count"]:
        return
    if limits["bytes_per_second"] is not None and one["bytes_per_second"] > limits["bytes_per_second"]:
        problem = f"is below what a node sends at {level}, {bits(one['bytes_per_second'])}"
        yield Error(SITE, f"{path}.rate", problem, bits(limits["bytes_per_second"]), hint)
    if limits["cpu_percent"] is not None and one["cpu_percent"] > limits["cpu_percent"]:
        problem = f"is below what sampling takes at {level}, {one['cpu_percent']:g} % of a CPU"
        yield Error(SITE, f"{path}.cpu_percent", problem, f"{limits['cpu_percent']:g} %", hint)
    if limits["memory_bytes"] is not None and one["memory_bytes"] > limits["memory_bytes"]:
        problem = f"is below what the programs take, {size(one['memory_bytes'])}"
        yield Error(SITE, f"{path}.memory", problem, size(limits["memory_bytes"]), "raise it")


def bits(bytes_per_second: float) -> str:
    return _scaled(bytes_per_second * 8, 1000, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"))


def size(count: float) -> str:
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _scaled(amount: float, step: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if amount < step:
            return f"{amount:.3g} {unit}" if unit != units[0] else f"{amount:.0f} {unit}"
        amount /= step
    return f"{amount:.4g} {units[-1]}"
