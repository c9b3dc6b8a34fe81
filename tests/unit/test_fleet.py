"""Who has followed a document and who has not, as the lake says it (D7, D8, case 74's kind)."""

from __future__ import annotations

from typing import Any

import pytest
from sideband import fleet, levels
from sideband.price import keep_pattern


def level(*metrics: str, intake: int = 100) -> dict[str, Any]:
    return {
        "metrics": list(metrics),
        "everywhere": [name for name in metrics if not name.startswith("DCGM_")],
        "keep": keep_pattern(metrics),
        "intake_bytes_per_second": intake,
        "period_seconds": 5,
    }


LADDER: dict[str, Any] = {
    "order": ["full", "core", "heartbeat"],
    "levels": {
        "full": level("up", "node_memory_*", "node_load1", "node_boot_time_seconds", intake=5000),
        "core": level("up", "node_load1"),
        "heartbeat": level("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    },
}
MODEL: dict[str, Any] = {
    "ladder": LADDER,
    "racks": {"rack1": {"nodes": ["node1", "node2"]}, "rack2": {"nodes": ["node3"]}},
}


def expected(name: str = "core", scope: str = "all") -> dict[str, Any]:
    return fleet.expectation(MODEL, {"level": name, "scope": scope})


def seen(
    generations: dict[str, int], names: dict[str, list[str]], name: str = "core", silent: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    reported = [({"node": node}, float(value)) for node, value in generations.items()]
    sent = [({"node": node, "__name__": one}, 1.0) for node, ones in names.items() for one in ones]
    fresh = [one for one in sent if one[0]["__name__"] not in silent]
    return fleet.judge(expected(name), 100, reported, sent, fresh)


def test_the_highest_level_has_no_limit() -> None:
    assert levels.intake_limits(LADDER) == {"full": 0, "core": 100, "heartbeat": 100}


def test_marks_tell_a_level_from_the_one_below() -> None:
    assert levels.marks(LADDER, "full") == ["node_boot_time_seconds"]
    assert levels.marks(LADDER, "core") == ["node_load1"]
    assert levels.marks(LADDER, "heartbeat") == []


def test_foreign_names_are_those_that_a_level_does_not_list() -> None:
    core = LADDER["levels"]["core"]["keep"]
    assert levels.foreign(core, ["up", "node_load1", "scrape_duration_seconds"]) == []
    assert levels.foreign(core, ["node_load15", "node_memory_Free_bytes"]) == [
        "node_load15",
        "node_memory_Free_bytes",
    ]
    assert levels.foreign("", ["up"]) == ["up"]


def test_a_fleet_that_has_followed() -> None:
    found = seen(
        {"node1": 100, "node2": 100, "node3": 101},
        {n: ["up", "node_load1"] for n in ("node1", "node2", "node3")},
    )
    assert all(one["shown"] and one["why"] == "" for one in found.values())
    assert fleet.progress(found, "core") == "core: 3 of 3 nodes report it, 3 are seen at it"


def test_each_straggler_has_its_reason() -> None:
    found = seen(
        {"node1": 99, "node2": 100},
        {
            "node1": ["up"],
            "node2": ["up", "node_load1", "node_memory_Free_bytes"],
            "node3": ["up", "node_load1"],
        },
    )
    assert "still at generation 99" in found["node1"]["why"]
    assert "still sends node_memory_Free_bytes" in found["node2"]["why"]
    assert "knows no generation" in found["node3"]["why"]
    assert not any(one["shown"] for one in found.values())
    assert "waiting for node1, node2, node3" in fleet.progress(found, "core")


def test_a_name_that_ended_without_a_word_counts_as_gone() -> None:
    generations = {"node1": 100, "node2": 100, "node3": 100}
    names = {node: ["up", "node_load1", "pushed_once"] for node in generations}
    assert not any(one["shown"] for one in seen(generations, names).values())
    assert all(one["shown"] for one in seen(generations, names, silent=("pushed_once",)).values())


def test_the_window_covers_the_levels_above() -> None:
    assert expected("core")["window_seconds"] == 15
    assert expected("full")["window_seconds"] == 5
    assert "[15s]" in fleet.recent_names(15)


def test_going_up_is_seen_only_when_a_series_of_the_level_arrives() -> None:
    generations = {"node1": 100, "node2": 100, "node3": 100}
    low = {node: ["up", "node_load1"] for node in generations}
    assert not any(one["shown"] for one in seen(generations, low, "full").values())
    high = {node: [*names, "node_boot_time_seconds"] for node, names in low.items()}
    assert all(one["shown"] for one in seen(generations, high, "full").values())
    silent = seen(generations, {}, "full")
    assert "sampler is down" in silent["node1"]["why"]


def test_at_heartbeat_the_sampler_is_silent() -> None:
    generations = {"node1": 100, "node2": 100, "node3": 100}
    assert all(one["shown"] for one in seen(generations, {}, "heartbeat").values())
    assert not any(
        one["shown"] for one in seen(generations, {n: ["up"] for n in generations}, "heartbeat").values()
    )


def test_scopes_name_nodes() -> None:
    assert expected(scope="all")["nodes"] == ["node1", "node2", "node3"]
    assert expected(scope="rack:rack2")["nodes"] == ["node3"]
    assert expected(scope="node:node1,node3")["nodes"] == ["node1", "node3"]


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ({}, "level: missing"),
        ({"level": ""}, "level: missing"),
        ({"level": ["core"]}, "level: is no text"),
        ({"level": "core --json"}, "level: is no name"),
        ({"level": "core", "scope": "rack1"}, "scope is all"),
        ({"level": "core", "scope": {"racks": []}}, "scope: is no text"),
        ({"level": "core", "until": "tomorrow"}, "until: is no span"),
        ({"level": "core", "reason": 3}, "reason: is no text"),
        ({"actions": "aggregate"}, "knows no such action (got 'aggregate'); hint: one of aggregated"),
        ({"actions": "aggregated", "scope": "rack:rack1"}, "hold for the whole site"),
    ],
)
def test_a_request_is_checked_before_anything_else(request_: dict[str, Any], hint: str) -> None:
    errors = fleet.request_errors(request_, ["level"])
    assert len(errors) == 1
    assert hint in errors[0]


def test_a_sound_request_passes() -> None:
    assert (
        fleet.request_errors(
            {"level": "core", "scope": "rack:rack1", "until": "30m", "reason": ""}, ["level"]
        )
        == []
    )
    assert fleet.request_errors({"until": "2031-01-01T00:00:00Z", "scope": None}, []) == []
    assert fleet.request_errors({"actions": "aggregated"}, ["level"]) == []
    assert fleet.request_errors({"actions": "aggregated", "level": "core", "scope": "all"}, ["level"]) == []


def test_a_limit_is_no_scope() -> None:
    (said,) = fleet.request_errors({"level": "core"}, ["level"], "rack1")
    assert said.startswith("--limit: names no scope here (got 'rack1')")
    assert "-e scope=rack:NAME" in said


def test_a_request_is_checked_against_the_contract() -> None:
    assert fleet.contract_errors(MODEL, {"level": "core", "scope": "rack:rack1"}) == []
    errors = fleet.contract_errors(MODEL, {"level": "kore", "scope": "node:node1,node9"})
    assert "one of full, core, heartbeat" in errors[0]
    assert "node9" in errors[1]


@pytest.mark.parametrize(
    "answer", [{}, [], {"status": "error", "error": "x"}, {"status": "success", "data": None}]
)
def test_an_answer_that_is_none_is_said(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        fleet.values(answer)


ISSUED: dict[str, Any] = {
    "generation": 100, "seconds_to_clamp": 0.8, "clamped_at": 1000.0, "seconds": 0.9,
    "racks": [{"rack": "rack1", "outcome": "ok", "detail": ""}],
}  # fmt: skip


def test_findings_hold_the_figures() -> None:
    nodes = seen(
        {"node1": 100, "node2": 100, "node3": 100},
        {n: ["up", "node_load1"] for n in ("node1", "node2", "node3")},
    )
    found = fleet.findings(
        expected(), ISSUED, {"nodes": nodes, "reached_at": 1004.5, "shown_at": 1009.0}, 21.26
    )
    assert found["pass"]
    assert found["figures"]["seconds_to_converge"] == 4.5
    assert found["figures"]["seconds_to_show"] == 9.0
    assert found["figures"]["command_seconds"] == 21.3


def test_findings_say_when_the_lake_cannot_be_asked() -> None:
    seen_ = {"nodes": {}, "reached_at": None, "shown_at": None, "problem": "no route"}
    found = fleet.findings(expected(), ISSUED, seen_, 1)
    assert not found["pass"]
    assert found["stragglers"] == ["the lake cannot be asked: no route"]


def test_findings_fail_with_names() -> None:
    issued = {**ISSUED, "racks": [{"rack": "rack2", "outcome": "unreachable", "detail": "no answer"}]}
    found = fleet.findings(
        expected(), issued, {"nodes": seen({}, {}), "reached_at": None, "shown_at": None}, 1
    )
    assert not found["pass"]
    assert found["racks_failed"] == ["rack2: unreachable no answer"]
    assert [one.split(":")[0] for one in found["stragglers"]] == ["node1", "node2", "node3"]
    assert found["figures"]["seconds_to_converge"] is None
