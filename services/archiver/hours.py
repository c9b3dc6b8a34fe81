"""GPU-hours and their cost by tenant and quarter, of all archived experiments (X4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.archiver.compare import cost
from services.archiver.config import Config


def rows(archived: Iterable[Mapping[str, Any]], config: Config, quarter: str = "") -> list[dict[str, Any]]:
    """By quarter and tenant: experiments, GPU-hours, cost (None where a price is missing)."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for about in archived:
        price = cost(about, config)
        whole = float(sum(about["gpu_seconds"].values()))
        for name, seconds in about["gpu_seconds"].items():
            if quarter and name != quarter:
                continue
            key = (str(name), str(about["tenant"]))
            row = found.setdefault(
                key, {"quarter": key[0], "tenant": key[1], "experiments": 0, "gpu_hours": 0.0, "cost": 0.0}
            )
            row["experiments"] += 1
            row["gpu_hours"] += seconds / 3600
            if price is None or row["cost"] is None:
                row["cost"] = None
            elif whole:
                row["cost"] += price * seconds / whole
    return [found[key] for key in sorted(found)]


def text(listed: list[dict[str, Any]], currency: str) -> str:
    if not listed:
        return "no GPU-hours are archived\n"
    lines = [f"{'quarter':8} {'tenant':20} {'experiments':>11} {'GPU-hours':>14} {'cost':>16}"]
    for row in listed:
        money = "-" if row["cost"] is None else f"{row['cost']:,.2f} {currency}".rstrip()
        lines.append(
            f"{row['quarter']:8} {row['tenant']:20} {row['experiments']:>11,} "
            f"{row['gpu_hours']:>14,.2f} {money:>16}"
        )
    return "\n".join(lines) + "\n"
