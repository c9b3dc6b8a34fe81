"""Two experiments side by side: MFU, throughput, loss, from their files alone (X4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from services.archiver import table
from services.archiver.config import Config

_POINTS = 600  # of one curve in a plot; more than a screen shows
_THROUGHPUT = ("sideband_train_tokens_per_second", "sideband_train_samples_per_second")


@dataclass(frozen=True)
class Curve:
    """(step, lowest, mean, highest) of each bucket of steps."""

    points: Sequence[tuple[float, float, float, float]]


@dataclass(frozen=True)
class Side:
    """One experiment: its metadata, its figures by name, its curves by quantity."""

    name: str
    about: Mapping[str, Any]
    figures: Mapping[str, Any]
    curves: Mapping[str, Curve]


def metadata(path: Path) -> dict[str, Any]:
    """As the file has it: texts, and JSON where it is no text."""
    found: dict[str, Any] = {}
    texts = ("experiment", "tenant", "job", "repository", "commit", "start", "end", "tier")
    for key, text in table.about(path).items():
        found[key] = text if key in texts else json.loads(text)
    return found


def read(path: Path, config: Config) -> Side:
    about = metadata(path)
    connection = table.connect(config.memory_bytes)
    try:
        connection.execute(
            "CREATE TABLE curve AS SELECT metric, moment, step, value FROM ("
            " SELECT metric, epoch_ms(time) AS moment, step, value FROM read_parquet($path)"
            " WHERE metric >= 'sideband_train_' AND metric < 'sideband_train`')",
            {"path": str(path)},
        )
        connection.execute(
            "CREATE TABLE busy AS SELECT metric, sum(value) AS value FROM read_parquet($path)"
            " WHERE metric LIKE 'job:DCGM_FI_DEV_GPU_UTIL:%_samples' GROUP BY metric",
            {"path": str(path)},
        )
        throughput = next((name for name in _THROUGHPUT if _count(connection, name)), "")
        scale = _mfu_scale(about, config) if throughput == _THROUGHPUT[0] else None
        figures = _figures(connection, about, throughput, scale, config)
        curves = {
            "loss": _curve(connection, table.LOSS, 1.0),
            "throughput": _curve(connection, throughput, 1.0),
        }
        if scale is not None:
            curves["mfu"] = _curve(connection, throughput, scale)
    finally:
        connection.close()
    return Side(str(about["experiment"]), about, figures, curves)


def _mfu_scale(about: Mapping[str, Any], config: Config) -> float | None:
    """MFU of one token a second: operations of a token over what all GPUs could do (Chowdhery et al.,
    arXiv:2204.02311, appendix B). None where the model's size or a GPU's peak is not known."""
    flops = about.get("flops_per_token")
    peaks = [(config.peak_flops.get(model), count) for model, count in about["gpus"].items()]
    if flops is None or not peaks or any(not peak for peak, _ in peaks):
        return None
    whole = float(sum(float(peak) * count for peak, count in peaks if peak))
    return float(flops) / whole


def _count(connection: duckdb.DuckDBPyConnection, metric: str) -> int:
    row = connection.execute("SELECT count(value) FROM curve WHERE metric = ?", [metric]).fetchone()
    return int(row[0]) if row else 0


def _one(connection: duckdb.DuckDBPyConnection, query: str, **values: Any) -> Any:
    row = connection.execute(query, values).fetchone()
    return row[0] if row else None


def _figures(
    connection: duckdb.DuckDBPyConnection,
    about: Mapping[str, Any],
    throughput: str,
    scale: float | None,
    config: Config,
) -> dict[str, Any]:
    logged = about.get("steps") or {}
    rate = _one(connection, "SELECT median(value) FROM curve WHERE metric = $metric", metric=throughput)
    loss = (
        "SELECT {} FROM (SELECT step, value FROM curve WHERE metric = $metric AND {} ORDER BY moment DESC {})"
    )
    of_loss = {"metric": table.LOSS}
    seconds = float(sum(about["gpu_seconds"].values()))
    return {
        "steps": logged.get("logged"),
        "last_step": logged.get("last"),
        "steps_missing": logged.get("missing"),
        "steps_repeated": logged.get("repeated"),
        "loss_final": _one(connection, loss.format("avg(value)", "isfinite(value)", "LIMIT 10"), **of_loss),
        "loss_lowest": _one(connection, loss.format("min(value)", "isfinite(value)", ""), **of_loss),
        "loss_not_finite": _one(connection, loss.format("count(*)", "NOT isfinite(value)", ""), **of_loss),
        "throughput": rate,
        "throughput_unit": throughput.removeprefix("sideband_train_").replace("_per_second", "/s") or None,
        "step_seconds": _one(
            connection, "SELECT median(value) FROM curve WHERE metric = 'sideband_train_step_seconds'"
        ),
        "mfu": rate * scale if rate is not None and scale is not None else None,
        "gpu_utilisation": _one(
            connection,
            "SELECT sum(value) FILTER (metric LIKE '%sum_samples')"
            " / nullif(sum(value) FILTER (metric LIKE '%count_samples'), 0) FROM busy",
        ),
        "gpus": sum(about["gpus"].values()) or None,
        "gpu_hours": seconds / 3600 if about["gpu_seconds"] else None,
        "cost": cost(about, config),
        "gaps": len(about["gaps"]),
    }


def cost(about: Mapping[str, Any], config: Config) -> float | None:
    """GPU-hours times their price, in the site's currency; None where no price is known."""
    prices = config.price_per_gpu_hour
    count = int(sum(about["gpus"].values()))
    by_model = [(prices.get(model, prices.get("default")), number) for model, number in about["gpus"].items()]
    if not count or any(price is None for price, _ in by_model):
        return None
    mean = sum(float(price) * number for price, number in by_model if price is not None) / count
    return float(float(sum(about["gpu_seconds"].values())) / 3600 * mean)


