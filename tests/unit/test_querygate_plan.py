"""querygate's plans: what leaves for a store is built from numbers, trees and the contract (Q2, case 68)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from querygate.attempts import EXPRESSIONS, LINES, attempts
from querygate.kit import DAY, configuration

from services.querygate import config as configs
from services.querygate import form, logsql, moments
from services.querygate.plan import Ask, Plan, ask_instant, ask_range, plan_metadata, plan_query
from services.querygate.refusal import Refused

NOW = 1_800_000_000.0
CONFIG = configs.parse(configuration(Path("/nowhere"), {}))
ALPHA, OPS = CONFIG.identities["tenant/alpha"], CONFIG.identities["administrator/ops"]
WALL = (("extra_filters[]", '{tenant="alpha"}'), ("extra_filters[]", '{rack=~"rack1",tenant=""}'))
OURS = {"query", "time", "start", "end", "step", "timeout", "match[]", "limit", "extra_filters[]"}
LOG_OURS = {
    "query",
    "start",
    "end",
    "step",
    "limit",
    "timeout",
    "field",
    "fields_limit",
    "extra_stream_filters",
}


def instant(text: str, **more: Any) -> Plan:
    return plan_query(CONFIG, more.pop("who", ALPHA), Ask(text, NOW, NOW, **more), NOW)


def ranged(text: str, width: float, step: float, **more: Any) -> Plan:
    who = more.pop("who", ALPHA)
    return plan_query(CONFIG, who, Ask(text, NOW - width, NOW, step), NOW, **more)


def refused(text: str, width: float, step: float, **more: Any) -> Refused:
    with pytest.raises(Refused) as problem:
        ranged(text, width, step, **more)
    return problem.value


def assert_said(problem: Refused, *statuses: int) -> None:
    assert problem.status in statuses
    assert len(problem.text) > 10


def assert_ours(plan: Plan, names: set[str], wall: tuple[tuple[str, str], ...]) -> None:
    """Every field is one of ours, once; the wall is the contract's, whole and alone."""
    for fields in (plan.fields, plan.count.fields if plan.count else wall):
        given = [name for name, _ in fields]
        assert set(given) <= names
        single = [name for name in given if name not in ("match[]", "extra_filters[]")]
        assert len(single) == len(set(single))
        assert tuple(field for field in fields if field[0].startswith("extra")) == wall
    for name, value in plan.fields:
        if name in ("time", "start", "end", "step", "limit"):
            assert float(value.rstrip("s")) >= 0
            assert math.isfinite(float(value.rstrip("s")))


FORMS = st.dictionaries(
    st.sampled_from(["query", "time", "start", "end", "step", "timeout", "tier", "extra_filters[]", "limit"]),
    st.one_of(
        st.sampled_from([text for text, _ in EXPRESSIONS]),
        st.sampled_from(["now", "-1h", "0", "1e9", "60", "5m", "minute", "hot", "9" * 14, "-5", "NaN"]),
        st.text(max_size=30),
    ),
    max_size=7,
)  # fmt: skip


