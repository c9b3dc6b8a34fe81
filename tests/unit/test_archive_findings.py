"""What a file says of itself: gaps, levels over time, steps, GPU-hours by quarter (X3, X4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import archive_kit as kit
import duckdb
import pytest

from services.archiver import findings
from services.archiver.findings import quarters, runs, utc
from services.archiver.span import Span
from services.archiver.table import Writer

S = kit.START


@contextmanager
def archive(lines: Sequence[str], directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    writer = Writer(directory, 64 << 20)
    for labels, group in itertools.groupby(kit.parsed(lines), key=lambda row: row[0]):
        writer.add(labels, [(moment, value) for _, moment, value in group])
    writer.load("run-42")
    yield writer.connection
    writer.close()


def test_a_whole_run_has_no_gap(tmp_path: Path) -> None:
    with archive(kit.job_series(), tmp_path) as connection:
        assert findings.gaps(connection, Span(S, S + 601.5, True), 60) == []
        assert findings.steps(connection) == {
            "logged": 40, "first": 1, "last": 40, "stride": 1, "repeated": 0, "missing": 0,
        }  # fmt: skip


def test_an_outage_is_one_gap_with_its_metrics(tmp_path: Path) -> None:
    with archive(kit.job_series(outage=range(4, 7)), tmp_path) as connection:
        found = findings.gaps(connection, Span(S, S + 601.5, True), 60)
    assert [(gap["from"], gap["to"]) for gap in found] == [(utc(S + 180), utc(S + 420))]
    assert "DCGM_FI_DEV_GPU_UTIL:1m_sum_samples" in found[0]["metrics"]
    assert "sideband_train_step" not in found[0]["metrics"]  # the curve came later, with its own times


def test_what_is_missing_at_either_end_is_a_gap_too(tmp_path: Path) -> None:
    with archive(kit.job_series(), tmp_path) as connection:
        found = findings.gaps(connection, Span(S - 600, S + 1200, True), 60)
    assert [(gap["from"], gap["to"]) for gap in found] == [
        (utc(S - 600), utc(S + 60)),
        (utc(S + 660), utc(S + 1200)),
    ]


def test_a_curve_that_pauses_has_a_gap_and_missing_steps_are_counted(tmp_path: Path) -> None:
    lines = [
        line
        for line in kit.job_series()
        if not any(f" {S * 1000 + step * 15_000 + 123}" in line for step in range(10, 30))
    ]
    again = [
        line.replace(str(S * 1000 + 15_123), str(S * 1000 + 15_200))
        for line in lines
        if "_step{" in line and line.split()[1] == "1"
    ]
    with archive(lines + again, tmp_path) as connection:
        steps = findings.steps(connection)
        found = findings.gaps(connection, Span(S, S + 601.5, True), 60)
    assert steps is not None
    assert (steps["logged"], steps["missing"], steps["repeated"]) == (20, 20, 1)
    assert [gap["metrics"] for gap in found] == [["sideband_train_step"]]


def test_a_job_without_curves_has_no_steps(tmp_path: Path) -> None:
    with archive([line for line in kit.job_series() if "train" not in line], tmp_path) as connection:
        assert findings.steps(connection) is None


def test_gpus_by_model_and_their_seconds(tmp_path: Path) -> None:
    with archive(kit.job_series(), tmp_path) as connection:
        assert findings.gpus(connection) == {kit.MODEL: 4}
        # Two nodes with two each, from the start to the end, to the half second.
        assert findings.gpu_seconds(connection, Span(S, S + 601.5, True), 60) == {"2026Q2": 4 * 601.5}
        # Telemetry was out for a while; the job was not.
        assert findings.gpu_seconds(connection, Span(S, S + 300, True), 60) == {"2026Q2": 4 * 300.0}
    with archive(kit.job_series(outage=range(4, 7)), tmp_path) as connection:
        assert findings.gpu_seconds(connection, Span(S, S + 601.5, True), 60) == {"2026Q2": 4 * 601.5}


def test_gpu_seconds_fall_into_the_quarter_in_which_they_were_spent(tmp_path: Path) -> None:
    new_year = 1_798_761_600  # 2027-01-01T00:00:00Z
    lines = kit.job_series(start=new_year - 300, nodes=["node1"], gpus=8)
    with archive(lines, tmp_path) as connection:
        found = findings.gpu_seconds(connection, Span(new_year - 300, new_year + 301.5, True), 60)
    assert found == {"2026Q4": 8 * 300.0, "2027Q1": 8 * 301.5}


def test_quarters_cover_a_span_and_share_nothing() -> None:
    start, end = 1_767_225_600.0, 1_767_225_600.0 + 400 * 86_400
    found = list(quarters(start, end))
    assert [name for name, _ in found] == ["2026Q1", "2026Q2", "2026Q3", "2026Q4", "2027Q1"]
    assert math.isclose(sum(seconds for _, seconds in found), end - start)
    assert list(quarters(5.0, 5.0)) == []


def test_levels_are_told_from_when_to_when() -> None:
    seen = {
        S + 60.0: {"full": 2},
        S + 120.0: {"full": 2},
        S + 180.0: {"full": 1, "core": 1},
        S + 360.0: {"core": 2},
    }
    assert runs(seen, 60) == [
        {"from": utc(S), "to": utc(S + 120), "nodes": {"full": 2}},
        {"from": utc(S + 120), "to": utc(S + 180), "nodes": {"full": 1, "core": 1}},
        # Nobody said anything for two minutes: it is not guessed.
        {"from": utc(S + 300), "to": utc(S + 360), "nodes": {"core": 2}},
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1.9996, "1970-01-01T00:00:02.000Z")]
)
def test_times_are_utc_to_the_millisecond(seconds: float, text: str) -> None:
    assert utc(seconds) == text


def test_findings_need_no_series_of_theirs(tmp_path: Path) -> None:
    lines = ['up{job="x",node="n"} 1 1000']
    nothing: list[Any] = []
    with archive(lines, tmp_path) as connection:
        assert findings.gaps(connection, Span(0, 10, True), 60) == nothing
        assert findings.gpus(connection) == {}
        assert findings.gpu_seconds(connection, Span(0, 10, True), 60) == {}
