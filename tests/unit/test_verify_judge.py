"""The judge: green on evidence alone, red with a cause that says where to look (the design's *Proof*)."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_kit import lab_model, lab_options
from sideband import packets, probe_facts, probe_outside, verify_page
from sideband.verify_checks import Verdict, judge
from sideband.verify_pairs import Plan, Probe
from sideband.verify_plan import make
from sideband.verify_request import PARTS, request
from verify_kit import right

Visits = dict[str, Any]
MODEL = lab_model()
PLAN = make(MODEL, lab_options())


def as_foretold(plan: Plan) -> Visits:
    """What the visits find where everything is as the contract says."""
    visits: Visits = {}
    for host in plan.hosts:
        devices = [part["device"] for part in plan.hosts[host]["interfaces"].values()]
        names = [counter["name"] for counter in plan.hosts[host]["counters"]]
        listening = request(MODEL, plan, host, "open", {}, 0)["listeners"]
        visits[host] = {
            "problem": "",
            "open": {
                "macs": {}, "hooks": [], "queues": [], "sockets": [], "counters": dict.fromkeys(names, 7),
                "answers": [[one["protocol"], one["address"], one["port"], ""] for one in listening],
                "versions": {"nft": "1.1.3"},
            },
            "shoot": {"connects": {}, "sent": [], "unsent": {}},
            "collect": {
                "problem": "", "counters": dict.fromkeys(names, 7),
                "devices": {d: {"seen": [], "answered": {}, "bystander": {}, "marks": []} for d in devices},
                "answers": [],
            },
        }  # fmt: skip
    dscp = {flow["name"]: flow["dscp_value"] for flow in MODEL["flows"]}
    for probe in plan.probes:
        there = visits[probe.catcher.host]["collect"]
        if probe.positive:
            visits[probe.leaves.host]["shoot"]["connects"][str(probe.number)] = ""
            ends = [probe.source, probe.source_port, probe.destination, probe.port]
            there["devices"][probe.catcher.device]["marks"].append([*ends, dscp.get(probe.flow, 0)])
            visits[probe.leaves.host]["collect"]["devices"][probe.leaves.device]["marks"].append(
                [*ends[2:], *ends[:2], dscp.get(probe.flow, 0)]
            )
            continue
        visits[probe.leaves.host]["shoot"]["sent"].append(probe.number)
        if probe.expect != "nowhere":
            there["devices"][probe.catcher.device]["seen"].append(probe.number)
            there["counters"][probe.counter] += 1
    for part in PARTS:
        for host in MODEL["hosts"]:
            answers = [right(MODEL, one, host) for one in part.asks(MODEL, host, 0)]
            visits.get(host, {"collect": {"answers": []}})["collect"]["answers"] += answers
    return visits


SOUND = as_foretold(PLAN)


@pytest.fixture
def visits() -> Visits:
    return copy.deepcopy(SOUND)


def verdict_of(visits: Visits, expected: tuple[str, ...] = ()) -> Verdict:
    return judge(MODEL, PLAN, visits, expected, 12.34)


def find(source: str, destination: str, plane: str, kind: str, shape: str = "syn") -> Probe:
    return next(
        p
        for p in PLAN.probes
        if tuple(p.pair) == (source, destination, plane, 4) and (p.kind, p.shape) == (kind, shape)
    )


def found(visits: Visits, probe: Probe) -> dict[str, Any]:
    here: dict[str, Any] = visits[probe.catcher.host]["collect"]["devices"][probe.catcher.device]
    return here


def red(visits: Visits, probe: Probe, cause: str) -> Verdict:
    verdict = verdict_of(visits)
    assert not verdict.passed
    state, mine = verdict.cells[probe.pair]
    assert state in ("fail", "untested")
    assert cause in "\n".join(one.cause for one in mine)
    assert any(cause in str(one) for one in verdict.causes), [str(one) for one in verdict.causes][:5]
    return verdict


def test_what_is_as_foretold_is_green(visits: Visits) -> None:
    verdict = verdict_of(visits)
    assert verdict.causes == []
    assert verdict.passed
    assert verdict.figures == {
        "pairs_expected": 414, "pairs_tested": 414, "pairs_untested": 0, "probes": len(PLAN.probes),
        "negative": len([p for p in PLAN.probes if not p.positive]), "negative_without_counter": 0,
        "negative_observed": 0, "positive": 160, "positive_failed": 0, "dscp_seen": 38, "dscp_expected": 38,
        "seconds": 12.3,
    }  # fmt: skip


def test_silence_without_a_rising_counter_is_red(visits: Visits) -> None:
    probe = find("rack1", "node1", "edge", "unlisted")
    visits["node1"]["collect"]["counters"]["edge0_unlisted"] -= 1
    verdict = red(visits, probe, "node1: edge0_unlisted: it did not count all that it must drop")
    assert verdict.figures["negative_without_counter"] > 0


def test_an_answer_is_red_even_where_the_counter_rose(visits: Visits) -> None:
    probe = find("rack1", "node1", "edge", "service port")
    found(visits, probe)["answered"][str(probe.number)] = "SYN-ACK"
    red(
        visits,
        probe,
        "a SYN to 10.21.0.11 port 48427 with source port 8427 from rack1 is answered (got SYN-ACK)",
    )


def test_an_answer_that_only_the_asker_saw_is_red(visits: Visits) -> None:
    """It may leave by another interface."""
    probe = find("rack1", "node1", "training", "other plane's address", "udp")
    visits["rack1"]["collect"]["devices"]["mgmt0"]["answered"][str(probe.number)] = "UDP answer"
    red(visits, probe, "UDP to 10.10.0.11 port 48427 from rack1 is answered (got UDP answer)")


def test_a_frame_that_never_arrived_is_red_and_names_both_switch_ports(visits: Visits) -> None:
    probe = find("rack1", "node1", "edge", "ack", "ack")
    found(visits, probe)["seen"].remove(probe.number)
    verdict = red(visits, probe, "node1: edge0: frames of rack1 do not arrive (got nothing)")
    said = str(verdict.causes[0])
    assert "node1's edge0 is behind tor1 port vec2, VLAN 21" in said
    assert "rack1's edge0 is behind tor1 port vec7, VLAN 21" in said


def test_a_counter_that_is_not_there_is_red(visits: Visits) -> None:
    probe = find("mgmt1", "node1", "training", "other plane's address")
    del visits["node1"]["collect"]["counters"]["mgmt0_address"]
    red(visits, probe, "node1: mgmt0_address: no such counter in force (got none)")


def test_a_deaf_listener_proves_nothing(visits: Visits) -> None:
    probe = find("rack1", "node1", "edge", "unlisted")
    for one in visits["node1"]["open"]["answers"]:
        if one[:3] == ["tcp", "10.21.0.11", 48427]:
            one[3] = "refused"
    red(visits, probe, "answers not even the host itself, so silence proves nothing (got refused)")


def test_frames_of_others_that_a_switch_floods_hide_no_missing_drop(visits: Visits) -> None:
    probe = find("rack1", "node1", "management", "other plane's address")
    assert probe.counter == "edge0_address"
    found(visits, probe)["bystander"] = {"9": 1}
    red(visits, probe, "node1: edge0_address: it did not count all")
    visits["node1"]["collect"]["counters"]["edge0_address"] += 1
    assert verdict_of(visits).passed


def test_a_flow_that_its_destination_drops_names_the_rule(visits: Visits) -> None:
    probe = find("node1", "rack1", "edge", "flow", "connect")
    visits["node1"]["shoot"]["connects"][str(probe.number)] = "timeout"
    visits["rack1"]["collect"]["counters"]["edge0_unlisted"] += 2
    red(visits, probe, "rack1: edge0_unlisted: drops what flow push allows (got timeout, and 2 more drops")


def test_a_flow_that_does_not_arrive_names_the_switch(visits: Visits) -> None:
    probe = find("node1", "rack1", "edge", "flow", "connect")
    visits["node1"]["shoot"]["connects"][str(probe.number)] = "timeout"
    marks = found(visits, probe)["marks"]
    marks[:] = [one for one in marks if one[1] != probe.source_port or one[0] != probe.source]
    red(visits, probe, "rack1: edge0: frames of node1 do not arrive (got timeout)")


def test_a_service_that_is_down_is_named_before_the_rules(visits: Visits) -> None:
    probe = find("node1", "rack1", "edge", "flow", "connect")
    visits["node1"]["shoot"]["connects"][str(probe.number)] = "refused"
    for one in visits["rack1"]["open"]["answers"]:
        if one[:3] == ["tcp", "10.21.0.21", 8427]:
            one[3] = "refused"
    red(
        visits,
        probe,
        "rack1: push/ipv4: port 8427 of 10.21.0.21 does not answer the host itself (got refused)",
    )


def test_a_frame_across_segments_is_red(visits: Visits) -> None:
    probe = find("node1", "rack2", "edge", "other segment")
    found(visits, probe)["seen"].append(probe.number)
    red(visits, probe, "rack2: edge0: a frame of node1's edge0 reached it across segments")


def test_a_capture_that_saw_nothing_proves_no_separation(visits: Visits) -> None:
    probe = find("node1", "rack2", "edge", "other segment")
    found(visits, probe)["seen"].clear()
    red(visits, probe, "rack2: edge0: no frame of this run arrived at all")


def test_a_frame_that_could_not_be_sent_leaves_the_pair_untested(visits: Visits) -> None:
    probe = find("rack1", "node1", "edge", "unlisted")
    visits["rack1"]["shoot"]["sent"].remove(probe.number)
    visits["rack1"]["shoot"]["unsent"][str(probe.number)] = "Network is down"
    verdict = red(visits, probe, "rack1: edge0: frame not sent (got Network is down)")
    assert verdict.figures["pairs_untested"] == 1


def test_a_host_that_was_not_visited_is_named_once(visits: Visits) -> None:
    visits["region1"] = {"problem": "no route to host"}
    verdict = verdict_of(visits)
    assert not verdict.passed
    assert next(str(one) for one in verdict.causes if "region1: probe" in str(one)).startswith(
        "region1: probe: not visited to the end (got no route to host); see that it is up"
    )
    assert verdict.figures["pairs_untested"] == 9 * 4 + 2 * (23 - 2)


def test_a_pair_that_was_not_expected_is_told(visits: Visits) -> None:
    expected = tuple(str(pair) for pair in PLAN.pairs[1:])
    verdict = verdict_of(visits, expected)
    assert not verdict.passed
    assert (
        f"no pair is tested that the wiring does not yield: does not hold (got ['{PLAN.pairs[0]}']"
        in "\n".join(map(str, verdict.causes))
    )


def test_a_lost_mark_is_red(visits: Visits) -> None:
    """Case 35: the far end decides."""
    probe = find("node1", "rack1", "edge", "flow", "connect")
    for mark in found(visits, probe)["marks"]:
        if mark[0] == "10.21.0.11":
            mark[4] = 0
    verdict = verdict_of(visits)
    assert not verdict.passed
    assert verdict.figures["dscp_seen"] == 36
    assert "verify: dscp push ipv4 out: does not hold (got [0, 8, 8]; want [8, 8, 8])" in str(
        verdict.causes[0]
    )


@pytest.mark.parametrize(
    ("socket", "bad"),
    [
        ({"address": "10.21.0.11", "user": "root", "group": "", "program": "nc"}, True),
        ({"address": "10.10.0.11", "user": "root", "group": "", "program": "train.py"}, False),
        ({"address": "10.10.0.11", "user": "sideband", "group": "", "program": "vmagent"}, True),
        (
            {"address": "0.0.0.0", "user": "root", "group": "/system.slice/ssh.service", "program": "sshd"},
            False,
        ),
        ({"address": "0.0.0.0", "user": "root", "group": "", "program": "/opt/sideband/vmagent -x"}, True),
        ({"address": "::", "user": "0", "group": "/sideband.slice/sideband-x.service", "program": "x"}, True),
    ],
)
def test_who_may_listen_on_a_node(visits: Visits, socket: dict[str, str], bad: bool) -> None:
    visits["node1"]["open"]["sockets"] = [{"protocol": "tcp", "port": 9100, "listens": True, **socket}]
    verdict = verdict_of(visits)
    assert verdict.passed is not bad
    if bad:
        assert str(verdict.causes[0]).startswith("node1: listeners: does not hold (got ['tcp port 9100 of ")


def test_a_connection_of_ours_on_the_training_plane_is_red(visits: Visits) -> None:
    ours = {"protocol": "tcp", "port": 40000, "listens": False, "address": "10.10.0.11", "user": "sideband"}
    visits["node1"]["open"]["sockets"] = [{**ours, "group": "", "program": "vmagent"}]
    assert "node1: training connections" in str(verdict_of(visits).causes[0])


def test_the_page_is_whole_and_shows_the_cause(visits: Visits, tmp_path: Path) -> None:
    probe = find("rack1", "node1", "edge", "service port")
    found(visits, probe)["answered"][str(probe.number)] = "SYN-ACK"
    page = verify_page.render(MODEL, PLAN, verdict_of(visits), {"commit": "<abc>"})
    assert page.count("data-p=") == 414
    assert page.count("half fail") == 1 + 1  # the cell, and the legend
    assert "The planes do not hold" in page
    assert "is answered (got SYN-ACK)" in page
    assert "<abc>" not in page
    assert "http" not in page.replace("<!doctype html>", "").replace("<html", "").replace("</html", "")
    told = json.loads(page.split("const TOLD=")[1].split(";\nconst box")[0])
    assert len(told) == 414
    assert "The planes hold" in verify_page.render(MODEL, PLAN, verdict_of(SOUND), {})


def test_a_visit_travels_as_text_and_runs_without_the_project(tmp_path: Path) -> None:
    """What a host outside the contract gets on its standard input."""
    program = probe_outside.program(
        "shoot", {"magic": 300, "rate": 0}, {"connects": [], "frames": []}, str(tmp_path)
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-"],
        input=program,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert {key: json.loads(done.stdout)[key] for key in ("connects", "sent", "unsent")} == {
        "connects": {}, "sent": [], "unsent": {},
    }  # fmt: skip


def test_a_command_that_fails_outside_says_why() -> None:
    with pytest.raises(OSError, match=r"sh -c echo gone >&2; exit 3: gone"):
        probe_outside.visit(
            ["sh", "-c", "echo gone >&2; exit 3"], "shoot", {"magic": 1, "seconds": 1}, {}, "/x"
        )


@pytest.mark.parametrize(
    ("text", "found_"),
    [
        ("0B00150A:20EB", ("10.21.0.11", 8427)),
        ("00000000:0016", ("0.0.0.0", 22)),
        ("5B0000FD00000000000000001100" + "0000" + ":0050", None),
        ("000000FD000000000000000011000000:0050", ("fd00::11", 80)),
        ("0000000000000000FFFF00000B00150A:0016", ("10.21.0.11", 22)),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel prints in its own byte order")
def test_socket_tables_are_read(text: str, found_: tuple[str, int] | None) -> None:
    if found_ is None:
        assert probe_facts._endpoint(text)[1] == 80
    else:
        assert probe_facts._endpoint(text) == found_


def test_numbers_fit_the_plan() -> None:
    assert max(p.number for p in PLAN.probes) <= packets.LIMIT


def test_hooks_are_found_in_the_words_of_every_nft() -> None:
    said = """table netdev other {
\tchain c {
\t\ttype filter hook ingress device "train0" priority filter; policy accept;
\t}

\tchain d {
\t\ttype filter hook egress devices = { "train0", edge0 } priority filter; policy accept;
\t}
}
table inet site {
\tchain input {
\t\ttype filter hook input priority filter; policy accept;
\t}
}
"""
    assert probe_facts.hooks_in(said, ["train0"]) == ["netdev other c train0", "netdev other d train0"]
    assert probe_facts.hooks_in(said, ["train"]) == []


@pytest.mark.parametrize(
    ("host", "question", "rows", "said"),
    [
        ("region1", "watchdog", [], "the watchdog is computed: does not hold (got no figure; want so)"),
        ("lake1", "received", [{"labels": {}, "value": 0.0}],
         "Alertmanager hears of alerts: does not hold (got 0.0; want so)"),
        ("lake1", "configuration", [{"labels": {}, "value": 7.0}],
         "configuration: does not hold (got 7.0; want "),
        ("lake1", "rules", [{"labels": {"daemon": "judge-near"}, "value": 3.0}],
         "rules of judge lake at 127.0.0.1:8555: does not hold (got 0; want "),
        ("region1", "daemons", [{"labels": {"daemon": "manager"}, "value": 0.0}],
         "daemons that do not answer: does not hold (got ['manager']; want [])"),
    ],
)  # fmt: skip
def test_alerting_that_does_not_live_is_red(
    visits: Visits, host: str, question: str, rows: list[dict[str, Any]], said: str
) -> None:
    """A6: the watchdog, the rules, the configuration and the daemons of each host that alerts."""
    (answer,) = [one for one in visits[host]["collect"]["answers"] if one["name"] == f"alerts/{question}"]
    answer["rows"] = rows
    verdict = verdict_of(visits)
    assert not verdict.passed
    assert any(f"alerts {host}: " in str(one) and said in str(one) for one in verdict.causes), verdict.causes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"problem": "ConnectionRefusedError: refused"},
            "does not hold (got ConnectionRefusedError: refused",
        ),
        ({"rows": [{"labels": {"rack": "rack1"}, "value": 1.0}]}, "does not hold (got ['rack1']; want ["),
        ({"name": "another"}, "does not hold (got not asked"),
    ],
)
def test_an_archive_that_cannot_read_is_red(visits: Visits, changes: dict[str, Any], said: str) -> None:
    """X1: by its own flow and certificate."""
    (answer,) = [one for one in visits["lake1"]["collect"]["answers"] if one["name"] == "export"]
    answer.update(changes)
    verdict = verdict_of(visits)
    assert not verdict.passed
    what = "archive lake1 reads every rack through the gateway: "
    assert any(what in str(one) and said in str(one) for one in verdict.causes), verdict.causes
