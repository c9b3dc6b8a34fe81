"""From when to when a job ran, as its own series say: the job process on its nodes knows start and end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.archiver.config import Tier
from services.archiver.experiment import Experiment
from services.archiver.gateway import Gateway, pieces, selector
from services.archiver.problem import Problem

_WINDOW = 28 * 86_400  # with the windows before it, less than the month that the gateway reads at once
_SILENT = 600  # without a sample for so long a job runs no more, whoever did not say so
_LIFE = "sideband_(job|train)_.*"


@dataclass(frozen=True)
class Span:
    start: float
    end: float
    ended: bool  # False: it still runs


def tier_for(tiers: Sequence[Tier], start: float, now: float) -> Tier:
    """The finest that still keeps the start; else the one that keeps longest."""
    return next((tier for tier in tiers if start >= now - tier.retention_seconds), tiers[-1])


def find(gateway: Gateway, experiment: Experiment, tiers: Sequence[Tier], now: float) -> Span:
    """What the tag says counts; the job's series say the rest."""
    if experiment.start is not None and experiment.end is not None:
        return Span(experiment.start, experiment.end, experiment.end < now)
    tier = tiers[-1]
    own = {"job": experiment.job, "tenant": experiment.tenant}
    at, rows = _last_window(gateway, own, tier, now)
    if not rows:
        raise Problem(
            f"{experiment.name}: no series of job {experiment.job} of tenant {experiment.tenant} "
            f"in tier {tier.name}",
            "is Sideband-Job of the tag right, and did the job run under this tenant?",
        )
    start = experiment.start if experiment.start is not None else _start(experiment, rows)
    if experiment.end is not None:
        return Span(start, experiment.end, experiment.end < now)
    last = _last(gateway, own, tier, at)
    ended = _highest(gateway, {**own, "__name___re": "sideband_job_ended_timestamp_seconds.*"}, tier, last)
    if ended is not None and start <= ended <= last + tier.resolution_seconds:
        return Span(start, ended, True)
    return Span(start, last, now - last > _SILENT)


def _last_window(
    gateway: Gateway, own: dict[str, str], tier: Tier, now: float
) -> tuple[float, list[dict[str, Any]]]:
    """The latest month in which the job is heard of, and what is said of its start in it."""
    inside = selector(**own, __name___re="sideband_job_info.*")
    life = selector(**own, __name___re=_LIFE)
    for _, end in pieces(0, tier.retention_seconds, _WINDOW):
        at = now - end + _WINDOW if end < tier.retention_seconds else now - end + end % _WINDOW
        if rows := gateway.instant(f"max by (start) (max_over_time({inside}[{_WINDOW}s]))", at, tier.name):
            return at, rows
        if rows := gateway.instant(f"count(count_over_time({life}[{_WINDOW}s]))", at, tier.name):
            return at, rows
    return now, []


def _start(experiment: Experiment, rows: list[dict[str, Any]]) -> float:
    starts = sorted(int(text) for row in rows if (text := row["metric"].get("start", "")).isdigit())
    if not starts:
        raise Problem(
            f"{experiment.name}: nobody recorded when job {experiment.job} started",
            "say it in the tag: Sideband-Start: 2026-07-01T12:00:00Z",
        )
    # Its processes start within minutes of each other; a start long before is another job of the same name.
    near = [start for start in starts if starts[-1] - start < 86_400]
    return float(near[0])


def _last(gateway: Gateway, own: dict[str, str], tier: Tier, at: float) -> float:
    """The last sample, to the tier's resolution: by the hour first, then within that hour."""
    inside = selector(**own, __name___re=_LIFE)
    begin, end = at - _WINDOW, at
    for step in (3600, tier.resolution_seconds):
        begin = math.floor(begin / step) * step
        query = f"count(count_over_time({inside}[{step}s]))"
        rows = gateway.range(query, begin, math.ceil(end / step) * step, step, tier.name)
        times = [float(moment) for row in rows for moment, _ in row["values"]]
        if not times:
            raise Problem(f"job {own['job']}: its last sample could not be found", retry=True)
        end = max(times)
        begin = end - step
    return end


def _highest(gateway: Gateway, matchers: dict[str, str], tier: Tier, at: float) -> float | None:
    rows = gateway.instant(f"max(max_over_time({selector(**matchers)}[1h]))", at, tier.name)
    return float(rows[0]["value"][1]) if rows else None