@given(FORMS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_given_only_our_form_leaves(
    values: dict[str, str], job: bool, ranges: bool, d5: bool
) -> None:
    known = {"query", "time", "timeout", "tier"}
    if ranges:
        known = {"query", "start", "end", "step", "timeout", "tier"}
        values = {"start": "-1h", "step": "60"} | values
    values = {"query": "gpu_util"} | values
    try:
        read = form.read(urlencode(values).encode(), known)
        ask = ask_range(read, NOW) if ranges else ask_instant(read, NOW)
        plan = plan_query(CONFIG, ALPHA, ask, NOW, degraded=d5, job=job)
    except Refused as problem:
        assert_said(problem, 400, 403, 422)
        return
    assert_ours(plan, OURS, WALL)
    assert plan.source in ("minute", "hour")
    assert not plan.raw


@given(st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_a_text_that_cannot_be_read_goes_behind_the_wall_or_not_at_all(text: str) -> None:
    bound = configs.Bounds(3600, 400, 1000, 4 << 20, 5)
    try:
        plan = plan_query(CONFIG, replace(ALPHA, strict=bound), Ask(text, NOW, NOW), NOW)
    except Refused:
        return
    assert_ours(plan, OURS, WALL)


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_form_is_read_as_known_names_once(pairs: list[tuple[str, str]]) -> None:
    try:
        read = form.read(urlencode(pairs).encode(), {"query", "time"})
    except Refused as problem:
        assert_said(problem, 400)
        return
    assert set(read) <= {"query", "time"}
    assert len(pairs) == len(read)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        form.read(raw, {"query"})
    except Refused as problem:
        assert_said(problem, 400)


@pytest.mark.parametrize(
    ("width", "step", "tier"),
    [(3600, 60, "minute"), (31 * DAY, 3600, "minute"), (32 * DAY, 3600, "hour"), (700 * DAY, 7200, "hour")],
)
def test_the_tier_is_chosen_by_range(width: float, step: float, tier: str) -> None:
    assert ranged("gpu_util", width, step).source == tier


def test_the_tier_is_chosen_by_how_far_back_a_question_reads() -> None:
    assert instant("gpu_util").source == "minute"
    assert instant("gpu_util offset 91d").source == "hour"
    assert instant("gpu_util @ 1700000000").source == "hour"
    assert instant("gpu_util - gpu_util offset 89d").source == "minute"
    assert instant("max_over_time(gpu_util[40d])").source == "hour"
    assert instant("gpu_util", who=OPS).source == "hot"
    assert instant("gpu_util offset 8d", who=OPS).source == "minute"
    assert instant("gpu_util", who=OPS, tier="hour").source == "hour"


def test_an_hourly_tier_looks_back_far_enough() -> None:
    """VictoriaMetrics looks back by `step`: without it, five minutes, and an hourly sample is not found."""
    assert dict(instant("gpu_util", tier="hour").fields)["step"] == "7200"


def test_points_say_which_step_passes() -> None:
    said = refused("gpu_util", 40 * DAY, 15)
    assert said.text.startswith("range 40d at step 15s is 230,401 points, 11,000 may; step 6m would pass")
    assert ranged("gpu_util", 40 * DAY, 360).source == "hour"
    assert "subquery" in refused("max_over_time(gpu_util[30d:10s])", 3600, 60).text
    assert "as a job" in refused("gpu_util", 800 * DAY, 86400, who=job_only()).text


def job_only() -> configs.Identity:
    day = {"minute": replace(ALPHA.bounds["minute"], range_seconds=DAY)}
    wide = {"hour": replace(ALPHA.job_bounds["hour"], range_seconds=900 * DAY)}
    return replace(ALPHA, bounds=day, job_bounds=wide)


def test_a_range_says_how_much_passes() -> None:
    said = refused("gpu_util", 800 * DAY, 86400)
    assert (said.status, said.reason) == (422, "range")
    assert "730d" in said.text
    assert refused("rate(gpu_util[800d])", 60, 60).reason == "range"


def test_degraded_means_one_tier_for_all() -> None:
    for who, tier in ((ALPHA, ""), (OPS, ""), (OPS, "hot"), (OPS, "hour")):
        plan = plan_query(CONFIG, who, Ask("gpu_util", NOW, NOW, tier=tier), NOW, degraded=True)
        assert (plan.source, plan.degraded) == ("minute", True)
    assert refused("gpu_util", 60 * DAY, 3600, degraded=True).reason == "range"


def test_jobs_read_aggregated_tiers_only() -> None:
    for who in (ALPHA, OPS):
        assert plan_query(CONFIG, who, Ask("gpu_util", NOW - 60, NOW, 5), NOW, job=True).source == "minute"
    with pytest.raises(Refused, match="not yours"):
        plan_query(CONFIG, OPS, Ask("gpu_util", NOW, NOW, tier="hot"), NOW, job=True)


def test_an_administrator_has_no_wall_and_a_tenant_no_raw_tier() -> None:
    plan = instant("gpu_util", who=OPS)
    assert (plan.raw, [name for name, _ in plan.fields]) == (True, ["query", "time", "timeout"])
    with pytest.raises(Refused, match="minute, hour would pass"):
        instant("gpu_util", tier="hot")


@given(
    st.sampled_from(["/api/v1/series", "/api/v1/labels", "/api/v1/label/a/values"]),
    st.sampled_from([None, 1, 10**6]),
    st.sampled_from(["", 'gpu_util{a="b" or tenant="beta"}', '{x=~".+"}']),
)
def test_metadata_leaves_in_our_form(path: str, limit: int | None, match: str) -> None:
    values = {"match[]": match} if match else {}
    plan = plan_metadata(CONFIG, ALPHA, path, values, limit, NOW)
    assert_ours(plan, OURS, WALL)
    assert int(dict(plan.fields)["limit"]) <= 5001


@given(st.one_of(st.sampled_from([text for text, _ in LINES]), st.text(max_size=40)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_logs_leave_in_our_form(text: str, hits: bool) -> None:
    path = "/select/logsql/hits" if hits else "/select/logsql/query"
    try:
        plan = logsql.plan_logs(CONFIG, ALPHA, path, {"query": text} if text else {}, NOW)
    except Refused as problem:
        assert_said(problem, 400, 422)
        return
    assert dict(plan.fields)["query"] == text
    assert {name for name, _ in plan.fields} <= LOG_OURS
    assert [value for name, value in plan.fields if name.startswith("extra")] == ['{"tenant": "alpha"}']


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"query": "*", "start": "-8d"}, "range"),
        ({"query": "*", "start": "-7d", "step": "1s"}, "points"),
        ({"query": "*", "start": "now", "end": "-1h"}, "time"),
        ({"query": "*", "field": "a b"}, "parameter"),
        ({}, "missing"),
    ],
)
def test_logs_are_bounded(values: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused) as problem:
        logsql.plan_logs(CONFIG, ALPHA, "/select/logsql/hits", values, NOW)
    assert problem.value.reason == reason


