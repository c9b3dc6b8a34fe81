"""The capacity plan that `validate` prints: what a contract costs, before it is rolled out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .price import ROOMY_NODE, SMALL_NODE, WIRE_BYTES_PER_SAMPLE, NodeSize, bytes_per_second, series


def _human(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _size(node: NodeSize) -> str:
    return (
        f"{node.cpus} CPUs, {node.disks} disks, {node.interfaces} interfaces, {node.filesystems} file systems"
    )


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def plan_lines(model: Mapping[str, Any]) -> list[str]:
    """Lines of text: what the site is, then what each level costs a node and the site."""
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
            bytes_per_second(level["metrics"], level["period_seconds"], size)
            + bytes_per_second(always["metrics"], always["period_seconds"], size)
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
        (
            f"  {WIRE_BYTES_PER_SAMPLE} bytes a sample, measured with vmagent over mutual TLS at small"
            " batches;"
        ),
        f"  every level includes the {len(always['metrics'])} series that are always sent.",
    ]
    return lines
