"""The gate: each fault alone turns it red with its cause, and a sound host passes (cases 13, 14)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sideband import gate
from sideband.gate import Demand, Finding, Look

UNIT = {"active": "active", "sub": "running", "wanted": True, "restarts": 0}
VITALS: dict[str, Any] = {
    "at": 100.0,
    "boot": "b 1",
    "generations": {"node": {"number": 4, "previous": 3, "pending": False}},
    "units": {"sideband-agent.service": UNIT},
    "listeners": ["tcp 0.0.0.0:22 by ssh.service"],
    "counters": {"edge0_unlisted": 7},
    "queues": {"edge0": 1},
    "agents": {"agent on port 8529": 0.0},
    "cpu_seconds": 10.0,
    "memory_bytes": 50 * 2**20,
    "files": {"/etc/sideband/node/a": "file 0644 0:0 aa"},
    "rules": {"netdev sideband": "aa"},
    "shapes": {"edge0": "aa"},
    "unanswered": {},
}
NODE = Demand(words=("node",), cpu_percent=20, memory_bytes=256 * 2**20, metrics=("up", "node_load*"))


def vitals(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(VITALS)
    for path, value in changes.items():
        made[path] = value
    return made


def seen(**changes: Any) -> Look:
    return Look(vitals(at=80.0), vitals(), vitals(**{"at": 130.0, "cpu_seconds": 11.0, **changes}), True)


def against(look: Look, demand: Demand = NODE) -> list[str]:
    return [str(finding) for finding in gate.judge_host("n1", look, demand)]


def test_a_sound_host_has_nothing_against_it() -> None:
    assert against(seen()) == []


def failing(**unit: Any) -> dict[str, Any]:
    return {"sideband-agent.service": {**UNIT, **unit}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"listeners": ["tcp 0.0.0.0:9100 by sideband-exporter.service"]},
            "n1: listeners: sideband-exporter.service listens on tcp 0.0.0.0:9100; "
            "the contract lists no such flow",
        ),
        (
            {"units": failing(active="failed", sub="failed", said="unknown flag")},
            "n1: units: sideband-agent.service is failed (failed), it said: unknown flag; "
            "on the host: journalctl -u sideband-agent.service",
        ),
        (
            {"units": failing(active="inactive", sub="dead")},
            "n1: units: sideband-agent.service is inactive (dead); "
            "on the host: journalctl -u sideband-agent.service",
        ),
        (
            {"units": failing(restarts=3)},
            "n1: restarts: sideband-agent.service restarted 3 times during the soak; "
            "on the host: journalctl -u sideband-agent.service",
        ),
        (
            {"counters": {"edge0_unlisted": 9}},
            "n1: drops: edge0_unlisted dropped 2 packets during the soak; 0 are allowed",
        ),
        ({"queues": {"edge0": 4}}, "n1: queues: edge0 dropped 3 packets during the soak; 0 are allowed"),
        (
            {"agents": {"agent on port 8529": 12.0}},
            "n1: queues: agent on port 8529 dropped 12 samples during the soak; 0 are allowed",
        ),
        ({"cpu_seconds": 25.0}, "n1: budget: sideband took 50.0 % of a CPU; 20 % are agreed"),
        ({"memory_bytes": 300 * 2**20}, "n1: budget: sideband holds 300 MiB; 256 MiB are agreed"),
        ({"boot": "b 2"}, "n1: restarts: the host itself restarted during the soak"),
        (
            {"unanswered": {"10.21.0.21:8427": "no answer in 3 s"}},
            "n1: probes: 10.21.0.21:8427 takes no connection from here: no answer in 3 s; "
            "an allowed flow must answer",
        ),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], said: str) -> None:
    assert against(seen(**changes)) == [said]


def test_case_13_a_host_that_is_lost_is_failed_whenever_it_is_lost() -> None:
    assert against(Look(error="connection refused")) == [
        "n1: reach: did not answer before the change; connection refused"
    ]
    assert against(Look()) == ["n1: reach: did not answer before the change; nothing was changed there"]
    assert against(Look(vitals(), vitals(), None, True)) == [
        "n1: reach: did not answer at the end of the soak"
    ]
    assert against(Look(vitals(), None, None, True)) == ["n1: reach: did not answer right after the change"]
    assert against(Look(vitals())) == [
        "n1: apply: the change did not go through; the play's own error is above"
    ]


def test_a_unit_that_will_not_start_is_the_cause_not_the_play_that_gave_up() -> None:
    look = Look(vitals(), None, vitals(units=failing(active="failed", sub="failed")), False)
    assert against(look)[0].startswith("n1: units: sideband-agent.service is failed")
    found = gate.verdict("canary", ["n1"], gate.judge_host("n1", look, NODE), [], 0)
    assert found.cause.startswith("n1: units: sideband-agent.service is failed")


def test_a_unit_that_starts_again_and_again_is_the_cause_also_while_it_is_up() -> None:
    up = failing(active="active", sub="running", restarts=3)
    look = Look(vitals(), None, vitals(units=up), False)
    said = against(look)[0]
    assert said.startswith("n1: units: sideband-agent.service is active (running), started again 3 times")
    # As often as before the change: not its doing.
    calm = Look(vitals(units=up), None, vitals(units=up), False)
    assert against(calm)[0].startswith("n1: apply: ")


def test_what_was_there_before_is_the_sites_own() -> None:
    there = ["tcp 0.0.0.0:111 by rpcbind.service"]
    look = Look(vitals(listeners=there), vitals(), vitals(listeners=there), True)
    assert against(look) == []


def test_a_listener_of_ours_on_a_training_node_is_never_old_enough() -> None:
    there = ["tcp 0.0.0.0:9100 by sideband-exporter.service"]
    look = Look(vitals(listeners=there), vitals(), vitals(listeners=there), True)
    assert len(against(look)) == 1
    assert against(look, Demand(words=("rack",))) == []


def test_what_the_contract_serves_may_listen() -> None:
    rack = Demand(words=("rack",), listens=("tcp 10.21.0.21:8427", "tcp 10.90.0.21:*"))
    listed = [
        "tcp 10.21.0.21:8427 by sideband-front.service",
        "tcp 10.90.0.21:8080 by sideband-mirror.service",
    ]
    assert against(seen(listeners=listed), rack) == []
    assert len(against(seen(listeners=["tcp 10.21.0.21:9999 by sideband-front.service"]), rack)) == 1


def test_a_counter_that_only_observes_is_no_drop() -> None:
    assert against(seen(counters={"edge0_unlisted": 99}), Demand(words=("node",), counters=())) == []


def test_a_counter_that_began_anew_still_counts() -> None:
    assert against(seen(counters={"edge0_unlisted": 3}))[0].startswith("n1: drops: edge0_unlisted dropped 3")


# series


def test_series_must_arrive_and_none_be_lost() -> None:
    assert (
        gate.judge_series("n1", NODE, ["up", "node_load1", "node_load5"], ["up", "node_load1", "node_load5"])
        == []
    )
    assert [str(each) for each in gate.judge_series("n1", NODE, [], [])] == [
        "n1: series: no series arrived; "
        "look at the way: node, rack, region, lake (sideband-*.service on each)"
    ]
    lost = gate.judge_series("n1", NODE, ["up", "node_load1", "node_load5"], ["up", "node_load1"])
    assert lost[0].problem == "series did not arrive: node_load5"
    assert gate.judge_series("n1", NODE, [], ["node_load1"])[0].problem == "series did not arrive: up"


def test_a_series_that_the_contract_gave_up_may_go() -> None:
    assert gate.judge_series("n1", NODE, ["up", "node_load1", "node_disk_x"], ["up", "node_load1"]) == []


def test_hosts_that_send_none_are_not_asked() -> None:
    assert gate.judge_series("rack1", Demand(words=("rack",)), [], []) == []


def test_the_lakes_answer_is_read_by_node() -> None:
    answer = {
        "names": {
            "data": {
                "result": [
                    {"metric": {"__name__": "up", "node": "n1"}},
                    {"metric": {"__name__": "up", "node": "n2"}},
                    {"metric": {"node": "n3"}},
                ]
            }
        }
    }
    assert gate.names_by_node(answer) == {"n1": ["up"], "n2": ["up"]}
    assert gate.names_by_node({}) == {}
    levels = {"levels": {"data": {"result": [{"metric": {"node": "n1", "level": "core"}}]}}}
    assert gate.level_by_node(levels, "full") == {"n1": "core"}


# one verdict


def test_the_cause_is_what_explains_the_rest() -> None:
    findings = [Finding("n1", "series", "no series arrived"), Finding("n1", "units", "x.service is failed")]
    assert gate.verdict("canary", ["n1"], findings, [], 0).cause == "n1: units: x.service is failed"


def test_no_budget_forgives_a_canary() -> None:
    verdict = gate.verdict("canary", ["n1", "n2"], [Finding("n1", "reach", "did not answer")], [], 9)
    assert verdict.passed is False
    assert verdict.cause == "n1: reach: did not answer"


def test_case_14_one_failure_a_batch_stops_at_the_agreed_total() -> None:
    """100 hosts, batches of 10, one failure in each: the fleet's budget of 3 is spent in the fourth batch."""
    failed: list[str] = []
    for batch in range(10):
        hosts = [f"h{batch}{number}" for number in range(10)]
        verdict = gate.verdict("fleet", hosts, [Finding(hosts[0], "units", "is failed")], failed, 3)
        failed += verdict.failed
        if not verdict.passed:
            break
    assert failed == ["h00", "h10", "h20", "h30"]
    assert verdict.cause == (
        "h30: units: is failed [4 hosts failed in this rollout, 3 may: h00, h10, h20, h30]"
    )


