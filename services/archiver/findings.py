"""What a file says of itself: gaps, sampling levels over time, steps, GPUs and their hours (X3, X4).

All of it follows from the samples and the span alone, so that the same data give the same bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb

from services.archiver.config import Tier
from services.archiver.gateway import Gateway, either, pieces, selector
from services.archiver.span import Span
from services.archiver.table import STEP

_LEVEL_POINTS = 10_000
_NODES_AT_ONCE = 100
# One series a minute, made by the region; the metric's own name carries the interval behind a colon.
_REGULAR = "%:%"
_BY_GPU = "DCGM_FI_DEV_GPU_UTIL:%"
_GPUS = "sideband_job_gpus:%max"


def utc(seconds: float) -> str:
    """To the millisecond, as every reader takes it: 2026-07-01T12:00:00.000Z."""
    moment = datetime.datetime.fromtimestamp(round(seconds * 1000) / 1000, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def gaps(connection: duckdb.DuckDBPyConnection, span: Span, resolution: int) -> list[dict[str, Any]]:
    """Spans without a sample, with the metrics that have none in it.

    Made every minute, a metric is missing where two are not; of a curve a gap is three times its usual
    spacing, and at least two of the tier's.
    """
    rows = connection.execute(
        """
        WITH moments AS (
            SELECT DISTINCT metric, moment FROM archive WHERE metric LIKE $regular OR metric = $step
        ), spaced AS (
            SELECT metric, moment, lag(moment) OVER (PARTITION BY metric ORDER BY moment) AS before
            FROM moments
        ), usual AS (
            SELECT metric, median(moment - before) AS width, min(moment) AS first, max(moment) AS last
            FROM spaced GROUP BY metric HAVING count(*) >= 3
        ), missing AS (
            SELECT metric, before AS begins, moment AS ends, width FROM spaced JOIN usual USING (metric)
            UNION ALL SELECT metric, $start, first, width FROM usual WHERE metric LIKE $regular
            UNION ALL SELECT metric, last, $end, width FROM usual WHERE metric LIKE $regular
        )
        SELECT begins, ends, list(DISTINCT metric ORDER BY metric) FROM missing
        WHERE ends - begins > greatest(
            CASE WHEN metric LIKE $regular THEN 2 ELSE 3 END * width, 2 * $resolution)
        GROUP BY begins, ends ORDER BY begins, ends
        """,
        {
            "regular": _REGULAR, "step": STEP, "resolution": resolution * 1000,
            "start": round(span.start * 1000), "end": round(span.end * 1000),
        },
    ).fetchall()  # fmt: skip
    return [
        {"from": utc(begins / 1000), "to": utc(ends / 1000), "metrics": list(metrics)}
        for begins, ends, metrics in rows
    ]


def steps(connection: duckdb.DuckDBPyConnection) -> dict[str, int] | None:
    """The steps that were logged; how many of the usual stride are missing, how many are there again."""
    row = connection.execute(
        """
        WITH logged AS (SELECT step, count(*) AS times FROM archive WHERE metric = $step GROUP BY step),
        jumps AS (SELECT step - lag(step) OVER (ORDER BY step) AS jump FROM logged),
        usual AS (SELECT mode(jump ORDER BY jump) AS stride FROM jumps)
        SELECT (SELECT count(*) FROM logged), (SELECT min(step) FROM logged), (SELECT max(step) FROM logged),
               (SELECT stride FROM usual), (SELECT sum(times - 1)::BIGINT FROM logged),
               (SELECT sum(jump // stride - 1)::BIGINT FROM jumps, usual WHERE jump > stride)
        """,
        {"step": STEP},
    ).fetchone()
    assert row is not None
    logged, first, last, stride, again, missing = row
    if not logged:
        return None
    return {
        "logged": logged, "first": first, "last": last, "stride": stride or 0, "repeated": again,
        "missing": missing or 0,
    }  # fmt: skip


def gpus(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """GPUs that computed on the job, by model."""
    rows = connection.execute(
        """
        SELECT coalesce(labels['modelName'], ''),
               count(DISTINCT coalesce(labels['UUID'], concat(node, '/', gpu)))
        FROM archive WHERE metric LIKE $metric AND gpu IS NOT NULL GROUP BY 1 ORDER BY 1
        """,
        {"metric": _BY_GPU},
    ).fetchall()
    return {str(model): int(count) for model, count in rows}


def gpu_seconds(connection: duckdb.DuckDBPyConnection, span: Span, resolution: int) -> dict[str, float]:
    """GPU-seconds by quarter (UTC). A sample tells of the time since the one before it, the first of one
    resolution; what was silent meanwhile still held its GPUs. Clipped to the span."""
    rows = connection.execute(
        """
        WITH told AS (
            SELECT node, value, moment, coalesce(
                lag(moment) OVER (PARTITION BY node ORDER BY moment), moment - $resolution) AS before
            FROM (SELECT node, moment, max(value) AS value FROM archive
                  WHERE metric LIKE $metric GROUP BY ALL)
        )
        SELECT greatest(before, $start), least(moment, $end), value FROM told
        WHERE value > 0 AND least(moment, $end) > greatest(before, $start)
        """,
        {
            "metric": _GPUS, "resolution": resolution * 1000,
            "start": round(span.start * 1000), "end": round(span.end * 1000),
        },
    ).fetchall()  # fmt: skip
    found: dict[str, float] = {}
    for begins, ends, count in rows:
        for quarter, seconds in quarters(begins / 1000, ends / 1000):
            found[quarter] = found.get(quarter, 0.0) + seconds * count
    return {quarter: round(seconds, 3) for quarter, seconds in sorted(found.items())}


def quarters(start: float, end: float) -> Iterable[tuple[str, float]]:
    """A span as its parts by quarter (UTC): ("2026Q3", seconds)."""
    while start < end:
        moment = datetime.datetime.fromtimestamp(start, datetime.timezone.utc)
        number = (moment.month - 1) // 3
        year, month = (moment.year + 1, 1) if number == 3 else (moment.year, number * 3 + 4)
        border = datetime.datetime(year, month, 1, tzinfo=datetime.timezone.utc).timestamp()
        yield f"{moment.year}Q{number + 1}", min(end, border) - start
        start = border


def levels(gateway: Gateway, nodes: Sequence[str], span: Span, tier: Tier) -> list[dict[str, Any]]:
    """How many of the job's nodes were at which sampling level, from when to when."""
    step = tier.resolution_seconds
    while (span.end - span.start) / step > _LEVEL_POINTS:
        step += tier.resolution_seconds
    begin, end = -(-span.start // step) * step, -(-span.end // step) * step
    seen: dict[float, dict[str, int]] = {}
    for index in range(0, len(nodes), _NODES_AT_ONCE):
        some = either(list(nodes[index : index + _NODES_AT_ONCE]))
        inside = selector(__name___re="sideband_policy_level.*", node_re=some)
        query = f"count by (level) (last_over_time({inside}[{step}s]))"
        for first, last in pieces(begin, end + step, 30 * 86_400 // step * step):
            for row in gateway.range(query, first, last - step, step, tier.name):
                for moment, count in row["values"]:
                    at = seen.setdefault(float(moment), {})
                    level = row["metric"].get("level", "")
                    at[level] = at.get(level, 0) + int(float(count))
    return runs(seen, step)


def runs(seen: dict[float, dict[str, int]], step: int) -> list[dict[str, Any]]:
    """Neighbouring moments that say the same, as one. A moment tells of the step before it."""
    found: list[dict[str, Any]] = []
    until = 0.0
    for moment, counts in sorted(seen.items()):
        if found and moment - step == until and found[-1]["nodes"] == counts:
            found[-1]["to"] = utc(moment)
        else:
            found.append({"from": utc(moment - step), "to": utc(moment), "nodes": counts})
        until = moment
    return found
