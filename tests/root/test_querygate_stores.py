"""querygate before a real VictoriaMetrics and a real Prometheus: the wall, audit, jobs, D5 (Q2, Q3, Q5, D5).

Acceptance 3 of "First light"; cases 68, 70. Needs the stores' programs (from the lab's mirror), no root.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from querygate.attempts import attempts
from querygate.kit import ADMINISTRATOR, Kit, binary
from querygate.scene import rows, second, shown
from querygate.world import MARK, Lines, foreign, series
from sideband import report

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    directory = tmp_path_factory.mktemp("querygate")
    victoria = binary("victoria-metrics", "victoria-metrics", directory)
    prometheus = binary("prometheus", "prometheus", directory)
    if not victoria or not prometheus:
        pytest.skip("no store to be had: lab/lab mirror brings them")
    kit = Kit(directory)
    try:
        kit.ports["logs"] = Lines().port
        kit.victoria("minute", victoria)
        kit.victoria("hour", victoria)
        kit.prometheus("hot", prometheus)
        for name in ("minute", "hour", "hot"):
            kit.write(name, series())
        kit.gate(kit.configure())
        yield kit
    finally:
        kit.stop()


def test_there_is_something_to_steal(kit: Kit) -> None:
    """An administrator sees both; every way to notice beta is true for that answer."""
    answer = kit.ask("/api/v1/query", ADMINISTRATOR, query="gpu_util", tier="minute")
    assert {row["metric"]["tenant"] for row in rows(answer)} == {"alpha", "beta"}
    assert foreign(answer) >= 8
    assert (
        foreign(kit.ask("/api/v1/query", ADMINISTRATOR, query='count({__name__=~".+"})', tier="minute")) == 1
    )
    for path in ("/api/v1/labels", "/api/v1/label/tenant/values", "/api/v1/label/mark/values"):
        assert foreign(kit.ask(path, ADMINISTRATOR, tier="minute")), path
    assert foreign(kit.ask("/select/logsql/query", ADMINISTRATOR, query="*"))
    assert foreign(kit.ask("/select/logsql/hits", ADMINISTRATOR, query="*"))


def test_no_attempt_shows_a_foreign_series(kit: Kit, tmp_path: Path) -> None:
    """At least a hundred ways; each gets its status, and none shows anything of beta (case 68, 70)."""
    checks, seen, total = [], 0, 0
    for attempt in attempts():
        answer = kit.send(attempt.method, attempt.target, attempt.body.encode(), attempt.headers)
        found = foreign(answer) if attempt.method != "HEAD" else 0
        checks.append(report.check(attempt.name, answer.status == attempt.status and not found,
                                   [answer.status, found], [attempt.status, 0]))  # fmt: skip
        if answer.status >= 400 and attempt.method != "HEAD":
            assert len(json.loads(answer.text)["error"]) > 10, attempt
        seen, total = seen + found, total + 1
    figures = {"attempts": total, "foreign_series": seen,
               "answered": sum(1 for one in checks if one["got"][0] == 200)}  # fmt: skip
    # Only where it is asked for: a test run leaves the tree as it was.
    directory = os.environ.get("SIDEBAND_REPORTS") or str(tmp_path)
    report.write("tenancy", report.passes(checks), figures, checks, {}, directory)
    assert [one for one in checks if not one["pass"]] == []
    assert total >= 100
    assert figures["answered"] >= 50  # a gate that refuses everything keeps secrets too


def test_alpha_sees_its_own(kit: Kit) -> None:
    found = rows(kit.ask("/api/v1/query", query="gpu_util"))
    # Its own on its rack and, as a guest, on another; of its rack what belongs to nobody; not beta's guests.
    assert sorted(row["metric"]["node"] for row in found) == ["node1"] * 4 + ["node9"]
    assert [row["metric"]["node"] for row in rows(kit.ask("/api/v1/query", query="load"))] == ["node1"]
    for method in ("GET", "POST"):
        values = {"query": "sum(gpu_util)", "start": "-30m", "end": "now", "step": "60"}
        answer = kit.ask("/api/v1/query_range", method=method, **values)
        assert {value for _, value in rows(answer)[0]["values"]} == {"5"}
        assert answer.headers["x-sideband-tier"] == "minute"
        assert "x-sideband-degraded" not in answer.headers
    assert rows(kit.ask("/api/v1/label/tenant/values")) == ["alpha"]
    assert sorted(rows(kit.ask("/api/v1/label/node/values"))) == ["node1", "node9"]


def test_refusals_say_what_would_pass(kit: Kit) -> None:
    asked = {"query": "gpu_util", "start": "-40d", "end": "now", "step": "15"}
    answer = kit.ask("/api/v1/query_range", **asked)
    said = json.loads(answer.text)
    assert (answer.status, said["status"], said["reason"]) == (422, "error", "points")
    assert "range 40d at step 15s is 230,401 points, 11,000 may; step 6m would pass" in said["error"]
    assert kit.ask("/api/v1/query_range", **{**asked, "step": "6m"}).status == 200


def test_a_wide_answer_is_whole(kit: Kit) -> None:
    wide = kit.ask("/api/v1/query", "tenant/beta", query=f"only_{MARK}")
    assert len(rows(wide)) == 1200


def test_every_access_without_a_wall_leaves_a_line(kit: Kit) -> None:
    before = len(kit.audit())
    kit.ask("/api/v1/query", query="gpu_util")
    assert len(kit.audit()) == before
    answer = kit.ask("/api/v1/query", ADMINISTRATOR, query='gpu_util{tenant="beta"}', tier="hot")
    kit.ask("/api/v1/query", ADMINISTRATOR, query="gpu_util{", tier="hot")
    kit.ask("/api/v1/labels", "archive/archiver", match="load")
    kit.ask("/select/logsql/query", ADMINISTRATOR, query="*")
    found = kit.audit()[before:]
    assert [(one["who"], one["tier"], one["raw"], one["result"]) for one in found] == [
        ("administrator/ops", "hot", True, "ok"),
        ("administrator/ops", "", False, "expression"),
        ("archive/archiver", "hot", True, "ok"),
        ("administrator/ops", "logs", False, "ok"),
    ]
    assert found[0]["what"]["query"] == 'gpu_util{tenant="beta"}'
    assert (found[0]["bytes"], found[0]["status"], found[0]["when"][:2]) == (len(answer.body), 200, "20")


def wait_for(kit: Kit, job: str, identity: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        data: dict[str, Any] = json.loads(kit.ask(f"/api/v1/jobs/{job}", identity).text)["data"]
        if data["state"] in ("done", "failed"):
            return data
        assert time.monotonic() < deadline, data
        time.sleep(0.1)


def test_a_heavy_question_becomes_a_job(kit: Kit) -> None:
    asked = {"query": "sum(gpu_util)", "start": "-80d", "end": "now", "step": "3600"}
    answer = kit.ask("/api/v1/jobs", method="POST", **asked)
    assert answer.status == 202
    job = json.loads(answer.text)["data"]["id"]
    assert answer.headers["location"] == f"/api/v1/jobs/{job}"
    data = wait_for(kit, job, "tenant/alpha")
    assert (data["state"], data["tier"]) == ("done", "minute")
    result = kit.ask(f"/api/v1/jobs/{job}/result")
    assert {value for _, value in rows(result)[0]["values"]} == {"5"}
    assert foreign(result) == 0
    # Whose it is not: as if it never was.
    for identity in ("tenant/beta", ADMINISTRATOR):
        assert kit.ask(f"/api/v1/jobs/{job}", identity).status == 404
        assert kit.ask(f"/api/v1/jobs/{job}/result", identity).status == 404
    assert kit.ask(f"/api/v1/jobs/{'0' * 32}").status == 404
    assert kit.ask("/api/v1/jobs", ADMINISTRATOR, "POST", **asked, tier="hot").status == 403


def test_degraded_all_read_the_newest_aggregated_copy(kit: Kit) -> None:
    path: Path = kit.directory / "degraded.json"
    path.write_text('{"aggregated": true}')
    try:
        for identity, extra in ((ADMINISTRATOR, {"tier": "hot"}), (ADMINISTRATOR, {}), ("tenant/alpha", {})):
            answer = kit.ask("/api/v1/query", identity, query="gpu_util", **extra)
            said = answer.headers.get("x-sideband-tier"), answer.headers.get("x-sideband-degraded")
            assert (answer.status, *said) == (200, "minute", "aggregated")
        assert kit.ask("/api/v1/query", query="gpu_util", tier="hour").headers["x-sideband-tier"] == "minute"
        path.write_text("{")
        assert kit.ask("/api/v1/query", query="gpu_util").headers["x-sideband-degraded"] == "aggregated"
    finally:
        path.unlink()
    answer = kit.ask("/api/v1/query", ADMINISTRATOR, query="gpu_util", tier="hot")
    assert (answer.headers["x-sideband-tier"], "x-sideband-degraded" in answer.headers) == ("hot", False)


NO_WALL = "plan.wall = lambda identity, tier: ()"
FORWARDED = """
app.KNOWN["/api/v1/query"] |= {"extra_filters[]"}
sound = app.Gate._plan
def leaky(self, path, question, who, now):
    from dataclasses import replace
    made, given = sound(self, path, question, who, now), question.values.get("extra_filters[]")
    return replace(made, fields=(*made.fields, ("extra_filters[]", given))) if given else made