def test_what_is_wrong_with_the_whole_step_is_never_forgiven() -> None:
    assert gate.verdict("fleet", ["n1"], [Finding("all", "probes", "a probe is red")], [], 9).passed is False


@given(
    st.lists(st.sampled_from([f"h{n}" for n in range(12)]), unique=True, min_size=1),
    st.sets(st.sampled_from([f"h{n}" for n in range(12)])),
    st.integers(0, 12),
)
def test_never_more_failed_hosts_than_the_budget(hosts: list[str], bad: set[str], budget: int) -> None:
    """Whatever the batches, a rollout goes on only while the whole fleet's failures are within the budget."""
    failed: set[str] = set()
    for host in hosts:
        findings = [Finding(host, "units", "is failed")] if host in bad else []
        verdict = gate.verdict("fleet", [host], findings, failed, budget)
        assert verdict.passed == (host not in bad or len(failed | {host}) <= budget)
        if not verdict.passed:
            break
        failed |= set(verdict.failed)
        assert len(failed) <= budget


# going back


def generations(**owners: tuple[int, int | None, bool]) -> dict[str, Any]:
    return {
        "generations": {
            name: {"number": number, "previous": previous, "pending": pending}
            for name, (number, previous, pending) in owners.items()
        }
    }


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        (generations(node=(3, 2, False)), generations(node=(3, 2, False)), []),
        (generations(node=(3, 2, False)), generations(node=(4, 3, False)), [("node", "reverted")]),
        (generations(), generations(node=(1, 0, False)), [("node", "absent")]),
        (generations(node=(3, 2, False)), generations(node=(3, 2, True)), [("node", "reverted")]),
        # Somebody has run two more generations since: the wanted one is not on the host any more.
        (generations(node=(3, 2, False)), generations(node=(5, 4, False)), [("node", "lost")]),
        (
            generations(planes=(1, 0, False), node=(1, 0, False)),
            generations(planes=(2, 1, False), node=(2, 1, False)),
            [("node", "reverted"), ("planes", "reverted")],
        ),
    ],
)
def test_only_owners_that_moved_go_back_and_links_last(
    before: dict[str, Any], now: dict[str, Any], wanted: list[tuple[str, str]]
) -> None:
    assert [(each.owner, each.state) for each in gate.undo(before, now)] == wanted


def test_residue_names_every_difference_and_nothing_else() -> None:
    assert gate.residue(VITALS, vitals(at=999.0, counters={}, cpu_seconds=5.0)) == []
    changed = vitals(
        files={"/etc/sideband/node/a": "file 0644 0:0 bb", "/etc/x": "file"},
        rules={},
        units=failing(active="failed"),
    )
    assert gate.residue(VITALS, changed) == [
        "file /etc/sideband/node/a differs",
        "file /etc/x appeared",
        "rule netdev sideband is gone",
        "unit sideband-agent.service is failed, was active",
    ]
