"""The plan of verify: every pair of the wiring is tried, by packets whose fate is foretold (B2, B3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pairs import pairs
from probe_kit import ROOT, lab_model, lab_options
from sideband import packets, verify_data, verify_logs, verify_queries
from sideband.verify_pairs import Plan, Probe, options
from sideband.verify_plan import make
from sideband.verify_request import request
from verify_kit import right

MODEL = lab_model()
TOPOLOGY = str(ROOT / "lab" / "topology.yml")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make(MODEL, lab_options())


def probes(plan: Plan, source: str, destination: str, plane: str, family: int = 4) -> list[Probe]:
    return [p for p in plan.probes if tuple(p.pair) == (source, destination, plane, family)]


def test_every_pair_of_the_wiring_is_planned_and_no_other(plan: Plan) -> None:
    """Counted by a reader that imports no compiler."""
    counted = pairs(TOPOLOGY)
    assert len(counted) == len(set(counted)) == 414
    assert {str(pair) for pair in plan.pairs} == set(counted)
    assert {p.pair for p in plan.probes} == set(plan.pairs)


@pytest.mark.parametrize("only", ["node1", "gateway1,user1"])
def test_a_limited_run_counts_the_same_pairs_as_the_wiring(only: str) -> None:
    limited = options({"port": 48427, "training": True, "only": only, "outside": lab_options().outside})
    assert {str(pair) for pair in make(MODEL, limited).pairs} == set(pairs(TOPOLOGY, tuple(only.split(","))))


def test_what_is_expected_to_drop_is_counted_by_a_counter_of_the_rules(plan: Plan) -> None:
    for probe in plan.probes:
        if probe.expect == "drop":
            names = [counter["name"] for counter in MODEL["hosts"][probe.catcher.host]["counters"]]
            assert probe.counter in names, probe


def test_a_listed_flow_must_connect_and_all_else_on_its_plane_must_not(plan: Plan) -> None:
    mine = probes(plan, "node1", "rack1", "edge")
    assert Counter(p.kind for p in mine if p.leaves.device == "edge0") == {
        "flow": 2, "unlisted": 1, "udp": 1, "ack": 1, "service port": 1, "spoofed": 1,
    }  # fmt: skip
    assert [p.port for p in mine if p.positive] == [8427, 8431]
    assert {p.source for p in mine if p.kind == "spoofed"} == {"10.90.0.11"}


def test_the_listed_port_is_refused_to_who_is_not_listed(plan: Plan) -> None:
    mine = [p for p in probes(plan, "rack1", "lake1", "core") if p.kind == "listed"]
    assert sorted(p.port for p in mine) == [8429, 8430, 8433]
    assert {p.counter for p in mine} == {"core0_unlisted"}


def test_replies_of_a_flow_let_no_connection_in(plan: Plan) -> None:
    """Source port = service port, from the very server whose replies are let in."""
    mine = [p for p in probes(plan, "rack1", "node1", "edge") if p.kind == "service port"]
    assert [(p.source_port, p.port, p.expect) for p in mine] == [(8427, 48427, "drop")]


def test_an_address_of_another_plane_is_tried_on_every_plane_that_both_share(plan: Plan) -> None:
    """The weak host model, both families."""
    for family in (4, 6):
        mine = [p for p in probes(plan, "rack1", "node1", "training", family) if p.expect == "drop"]
        assert {(p.catcher.device, p.counter) for p in mine} == {
            ("edge0", "edge0_address"), ("mgmt0", "mgmt0_address"),
        }  # fmt: skip
        assert {p.shape for p in mine} == {"syn", "udp", "ack"}


def test_who_shares_no_plane_tries_through_who_does(plan: Plan) -> None:
    mine = probes(plan, "user1", "lake1", "core")
    assert {(p.catcher, p.counter) for p in mine if p.expect == "drop"} == {
        (("gateway1", "query0"), "query0_address")
    }


def test_a_source_may_not_open_a_connection_to_a_node_over_management(plan: Plan) -> None:
    """B3; also not with an address of another plane as its source."""
    mine = [p for p in probes(plan, "rack1", "node1", "management") if p.leaves.device == "mgmt0"]
    assert {p.counter for p in mine} == {"mgmt0_source"}
    assert {p.source for p in mine if p.kind == "spoofed"} == {"10.21.0.21", "10.30.0.21"}
    assert [p.expect for p in probes(plan, "mgmt1", "node1", "management") if p.kind == "site"] == ["answer"]


def test_training_interfaces_get_no_frame_and_off_the_lab_no_packet(plan: Plan) -> None:
    """B4, B7."""
    for probe in plan.probes:
        if "train0" in (probe.leaves.device, probe.catcher.device):
            assert probe.kind == "pass"
    real = make(MODEL, lab_options(training=False))
    assert not [p for p in real.probes if "train0" in (p.leaves.device, p.catcher.device)]
    assert {p.pair for p in real.probes} == set(real.pairs)
    for host in real.hosts:
        asked = request(MODEL, real, host, "open", {}, 0)
        assert not [one for one in asked["listeners"] if one["address"].startswith(("10.10.", "fd00:5b:10:"))]
        assert "train0" not in asked["devices"]


def test_planes_that_observe_are_expected_to_count_only() -> None:
    def observe(hostvars: dict[str, dict[str, Any]]) -> None:
        for host in hostvars.values():
            host["sideband_planes"]["core"]["mode"] = "observe"

    watched = make(lab_model(observe), lab_options())
    kinds = {p.expect for p in watched.probes if p.catcher.device == "core0" and p.counter}
    assert kinds == {"observe"}
    assert {p.expect for p in watched.probes if p.catcher.device == "edge0" and p.counter} == {"drop"}


def test_frames_that_must_arrive_nowhere_have_a_neighbour_that_proves_the_capture() -> None:
    limited = make(MODEL, lab_options(only=("node1",)))
    reached = {p.catcher for p in limited.probes if p.expect != "nowhere"}
    assert {p.catcher for p in limited.probes if p.expect == "nowhere"} <= reached


def test_requests_carry_hardware_addresses_and_every_probe_once(plan: Plan) -> None:
    macs = {host: {"edge0": "02:00:00:00:00:01", "mgmt0": "02:00:00:00:00:02"} for host in plan.hosts}
    numbers: list[int] = []
    for host in plan.hosts:
        asked = request(MODEL, plan, host, "shoot", macs, 0)
        numbers += [one[0] for one in asked["connects"] + asked["frames"]]
        for number, device, mac, *_ in asked["frames"]:
            assert mac == macs[host].get(plan.probes[number].catcher.device, ""), device
    assert sorted(numbers) == [p.number for p in plan.probes]


def test_every_aim_has_a_listener_or_is_a_service(plan: Plan) -> None:
    for host in MODEL["hosts"]:
        if host not in plan.hosts:
            continue
        known = {
            (one["protocol"], one["address"], one["port"]): one["own"]
            for one in request(MODEL, plan, host, "open", {}, 0)["listeners"]
        }
        aims = {
            ("udp" if p.shape == "udp" else "tcp", p.destination, p.port)
            for p in plan.probes
            if p.pair.destination == host
        }
        assert aims == set(known)
        for (protocol, _, port), own in known.items():
            assert own == (protocol == "udp" or port == 48427)


def test_a_plan_that_numbers_cannot_tell_apart_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "LIMIT", 100)
    with pytest.raises(ValueError, match=r"do not fit in one run .* sideband_verify_only"):
        make(MODEL, lab_options())


def test_a_gateway_asks_every_tier_over_both_families() -> None:
    asks = verify_data.asks(MODEL, "gateway1", 5)
    assert [one["name"] for one in asks] == [
        f"{name}/lake1/ipv{family}"
        for name in ("hot", "minute", "hot-gpus", "minute-gpus", "hot-jobs")
        for family in (4, 6)
    ]
    assert {one["port"] for one in asks} == {8430}
    assert verify_data.asks(MODEL, "node1", 5) == []


def test_every_gpu_that_the_budget_counts_must_show_itself() -> None:
    keys = [("node1", "0"), ("node1", "1"), ("node2", "0"), ("node2", "1"), ("node3", "0"), ("node3", "1")]
    assert verify_data.wanted(MODEL, "minute-gpus") == keys
    none = {**MODEL, "budget": {"nodes": [], "classes": {}}}
    assert verify_data.wanted(none, "minute-gpus") == []
    assert "hot-gpus/lake1/ipv4" not in [one["name"] for one in verify_data.asks(none, "gateway1", 5)]
    bare = {"order": ["full"], "levels": {"full": {"keep": "^(?:up)$", "period_seconds": 5}}}
    assert verify_data.wanted({**MODEL, "ladder": bare}, "hot-gpus") == []
    assert verify_data.wanted({**MODEL, "ladder": bare}, "hot-jobs") == []


def test_data_that_is_old_missing_or_not_asked_for_is_a_failed_check() -> None:
    rows = [
        {"labels": {"node": node, "job": job}, "value": 3.0}
        for node in ("node1", "node2", "node3")
        for job in ("node", "policy")
    ]
    rows[0]["value"] = 900.0
    del rows[1]
    answers = [
        {"name": "hot/lake1/ipv4", "problem": "", "rows": rows},
        {"name": "hot/lake1/ipv6", "problem": "OSError: no way", "rows": []},
    ]
    found = {one["name"]: (one["pass"], one["got"]) for one in verify_data.judge(MODEL, "gateway1", answers)}
    assert found["data hot/lake1/ipv4 node1 node"] == (False, "900 s old")
    assert found["data hot/lake1/ipv4 node1 policy"] == (False, "no sample")
    assert found["data hot/lake1/ipv4 node3 policy"] == (True, "3 s old")
    assert found["data hot/lake1/ipv6 node1 node"] == (False, "OSError: no way")
    assert found["data minute/lake1/ipv4 node1"] == (False, "not asked")


# -- questions


def wall_checks(rows: dict[str, list[dict[str, str]]], problem: str = "") -> dict[str, bool]:
    answers = [
        {
            "name": f"wall/{name}",
            "problem": problem,
            "rows": [{"labels": one, "value": 1.0} for one in labels],
        }
        for name, labels in rows.items()
    ]
    answers += [
        {"name": f"front/ipv{family}", "problem": verify_queries.REFUSED, "rows": []} for family in (4, 6)
    ]
    found = verify_queries.judge(MODEL, "gateway1", answers)
    return {one["name"]: one["pass"] for one in found}


def test_each_tenants_wall_is_looked_at_behind_the_front() -> None:
    asks = verify_queries.asks(MODEL, "gateway1", 5)
    assert [(one["name"], one.get("identity")) for one in asks] == [
        ("wall/alpha", "tenant/alpha"), ("wall/beta", "tenant/beta"),
        ("front/ipv4", None), ("front/ipv6", None),
    ]  # fmt: skip
    assert verify_queries.asks(MODEL, "node1", 5) == []


@pytest.mark.parametrize(
    ("alpha", "passes"),
    [
        ([{"rack": "rack1"}], True),
        ([{"rack": "rack1"}, {"rack": "rack2", "tenant": "alpha"}], True),
        ([{"rack": "rack1"}, {"rack": "rack2"}], False),
        ([{"rack": "rack1"}, {"rack": "rack1", "tenant": "beta"}], False),
        ([{"rack": "rack1"}, {"rack": "rack1", "tenant": "unassigned"}], False),
        ([{"rack": "rack1"}, {}], False),
        ([], False),
        ([{"rack": "rack2", "tenant": "alpha"}], False),
    ],
)
def test_a_wall_with_a_hole_or_without_a_window_fails(alpha: list[dict[str, str]], passes: bool) -> None:
    found = wall_checks({"alpha": alpha, "beta": [{"rack": "rack2"}]})
    assert found == {
        "query wall of alpha on gateway1": passes, "query wall of beta on gateway1": True,
        "query front ipv4 on gateway1 refuses strangers": True,
        "query front ipv6 on gateway1 refuses strangers": True,
    }  # fmt: skip


def test_a_gateway_that_does_not_answer_or_lets_strangers_in_fails() -> None:
    assert not any(verify["pass"] for verify in verify_queries.judge(MODEL, "gateway1", []))
    assert not wall_checks({"alpha": [{"rack": "rack1"}]}, "OSError: gone")["query wall of alpha on gateway1"]


def test_a_line_of_every_node_must_be_in_the_log_store() -> None:
    asks = verify_logs.asks(MODEL, "gateway1", 5)
    assert [one["name"] for one in asks] == ["logs/lake1/ipv4", "logs/lake1/ipv6"]
    answers = [right(MODEL, one) for one in asks]
    assert all(one["pass"] for one in verify_logs.judge(MODEL, "gateway1", answers))
    for broken in ({"rows": answers[0]["rows"][1:]}, {"problem": "refused"}, {"rows": []}):
        red = [
            one
            for one in verify_logs.judge(MODEL, "gateway1", [{**answers[0], **broken}, answers[1]])
            if not one["pass"]
        ]
        assert red
    twice = [{**row, "value": 2.0} for row in answers[0]["rows"]]
    red = verify_logs.judge(MODEL, "gateway1", [{**answers[0], "rows": twice}, answers[1]])
    assert [one["got"] for one in red if not one["pass"]][:1] == ["2 lines"]