app.Gate._plan = leaky
"""
NO_MATCHERS = "plan.injected = lambda identity, tier: ()"


@pytest.mark.parametrize(("defect", "path"), [(NO_WALL, "/api/v1/label"), (FORWARDED, "/api/v1/query?")])
def test_a_broken_wall_is_seen(kit: Kit, tmp_path: Path, defect: str, path: str) -> None:
    """The attempts notice a wall that is not there, and one that a client's own filter widens."""
    with second(kit, tmp_path, defect) as broken:
        assert len(shown(broken, path)) >= 2


WALL_OF_ONE = [[{"label": "tenant", "op": "=", "value": "alpha"}]]


def hot_bounds(kit: Kit) -> dict[str, Any]:
    identities = json.loads((kit.directory / "querygate.json").read_text())["identities"]
    return {"hot": next(one for one in identities if one["kind"] == "administrator")["bounds"]["hot"]}


def test_the_hot_tier_has_the_wall_in_every_selector(kit: Kit, tmp_path: Path) -> None:
    """A tenant who may read the raw tier: Prometheus has no filter of its own."""
    with second(kit, tmp_path, bounds=hot_bounds(kit), wall=WALL_OF_ONE) as gate:
        assert len(rows(gate.ask("/api/v1/query", query="gpu_util"))) == 5
        assert rows(gate.ask("/api/v1/label/tenant/values")) == ["alpha"]
        assert shown(gate, "/api/v1/query", "/api/v1/series", "/api/v1/label") == []
        # PromQL itself has no `or` between matchers: said before Prometheus says it.
        said = gate.ask("/api/v1/query", query='gpu_util{gpu="0" or tenant="beta"}')
        assert (said.status, "`or`" in said.text) == (422, True)
        assert gate.audit()[-1]["kind"] == "tenant"  # raw access leaves its line, whoever asks


