"""What `validate` prints: what a contract costs, before it is rolled out (O9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from .capacity import FIGURES, bits, excess, plan, size
from .price import ROOMY_NODE, SMALL_NODE, NodeSize, always_bytes_per_second, level_bytes_per_second, series


def _human(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _size(node: NodeSize) -> str:
    return (
        f"{node.cpus} CPUs, {node.disks} disks, {node.interfaces} interfaces,"
        f" {node.filesystems} file systems, {node.gpus} GPUs, {node.jobs} jobs"
    )


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def plan_lines(model: Mapping[str, Any], deployed: Mapping[str, Any] | None = None) -> list[str]:
    """Lines of text: what the site is, what each level costs a node, the capacity plan, and what changes."""
    planned = plan(model)
    return [*_levels(model), "", *_capacity(model, planned), "", *_difference(planned, deployed or {})]


def _levels(model: Mapping[str, Any]) -> list[str]:
    hosts, ladder, racks = model["hosts"], model["ladder"], model["racks"]
    nodes = sum(len(rack["nodes"]) for rack in racks.values())
    lines = [
        (
            f"The contract of {model['site']} holds: {len(hosts)} hosts, {len(racks)} racks, {nodes} nodes,"
            f" {len(model['flows'])} flows, {len(model['tenants'])} tenants."
        ),
        "",
        "What a node sends on its telemetry interface, in bytes a second:",
    ]
    always = ladder["always"]
    rows = [("level", "period", "small node", "large node", f"{nodes} small nodes", "limit at the rack")]
    for name in ladder["order"]:
        level = ladder["levels"][name]
        costs = [
            level_bytes_per_second(series(level["metrics"], size), level["period_seconds"])
            + always_bytes_per_second(
                series(always["metrics"], size), always["period_seconds"], level["poll_seconds"]
            )
            for size in (SMALL_NODE, ROOMY_NODE)
        ]
        rows.append(
            (
                name,
                f"{level['period_seconds']} s",
                f"{_human(costs[0])} ({series(level['metrics'], SMALL_NODE)} series)",
                f"{_human(costs[1])} ({series(level['metrics'], ROOMY_NODE)} series)",
                _human(costs[0] * nodes),
                _human(level["intake_bytes_per_second"]),
            )
        )
    lines += _table(rows)
    lines += [
        f"  small: {_size(SMALL_NODE)}; large: {_size(ROOMY_NODE)}.",
        f"  every level includes the {len(always['metrics'])} names that are always sent, and the polls.",
    ]
    return lines


def _capacity(model: Mapping[str, Any], planned: Mapping[str, Any]) -> list[str]:
    """Series, samples, hops, tiers, memory; each beside its limit."""
    held = model["budget"]["held"]
    lines = [
        (
            f"The capacity plan at {planned['level']}: {planned['series']} series,"
            f" {planned['samples_per_second']:g} samples/s, {_day(planned)} a day in the finest tier."
        ),
        "  (held against sideband_budget)" if held else "  (no sideband_budget: nothing is refused)",
        "",
        "Nodes, each:",
    ]
    rows = [("class", "count", "series", "samples/s", "sends", "limit", "CPU", "limit", "memory", "limit")]
    for one in planned["nodes"]:
        limits = one["limits"]
        rows.append(
            (
                one["name"],
                str(one["count"]),
                str(one["series"]),
                f"{one['samples_per_second']:g}",
                bits(one["bytes_per_second"]),
                _limit(limits["bytes_per_second"], bits),
                f"{one['cpu_percent']:g} %",
                _limit(limits["cpu_percent"], "{:g} %".format),
                size(one["memory_bytes"]),
                _limit(limits["memory_bytes"], size),
            )
        )
    lines += [*_table(rows), "", "Hops, the busiest sender of each:"]
    hops = [("flow", "from", "sends", "guaranteed")]
    hops += [
        (hop["flow"], hop["host"], bits(hop["bytes_per_second"]), bits(hop["limit_bytes_per_second"]))
        for hop in planned["hops"]
    ]
    lines += [*_table(hops), "", "Tiers, on disk when full:"]
    tiers = [("tier", "engine", "series", "samples/s", "bytes/sample", "retention", "takes", "limit")]
    tiers += [
        (
            tier["name"],
            tier["engine"],
            str(tier["series"]),
            f"{tier['samples_per_second']:g}",
            f"{tier['bytes_per_sample']:g}",
            tier["retention"],
            size(tier["bytes"]),
            size(tier["limit_bytes"]),
        )
        for tier in planned["tiers"]
    ]
    lines += [*_table(tiers), "", "Memory of a host:"]
    memory = [("role", "takes", "limit")]
    memory += [
        (one["word"], size(one["bytes"]), _limit(one["limit_bytes"], size)) for one in planned["memory"]
    ]
    lines += [*_table(memory), "", "Figures, and where they come from:"]
    lines += _table((f"{figure.value:,.10g}", figure.unit, figure.source) for figure in FIGURES.values())
    return lines + ["  over: " + str(error) for error in excess(model, planned)]


def _day(planned: Mapping[str, Any]) -> str:
    finest = planned["tiers"][0]
    return size(planned["samples_per_second"] * 86400 * finest["bytes_per_sample"])


def _limit(limit: float | None, spell: Callable[[float], str]) -> str:
    return "-" if limit is None else spell(limit)


def _difference(planned: Mapping[str, Any], deployed: Mapping[str, Any]) -> list[str]:
    """What a rollout of this contract would change; every changed line of the ladder with its price (A3)."""
    if "plan" not in deployed:
        return [
            "Nothing is recorded as deployed; the first complete run of playbooks/site.yml writes it down."
        ]
    was = deployed["plan"]
    rows = [("", "deployed", "now", "difference")]
    for key, spell in (("series", "{:g}".format), ("samples_per_second", "{:g}".format)):
        rows += _changed(key.replace("_per_second", "/s"), was[key], planned[key], spell)
    tiers = {tier["name"]: tier["bytes"] for tier in planned["tiers"]}
    before = {tier["name"]: tier["bytes"] for tier in was["tiers"]}
    for name in dict.fromkeys([*before, *tiers]):
        rows += _changed(f"tier {name}", before.get(name, 0), tiers.get(name, 0), size)
    for hop in planned["hops"]:
        old = next((h["bytes_per_second"] for h in was["hops"] if h["flow"] == hop["flow"]), 0)
        rows += _changed(f"hop {hop['flow']}", old, hop["bytes_per_second"], bits)
    for name in dict.fromkeys([*was["metrics"], *planned["metrics"]]):
        old, new = (
            side.get(name, {}).get("samples_per_second", 0) for side in (was["metrics"], planned["metrics"])
        )
        rows += _changed(name, old, new, "{:g} samples/s".format)
    if len(rows) == 1:
        return ["Against what is deployed: no difference."]
    return ["Against what is deployed:", *_table(rows)]


def _changed(
    name: str, old: float, new: float, spell: Callable[[float], str]
) -> list[tuple[str, str, str, str]]:
    if old == new:
        return []
    return [(name, spell(old), spell(new), ("+" if new > old else "-") + spell(abs(new - old)))]