@pytest.mark.parametrize(("fields", "passes"), [({}, True), ({"tenant": ("alpha",)}, False)])
def test_neighbours_of_a_line_need_a_stream_of_our_own(fields: Any, passes: bool) -> None:
    """stream_context does not ask the filter again, so a filter on fields does not hold there."""
    wall = configs.LogWall({"tenant": ("alpha",)}, fields)
    if passes:
        logsql.check("* | stream_context before 5", wall)
    else:
        with pytest.raises(Refused, match="stream_context"):
            logsql.check("* | stream_context before 5", wall)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1800000000.5", 1_800_000_000.5),
        ("now", NOW),
        ("-10m", NOW - 600),
        ("now-1h30m", NOW - 5400),
        ("2026-01-02T03:04:05Z", 1767323045),
        ("2026-01-02T03:04:05.123456789+01:00", 1767319445.123456),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert moments.moment("time", text, NOW) == pytest.approx(seconds)


NO_TIMES = ["", "NaN", "Inf", "1e9", "-5", "now+1h", "0x10", "2026-01-02", "9" * 20, "١٢", "1_000", " 5"]


@pytest.mark.parametrize("text", [*NO_TIMES, "2026-13-02T03:04:05Z", "-99999999y"])
def test_no_times(text: str) -> None:
    with pytest.raises(Refused):
        moments.moment("time", text, NOW)


def test_there_are_enough_attempts() -> None:
    names = [(one.name, one.target, one.body, one.headers) for one in attempts()]
    assert len(names) == len(set(names))
    assert len(names) >= 500