def test_a_missing_matcher_is_seen(kit: Kit, tmp_path: Path) -> None:
    with second(kit, tmp_path, NO_MATCHERS, bounds=hot_bounds(kit), wall=WALL_OF_ONE) as broken:
        assert len(shown(broken, "/api/v1/query?")) >= 10


def test_bounds_hold_before_a_real_store(kit: Kit, tmp_path: Path) -> None:
    small = {"range_seconds": 7200, "points": 200, "series": 3, "bytes": 4000, "seconds": 5}
    strict = {**small, "points": 20}
    with second(kit, tmp_path, bounds={"minute": small, "hour": small}, strict=strict) as gate:
        for values, reason in (
            ({"query": "gpu_util"}, "series"),
            ({"query": 'gpu_util{node="node1",gpu=~"[0-2]"}', "step": "20"}, "bytes"),
            ({"query": "load", "step": "1"}, "points"),
            ({"query": "max_over_time(load[1h:1s])"}, "points"),
            ({"query": "load + max_over_time(load[1d])"}, "range"),
            ({"query": "load", "start": "-3h"}, "range"),
            ({"query": "rollup_rate(load[5m])", "step": "60"}, "points"),  # MetricsQL, the strictest bound
        ):
            asked = {"start": "-30m", "end": "now", "step": "5m", **values}
            answer = gate.ask("/api/v1/query_range", **asked)
            said = json.loads(answer.text)
            assert (said.get("reason"), answer.status) == (reason, 413 if reason == "bytes" else 422), values
        assert gate.ask("/api/v1/query", query="rollup(load[5m])").status == 200
        assert gate.ask("/api/v1/series", match="gpu_util").status == 422
        assert gate.ask("/api/v1/labels").status == 422  # nothing is cut in silence
        assert len(rows(gate.ask("/api/v1/labels", limit=2))) == 2
        assert len(rows(gate.ask("/api/v1/series", match="gpu_util", limit=2))) == 2
