"""The filters of role rollout over the lab's own model: what plays hand in and get back."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import contract_kit
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from sideband.contract import compile_site

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("rollout_filters", ROOT / "filter_plugins/rollout.py")
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
FILTERS: dict[str, Any] = MODULE.FilterModule().filters()

HOSTVARS, GROUPS = contract_kit.lab()
MODEL = compile_site(HOSTVARS, GROUPS)


def rings(inventory: str) -> dict[str, list[str]]:
    text = (ROOT / "inventories" / inventory / "rings.yml").read_text(encoding="utf-8")
    groups = yaml.safe_load(text)["all"]["children"]
    return {name: list(group["hosts"]) for name, group in groups.items()}


def test_the_labs_rings_are_steps_and_nodes_come_first() -> None:
    steps = FILTERS["sideband_rollout_plan"](MODEL, {**GROUPS, **rings("lab")})
    assert steps["canary"] == {"ring": "canary", "hosts": ["node1"]}
    assert steps["early"]["hosts"] == ["node2"]
    assert list(steps)[2:] == [f"fleet_{number}" for number in range(1, len(steps) - 1)]
    assert sorted(host for step in steps.values() for host in step["hosts"]) == sorted(MODEL["hosts"])


def test_the_canary_inventory_is_a_slice_and_has_the_same_site() -> None:
    groups = {**{name: hosts for name, hosts in GROUPS.items() if "_ring_" not in name}, **rings("canary")}
    steps = FILTERS["sideband_rollout_plan"](MODEL, groups)
    assert steps["canary"]["hosts"] == ["node3", "rack2"]
    for name in ("group_vars", "host_vars", "site.yml"):
        assert (ROOT / "inventories/canary" / name).resolve().is_relative_to(ROOT / "inventories/lab")


def test_faults_of_rings_come_as_one_error() -> None:
    groups = {**GROUPS, "sideband_ring_canary": ["node1", "ghost"], "sideband_ring_erly": ["node2"]}
    with pytest.raises(AnsibleFilterError) as caught:
        FILTERS["sideband_rollout_plan"](MODEL, groups)
    assert str(caught.value).count("\n") == 1


def seen(**changes: Any) -> dict[str, Any]:
    vitals = {
        "at": 1.0, "boot": "b", "generations": {}, "units": {}, "listeners": [], "counters": {}, "queues": {},
        "agents": {}, "cpu_seconds": 0.0, "memory_bytes": 0, "files": {}, "rules": {}, "shapes": {},
        "unanswered": {},
    }  # fmt: skip
    vitals.update(changes)
    return {"vitals": vitals}


STEP = {"ring": "canary", "hosts": ["node1"]}
NAMES = [
    "up", "node_cpu_seconds_total", "node_memory_MemFree_bytes", "node_disk_read_bytes_total",
    "node_network_up",
    "node_filesystem_files", "node_load1", "node_vmstat_oom_kill", "node_pressure_cpu_waiting_seconds_total",
    "node_netstat_Tcp_InSegs", "node_sockstat_TCP_inuse", "node_boot_time_seconds", "node_time_seconds",
    "node_context_switches_total", "node_forks_total", "node_procs_running", "node_uname_info",
    "node_textfile_mtime_seconds", "sideband_jobs_count", "sideband_logs_up",
]  # fmt: skip


def answers(names: list[str], level: str = "full") -> dict[str, Any]:
    listed = [{"metric": {"__name__": name, "node": "node1"}} for name in names]
    levels = [{"metric": {"node": "node1", "level": level}}]
    return {"names": {"data": {"result": listed}}, "levels": {"data": {"result": levels}}}


def judged(variables: dict[str, Any], series: dict[str, Any], probes: bool | None = True) -> dict[str, Any]:
    if probes is not None:
        shown = {"passed": probes, "causes": [] if probes else ["rule gone on node1"]}
        variables = {**variables, "__verify_verdict": shown}
    before = {"node1": variables["__rollout_before"]["vitals"]} if "__rollout_before" in variables else {}
    found: dict[str, Any] = FILTERS["sideband_verdict"](STEP, MODEL, {"node1": variables}, before, series, {})
    return found


WHOLE = {
    "__rollout_before": seen(),
    "__rollout_after": seen(),
    "__rollout_soaked": seen(at=40.0),
    "__rollout_applied": True,
}


def test_a_sound_node_passes_and_nothing_goes_back() -> None:
    found = judged(WHOLE, {"before": answers(NAMES), "now": answers(NAMES)})
    assert found == {"passed": True, "cause": "", "failed": {}, "findings": [], "back": []}


def test_a_lower_level_asks_for_fewer_series() -> None:
    few = [
        "up",
        "node_memory_MemAvailable_bytes",
        "node_filesystem_avail_bytes",
        "node_load1",
        "node_vmstat_oom_kill",
        "sideband_jobs_up",
        "sideband_logs_up",
        "sideband_logs_rsyslog_up",
        "sideband_logs_spool_bytes",
    ]
    assert judged(WHOLE, {"now": answers(few, "core")})["passed"] is True
    assert judged(WHOLE, {"now": answers(few, "full")})["passed"] is False


def test_lost_series_a_red_probe_and_no_probe_stop_the_ring() -> None:
    full = {"before": answers(NAMES), "now": answers(NAMES)}
    assert judged(WHOLE, {"now": answers(["up"])})["cause"].startswith(
        "node1: series: series did not arrive: node_cpu"
    )
    assert judged(WHOLE, {})["cause"].startswith("node1: series: no series arrived")
    assert judged(WHOLE, full, probes=False)["cause"] == "all: probes: rule gone on node1"
    assert judged(WHOLE, full, probes=None)["cause"].startswith("all: probes: the planes could not be probed")
    assert judged(WHOLE, full, probes=False)["back"] == ["node1"]


def test_a_switch_sends_no_packets_so_others_say_what_the_probes_showed() -> None:
    step = {"ring": "fleet", "hosts": ["tor1"]}
    hostvars = {"tor1": WHOLE, "rack2": {"__verify_verdict": {"passed": True, "causes": []}}, "node1": {}}
    before = {"tor1": WHOLE["__rollout_before"]["vitals"]}
    assert FILTERS["sideband_verdict"](step, MODEL, hostvars, before, {}, {})["passed"]
    hostvars["rack2"]["__verify_verdict"] = {}  # as it is set before each step's probes
    found = FILTERS["sideband_verdict"](step, MODEL, hostvars, before, {}, {})
    assert found["cause"].startswith("all: probes: the planes could not be probed")


def test_an_unreachable_host_has_nothing_to_go_back_to() -> None:
    lost = {"__rollout_before": {"unreachable": True, "msg": "Connection refused"}}
    found = FILTERS["sideband_verdict"](STEP, MODEL, {"node1": lost}, {}, {}, {})
    assert found["cause"] == "node1: reach: did not answer before the change; Connection refused"
    assert found["back"] == []


def test_queries_name_the_step_and_wait_for_the_slowest_level() -> None:
    assert FILTERS["sideband_level_query"](["node1", "node2"], MODEL) == (
        'last_over_time(sideband_policy_level{node=~"node1|node2"}[30s])'
    )
    assert "[15s]" in FILTERS["sideband_names_query"](["node1"], MODEL, answers([]))
    assert "[90s]" in FILTERS["sideband_names_query"](["node1"], MODEL, answers([], "core"))
    assert FILTERS["sideband_soak"](MODEL, ["node1"], {"before": answers([], "core")}) == 120


def test_what_a_host_connects_to_and_what_it_owns() -> None:
    assert FILTERS["sideband_connects"](MODEL["hosts"]["node1"]) == [
        "10.21.0.21:8427",
        "10.21.0.21:8431",
        "[fd00:5b:21::21]:8427",
        "[fd00:5b:21::21]:8431",
    ]
    assert FILTERS["sideband_devices"](MODEL["hosts"]["node1"]) == ["edge0"]
    assert FILTERS["sideband_devices"](MODEL["hosts"]["tor1"]) == []


def test_the_first_look_takes_the_interpreter_that_is_set() -> None:
    assert " /opt/py '/x y'" not in FILTERS["sideband_first_look"]("/x y")
    assert "'/x y' /usr/bin/python3" in FILTERS["sideband_first_look"]("/x y")
    assert "auto" not in FILTERS["sideband_first_look"]("auto_silent")
    assert FILTERS["sideband_may_run"]({"stdout": "sideband-python /usr/bin/python3 3.11.2\n"}) is True
    assert FILTERS["sideband_may_run"]({"stdout": "sideband-python /usr/bin/python3 3.6.8\n"}) is False
    assert FILTERS["sideband_may_run"]({"unreachable": True}) is False
    here = {"stdout": "sideband-here\nsideband-python /usr/bin/python3 3.11.2\n"}
    assert FILTERS["sideband_may_run"](here) is True
    assert FILTERS["sideband_may_run"](here, False) is False
    assert FILTERS["sideband_may_run"]({"stdout": "sideband-python /usr/bin/python3 3.11.2\n"}, False) is True


def test_the_world_is_judged_host_by_host() -> None:
    look = {
        "stdout": 'sideband-os ID=debian\nsideband-os VERSION_ID="13"\n'
        "sideband-python /usr/bin/python3 3.13.5\n"
    }
    facts = {
        "kernel": "6.12.0", "nft": "1.1.3", "interfaces": ["lo", "train0", "edge0", "mgmt0"],
        "disk_free_bytes": 2**34, "service_manager": "systemd", "rivals": [],
    }  # fmt: skip
    hostvars = {"node1": {"__preflight_look": look, "__preflight_facts": {"facts": facts}}, "node2": {}}
    assert FILTERS["sideband_world_errors"](["node1"], hostvars, MODEL) == []
    assert FILTERS["sideband_world_errors"](["node2"], hostvars, MODEL) == [
        "node2: ansible_host: cannot be reached; "
        "ssh to it by hand with the inventory's address, port and user"
    ]
    # In a rollout its ring counts it as failed (case 13).
    assert FILTERS["sideband_world_errors"](["node2"], hostvars, MODEL, False) == []
    hostvars["node1"]["__preflight_facts"] = {"unreachable": True, "msg": "boom"}
    assert FILTERS["sideband_world_errors"](["node1"], hostvars, MODEL, False) == []
    hostvars["node1"]["__preflight_facts"] = {"msg": "boom"}
    assert (
        "facts: could not be read (got 'boom')"
        in FILTERS["sideband_world_errors"](["node1"], hostvars, MODEL)[0]
    )


def test_a_host_that_sideband_is_on_is_not_looked_at_again_unless_for_a_rollout() -> None:
    text = "sideband-os ID=debian\nsideband-os VERSION_ID=13\nsideband-python /usr/bin/python3 3.13.5\n"
    skipped = {"changed": False, "skipped": True, "skip_reason": "Conditional result was False"}

    def said(look: str) -> Any:
        variables = {"__preflight_look": {"stdout": look}, "__preflight_facts": skipped}
        return FILTERS["sideband_world_errors"](["node1"], {"node1": variables}, MODEL)

    assert said(text + "sideband-here\n") == []
    assert "facts: could not be read" in said(text)[0]
    # its system is, each time
    assert (
        "Debian 14 is not supported"
        in said("sideband-here\nsideband-os NAME=Debian\n" + text.replace("ID=13", "ID=14"))[0]
    )


def test_a_release_is_named_by_contract_and_code_and_by_nothing_that_runs_make(tmp_path: Path) -> None:
    (tmp_path / "roles/x").mkdir(parents=True)
    (tmp_path / "roles/x/a.yml").write_text("one")
    names = [FILTERS["sideband_release"](MODEL, str(tmp_path))]
    for made in (
        "services/build/a.pyz",
        "roles/x/__pycache__/a.pyc",
        ".sideband/lab/rollout.json",
        "reports/x.json",
    ):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("made")
    assert FILTERS["sideband_release"](MODEL, str(tmp_path)) == names[0]
    names.append(FILTERS["sideband_release"]({**MODEL, "digest": "other"}, str(tmp_path)))
    (tmp_path / "roles/x/a.yml").write_text("two")
    names.append(FILTERS["sideband_release"](MODEL, str(tmp_path)))
    assert len(set(names)) == 3
