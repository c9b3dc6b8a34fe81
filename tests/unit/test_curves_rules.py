"""Every rule file is its own test; rules that cannot work are refused when the archive is built (C11, L2)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from curves_kit import RULES
from hypothesis import given, settings
from hypothesis import strategies as st

from services import rulebook
from services.curves import record
from services.curves.rules import Reading

SAMPLES = [
    pytest.param(sample, id=f"{path.stem}-{number}")
    for path in sorted(rulebook.FOLDER.glob("*.yml"))
    for number, sample in enumerate(rulebook.read(path)["samples"], 1)
]


def whole(message: str, cuts: tuple[int, ...] = ()) -> record.Record:
    return record.Record(1, "node1", "1", "a", "f", "s", 100, cuts, message)


def read(message: str) -> Reading:
    found = list(record.lines(whole(message)))
    assert len(found) == 1
    return RULES.read(found[0])


def same(one: dict[str, float], other: dict[str, float]) -> bool:
    return set(one) == set(other) and all(
        (math.isnan(one[key]) and math.isnan(other[key])) or math.isclose(one[key], other[key], rel_tol=1e-9)
        if not math.isinf(one[key])
        else one[key] == other[key]
        for key in one
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_line_yields_what_its_rule_file_says(sample: dict[str, Any]) -> None:
    reading = read(sample["line"])
    assert same(reading.values, {key: float(value) for key, value in sample.get("values", {}).items()}), (
        reading
    )
    assert reading.step == sample.get("step")
    assert list(reading.events) == sample.get("events", [])
    assert list(reading.shown) == sample.get("shown", [])


def test_no_line_costs_much_time() -> None:
    """Whatever a user prints is tried against every rule: none may take its time with it."""
    words = ["iteration 1/2 | ", "loss ", "'epoch': {", "Epoch 1: 10%|", "step 1 ", "time ", "1",
             "1.", "e1", " ", "data ", "val/", "NCCL ", "[", "tokens/s ", "batch-generator ", ".", "nan",
             "validation loss ", "Epoch: [1][ 1/2]", "samplespersec global_step=1", "steps: 1 iter time ",
             "tensor("]  # fmt: skip
    slowest = 0.0
    for first in words:
        for second in words:
            text = "step 1 loss epoch iteration " + first + second * (record.TEXT_BYTES // len(second))
            started = time.process_time()
            read(text)
            slowest = max(slowest, time.process_time() - started)
    assert slowest < 0.1


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(list("\r\n\x1b[m0123#015 loss=step'{}epoch:,"))).map("".join)
)
@settings(max_examples=300, deadline=None)
def test_no_text_is_too_odd(message: str) -> None:
    for line in record.lines(whole(message)):
        RULES.read(line)


# -- rules that cannot work -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("{needle: a, line: '(', event: a}", "rule 1: line: missing \\)"),
        ("{needle: A, line: a, event: a}", "the needle is sought in lower case"),
        ("{needle: a, line: a}", "either take or event is needed"),
        ("{needle: a, line: a, event: Bad kind}", "an event is lower case letters"),
        ("{needle: a, line: a, take: [{quantity: speed, pattern: '{number}'}]}", "quantities are loss"),
        ("{needle: a, line: a, take: [{quantity: loss, pattern: 'x'}]}", "{number} is missing"),
        (
            "{needle: a, line: a, take: [{quantity: validation, pattern: '{number}'}]}",
            "a name or a group name",
        ),
        (
            "{needle: a, line: a, bar: x, take: [{quantity: loss, pattern: '{number}'}]}",
            "bar has no group step",
        ),
        ("{needle: a, lines: a, event: a}", "needle and line needed"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_by_place_and_reason(
    tmp_path: Path, rule: str, reason: str
) -> None:
    path = tmp_path / "odd.yml"
    path.write_text(f"framework: odd\nrules:\n  - {rule}\nsamples: [{{line: a}}]\n")
    with pytest.raises(rulebook.BadRule, match=reason) as caught:
        rulebook.read(path)
    assert "odd.yml" in str(caught.value)


def test_a_rule_file_without_samples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.yml").write_text("framework: odd\nrules: [{needle: a, line: a, event: a}]\n")
    with pytest.raises(rulebook.BadRule, match="rules and samples are both needed"):
        rulebook.compiled(tmp_path)


def test_frameworks_come_before_the_plain_rules() -> None:
    order = [rule["framework"] for rule in rulebook.compiled()]
    assert order[-1] == "plain"
    assert {"megatron", "deepspeed", "hf_trainer", "lightning", "nccl"} <= set(order)


# -- what a terminal would have shown ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "step", "loss"),
    [
        ("\x1b[32mstep 5\x1b[0m \x1b[1mloss\x1b[0m 2.5", 5, 2.5),
        ("step 4 loss 9\rstep 5 loss 2.5", 5, 2.5),
        ("step 4 loss 9\rstep 5 loss 2.5\r", 5, 2.5),
        ("step 5 loss 2.5 \ufffd\ufffd", 5, 2.5),
        ("x" * 20000 + " step 5 loss 2.5", 5, 2.5),
        ("[rank3]: step 5 loss 2.5", 5, 2.5),
    ],
)
def test_colours_bars_and_broken_text_are_looked_through(message: str, step: int, loss: float) -> None:
    reading = read(message)
    assert (reading.step, reading.values["loss"]) == (step, loss)


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank3]: a", 3),
        ("[default0]:a", 0),
        ("[1,12]<stdout>:a", 12),
        ("3: loss 1", None),
        ("[INFO] a", None),
    ],
)
def test_a_line_may_name_its_rank(text: str, rank: int | None) -> None:
    assert next(record.lines(whole(text))).rank == rank


def test_the_lines_of_a_record_are_told_apart() -> None:
    found = list(record.lines(whole("loss=1\n\nloss=1\nTraceback")))
    assert [line.text for line in found] == ["loss=1", "loss=1", "Traceback"]
    assert len({line.key for line in found}) == 3


def test_a_line_is_the_same_however_it_was_joined() -> None:
    """Case 77: read again after a kill, what was one record may be two, and the other way round."""
    together = list(record.lines(whole("loss=1\nTraceback", (7, 10))))
    alone = list(record.lines(dataclasses.replace(whole("Traceback", (10,)), offset=107)))
    assert together[1].key == alone[0].key


# -- records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-01-02T03:04:05.678901+00:00", 1767323045678901),
        ("2026-01-02T03:04:05.678901Z", 1767323045678901),
        ("2026-01-02T11:04:05.678901+08:00", 1767323045678901),
        ("2026-01-01T21:34:05.678901-05:30", 1767323045678901),
        ("2026-01-02T03:04:05+00:00", 1767323045000000),
        ("2026-12-31T23:59:60.5Z", 1798761599500000),
    ],
)
def test_times_are_read_to_the_microsecond_in_any_zone(text: str, microseconds: int) -> None:
    assert record.microseconds(text) == microseconds


@pytest.mark.parametrize(
    "text", ["", "Dec 31 23:59:59", "2026-02-30T00:00:00Z", "2026-01-02T03:04:05", "0000-01-01T00:00:00Z"]
)
def test_a_time_that_says_no_year_or_zone_is_refused(text: str) -> None:
    """Case 80."""
    with pytest.raises(record.Malformed, match="time"):
        record.microseconds(text)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
@settings(max_examples=300, deadline=None)
def test_no_bytes_are_too_odd_for_a_record(raw: bytes) -> None:
    with contextlib.suppress(record.Malformed):
        record.parse(raw)


def test_broken_utf8_survives() -> None:
    raw = b'n {"time":"2026-01-02T03:04:05Z","job":"7","stream":"s","offset":0,'
    raw += b'"message":"\xff\xfe step 5 loss 2.5"}'
    found = record.parse(raw)
    assert found is not None
    assert (found.job, found.tenant) == ("7", "")
    assert read(found.message).values == {"loss": 2.5}


def test_a_record_of_no_job_is_nobody_s_curve() -> None:
    assert record.parse(b'n {"time":"x","job":"","message":"loss=1"}') is None


def test_a_label_that_is_too_long_is_refused() -> None:
    value = {"time": "x", "job": "j" * 200, "stream": "s", "offset": 0, "message": "m"}
    with pytest.raises(record.Malformed, match="label"):
        record.parse(b"n " + json.dumps(value).encode())


@pytest.mark.parametrize("raw", [b'{"job":"1"}', b"n [1]", b"n", b'n {"job":"1","message":"m"}'])
def test_a_record_without_a_node_or_a_place_is_none(raw: bytes) -> None:
    with pytest.raises(record.Malformed, match="malformed"):
        record.parse(raw)