def _curve(connection: duckdb.DuckDBPyConnection, metric: str, scale: float) -> Curve:
    rows = connection.execute(
        """
        WITH own AS (SELECT step, value * $scale AS value FROM curve
                     WHERE metric = $metric AND isfinite(value) AND step IS NOT NULL),
        ends AS (SELECT min(step) AS first, greatest(max(step) - min(step) + 1, 1) AS width FROM own)
        SELECT avg(step), min(value), avg(value), max(value)
        FROM own, ends GROUP BY ((step - first) * $points) // greatest(width, $points) ORDER BY 1
        """,
        {"metric": metric, "scale": scale, "points": _POINTS},
    ).fetchall()
    return Curve([(float(step), float(low), float(mean), float(high)) for step, low, mean, high in rows])


_ROWS: Sequence[tuple[str, str, str]] = (
    # figure, what a reader calls it, how it is written
    ("mfu", "MFU", ".1%"),
    ("throughput", "throughput ({unit})", ",.1f"),
    ("step_seconds", "step time (s)", ",.3f"),
    ("loss_final", "loss, mean of the last 10", ",.4f"),
    ("loss_lowest", "loss, lowest", ",.4f"),
    ("loss_not_finite", "loss, not finite", ",d"),
    ("steps", "steps logged", ",d"),
    ("last_step", "last step", ",d"),
    ("steps_missing", "steps missing", ",d"),
    ("steps_repeated", "steps there twice", ",d"),
    ("gpu_utilisation", "GPU utilisation (%)", ",.1f"),
    ("gpus", "GPUs", ",d"),
    ("gpu_hours", "GPU-hours", ",.2f"),
    ("cost", "cost ({currency})", ",.2f"),
    ("gaps", "gaps in the data", ",d"),
)


def text(left: Side, right: Side, currency: str) -> str:
    """The two as a table; the last column says what the second is of the first."""
    rows: list[tuple[str, ...]] = [("", left.name, right.name, "")]
    for key in ("tenant", "job", "start", "end"):
        rows.append((key, str(left.about[key]), str(right.about[key]), ""))
    rows.append(("commit", str(left.about["commit"])[:12], str(right.about["commit"])[:12], ""))
    for key, title, form in _ROWS:
        values = [side.figures[key] for side in (left, right)]
        if values == [None, None] and key in ("cost",):
            continue
        units = {str(side.figures["throughput_unit"] or "") for side in (left, right)} - {""}
        title = title.format(unit=" or ".join(sorted(units)) or "none", currency=currency or "no currency")
        written = ["-" if value is None else format(value, form) for value in values]
        rows.append((title, *written, _ratio(values, len(units) > 1 and key == "throughput")))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
    notes = [f"{side.name}: no MFU ({why})" for side in (left, right) if (why := why_no_mfu(side))]
    return "\n".join([*lines, *notes]) + "\n"


def why_no_mfu(side: Side) -> str:
    if side.figures["mfu"] is not None:
        return ""
    if side.about.get("flops_per_token") is None:
        return "its tag has no Sideband-Parameters"
    if not side.about["gpus"]:
        return "no GPU of it is known"
    if side.figures["throughput_unit"] != "tokens/s":
        return "no tokens a second were logged"
    return f"the peak of {', '.join(side.about['gpus'])} is not in sideband_archive_peak_teraflops"


def _ratio(values: Sequence[Any], unlike: bool) -> str:
    if unlike or any(value is None for value in values):
        return ""
    if values[0] == values[1]:
        return "same"
    return f"x {values[1] / values[0]:.3f}" if values[0] else ""


def record(side: Side) -> dict[str, Any]:
    """For programs."""
    return {"about": dict(side.about), "figures": dict(side.figures)}
