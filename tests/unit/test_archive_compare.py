"""Two experiments side by side, from their files alone; the picture; hours and their price (X4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import archive_kit as kit
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.archiver import compare, findings, hours, plot
from services.archiver.span import Span
from services.archiver.table import Writer

S = kit.START


def file(directory: Path, name: str, lines: Sequence[str], **about: Any) -> Path:
    writer = Writer(directory, 64 << 20)
    for labels, group in itertools.groupby(kit.parsed(lines), key=lambda row: row[0]):
        writer.add(labels, [(moment, value) for _, moment, value in group])
    writer.load(name)
    span = Span(S, S + 601.5, True)
    connection = writer.connection
    said = {
        "experiment": name, "tenant": "alpha", "job": "slurm-77", "repository": "file:///x",
        "commit": "c0ffee" * 6, "start": findings.utc(S), "end": findings.utc(S + 601.5), "tier": "minute",
        "flops_per_token": 4.2e10, "gpus": findings.gpus(connection), "levels": [],
        "gpu_seconds": findings.gpu_seconds(connection, span, 60),
        "steps": findings.steps(connection), "gaps": findings.gaps(connection, span, 60),
    }  # fmt: skip
    writer.write(directory / f"{name}.parquet", {**said, **about})
    writer.close()
    return directory / f"{name}.parquet"


def side(directory: Path, name: str, lines: Sequence[str], **about: Any) -> compare.Side:
    return compare.read(file(directory, name, lines, **about), kit.config(directory))


def test_figures_are_what_was_logged(tmp_path: Path) -> None:
    found = side(
        tmp_path,
        "a",
        kit.job_series(loss=lambda step: math.nan if step == 7 else round(10.0 / (step + 1), 6)),
    )
    figures = found.figures
    assert (figures["steps"], figures["last_step"], figures["steps_missing"], figures["steps_repeated"]) == (
        40,
        40,
        0,
        0,
    )
    assert figures["loss_final"] == pytest.approx(
        sum(round(10.0 / (step + 1), 6) for step in range(31, 41)) / 10
    )
    assert figures["loss_lowest"] == round(10.0 / 41, 6)
    assert figures["loss_not_finite"] == 1
    assert (figures["throughput"], figures["throughput_unit"]) == (50_020.5, "tokens/s")
    # 42 GFLOP a token, of what four GPUs could do.
    assert figures["mfu"] == pytest.approx(50_020.5 * 4.2e10 / (4 * 989e12))
    assert figures["gpu_utilisation"] == 90.0
    assert figures["gpus"] == 4
    assert figures["gpu_hours"] == pytest.approx(4 * 601.5 / 3600)
    assert figures["cost"] == pytest.approx(2.5 * 4 * 601.5 / 3600)
    assert [point[0] for point in found.curves["loss"].points] == [step for step in range(1, 41) if step != 7]


def test_what_is_not_known_is_a_dash_and_says_why(tmp_path: Path) -> None:
    whole = side(tmp_path, "a", kit.job_series())
    bare = side(tmp_path, "b", kit.job_series(), flops_per_token=None)
    text = compare.text(whole, bare, "EUR")
    assert "b: no MFU (its tag has no Sideband-Parameters)" in text
    assert any(line.split() == ["MFU", "53.1%", "-"] for line in text.splitlines())
    none = side(tmp_path, "c", ['up{job="x",node="n"} 1 1000'])
    assert compare.why_no_mfu(none) == "no GPU of it is known"
    other = side(tmp_path, "d", [line.replace(kit.MODEL, "RTX") for line in kit.job_series()])
    assert compare.why_no_mfu(other) == "the peak of RTX is not in sideband_archive_peak_teraflops"
    slow = side(tmp_path, "e", [line for line in kit.job_series() if "tokens" not in line])
    assert compare.why_no_mfu(slow) == "no tokens a second were logged"


def test_a_table_says_what_the_second_is_of_the_first(tmp_path: Path) -> None:
    text = compare.text(
        side(tmp_path, "a", kit.job_series()), side(tmp_path, "b", kit.job_series(tokens=100_000.0)), "EUR"
    )
    assert "x 2.000" in next(line for line in text.splitlines() if line.startswith("throughput (tokens/s)"))
    assert next(line for line in text.splitlines() if line.startswith("steps logged")).endswith("same")


def test_a_picture_shows_both_and_is_sound(tmp_path: Path) -> None:
    left = side(tmp_path, "a<b>", kit.job_series(steps=400))
    right = side(tmp_path, "c", kit.job_series(loss=lambda step: 5.0))
    root = ElementTree.fromstring(plot.svg(left, right))
    names = [element.tag.rpartition("}")[2] for element in root]
    assert names.count("polyline") == 6  # loss, throughput, MFU, of two
    texts = [element.text or "" for element in root if element.tag.endswith("text")]
    assert any(text.startswith("a<b>: alpha, slurm-77, from 2026-") for text in texts)
    assert {"loss", "throughput (tokens/s)", "MFU"} <= set(texts)


def test_a_picture_of_one_point_or_of_nothing_is_drawn(tmp_path: Path) -> None:
    one = side(tmp_path, "a", kit.job_series(steps=1))
    none = side(tmp_path, "b", ['up{job="x",node="n"} 1 1000'])
    assert "<circle" in plot.svg(one, none)
    assert ElementTree.fromstring(plot.svg(none, none)) is not None


@given(low=st.floats(-1e9, 1e9), width=st.floats(1e-6, 1e9), most=st.integers(2, 12))
def test_ticks_are_few_round_and_inside(low: float, width: float, most: int) -> None:
    assume(width > 1e-9 * abs(low))  # what is flatter is drawn with room around it
    found = plot.ticks(low, low + width, most)
    assert len(found) <= most + 2
    slack = 1e-6 * max(1.0, abs(low), width)
    assert all(low - slack <= value <= low + width + slack for value in found)
    assert found == sorted(set(found))


def test_many_steps_become_a_curve_that_hides_no_peak(tmp_path: Path) -> None:
    lines = kit.job_series(steps=3000, loss=lambda step: 100.0 if step == 1777 else 1.0)
    curve = side(tmp_path, "a", [line for line in lines if "train" in line]).curves["loss"]
    assert 500 <= len(curve.points) <= 601
    assert max(high for _, _, _, high in curve.points) == 100.0


ABOUT = {"tenant": "alpha", "gpus": {kit.MODEL: 8}, "gpu_seconds": {"2026Q3": 7200.0, "2026Q4": 3600.0}}


def test_hours_and_cost_by_tenant_and_quarter(tmp_path: Path) -> None:
    config = kit.config(tmp_path)
    listed = hours.rows([ABOUT, ABOUT, {**ABOUT, "tenant": "beta", "gpu_seconds": {"2026Q4": 360.0}}], config)
    assert [
        (row["quarter"], row["tenant"], row["experiments"], row["gpu_hours"], row["cost"]) for row in listed
    ] == [
        ("2026Q3", "alpha", 2, 4.0, 10.0),
        ("2026Q4", "alpha", 2, 2.0, 5.0),
        ("2026Q4", "beta", 1, 0.1, 0.25),
    ]
    text = hours.text(listed, "EUR")
    assert "2026Q3   alpha" in text
    assert "10.00 EUR" in text
    assert [row["tenant"] for row in hours.rows([ABOUT], config, "2026Q3")] == ["alpha"]
    assert hours.text([], "EUR") == "no GPU-hours are archived\n"


def test_a_model_without_a_price_has_no_cost(tmp_path: Path) -> None:
    config = kit.config(tmp_path, price_per_gpu_hour={"another": 1.0})
    listed = hours.rows([ABOUT], config)
    assert [row["cost"] for row in listed] == [None, None]
    assert " - " in hours.text(listed, "EUR") or hours.text(listed, "EUR").rstrip().endswith("-")
