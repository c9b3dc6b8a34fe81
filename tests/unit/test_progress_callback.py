"""The progress callback: times, and a next step for every failure that counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import context

from callback_plugins.sideband_progress import CallbackModule, minutes, reason


class Display:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, text: str, color: str = "") -> None:
        self.lines.append(text)


def named(name: str) -> Any:
    return SimpleNamespace(get_name=lambda: name)


def result(host: str, task: str, **content: Any) -> Any:
    return SimpleNamespace(host=named(host), task=named(task), result=content)


def stats(**hosts: tuple[int, int]) -> Any:
    counts = {host: {"failures": bad, "unreachable": away} for host, (bad, away) in hosts.items()}
    return SimpleNamespace(summarize=counts.__getitem__)


@pytest.fixture
def callback() -> CallbackModule:
    times = iter([0.0, 1.0, 4.5, 4.5, 65.0])
    module = CallbackModule(clock=lambda: next(times))
    module._display = Display()
    return module


def test_every_play_gets_one_line_with_its_time(callback: CallbackModule) -> None:
    callback.v2_playbook_on_play_start(named("Mirror"))
    callback.v2_playbook_on_play_start(named("Identities"))
    callback.v2_playbook_on_stats(stats())
    assert callback._display.lines == ["[0:04] Mirror: 3.5 s", "[1:05] Identities: 60.5 s"]
    callback.v2_playbook_on_stats(stats())  # several playbooks in one command: each ends with its own
    assert len(callback._display.lines) == 2


def test_case_13_failures_and_absences_name_host_task_reason_and_next_step(callback: CallbackModule) -> None:
    callback.v2_runner_on_failed(result("node1", "host : Apply", msg="unit did not stay up\n  journal"))
    callback.v2_runner_on_unreachable(result("gpu001", "host : Look", msg="Connection refused"))
    callback.v2_playbook_on_stats(stats(node1=(1, 0), gpu001=(0, 1)))
    assert callback._display.lines == [
        "gpu001: unreachable at 'host : Look': Connection refused",
        "  next: see that it runs and that ssh reaches it over the management plane",
        "node1: failed at 'host : Apply': unit did not stay up",
        "  next: mend the reason above",
        "  then run the same command again, or on these alone: --limit gpu001,node1"
        " (what is done is not done twice)",
    ]


def test_ignored_and_rescued_failures_are_not_told(callback: CallbackModule) -> None:
    callback.v2_runner_on_failed(result("node1", "probe", msg="no"), ignore_errors=True)
    callback.v2_runner_on_failed(result("node2", "try", msg="no"))
    callback.v2_playbook_on_stats(stats(node1=(0, 0), node2=(0, 0)))
    assert callback._display.lines == []


def test_the_reason_is_one_line() -> None:
    assert reason({"msg": "\n  a\nb"}) == "a"
    assert (
        reason({"msg": "One or more items failed", "results": [{"failed": True, "msg": "disk full"}]})
        == "disk full"
    )
    assert reason({}) == "see the output above"
    assert minutes(3599) == "59:59"


def test_a_fault_on_the_controller_limits_nothing_to_it(callback: CallbackModule) -> None:
    callback.v2_runner_on_failed(result("localhost", "contract : Stop", msg="does not hold"))
    callback.v2_playbook_on_stats(stats(localhost=(1, 0)))
    assert callback._display.lines[-1] == "  then run the same command again"


def test_a_file_that_stops_ansible_is_named_once(
    callback: CallbackModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts.yml").write_text("a: {b\n", encoding="utf-8")
    monkeypatch.setattr(context, "CLIARGS", {"inventory": (str(tmp_path),)})
    callback.v2_playbook_on_play_start(named("Mirror"))
    callback.v2_playbook_on_play_start(named("Identities"))
    assert [line for line in callback._display.lines if "is no YAML" in line] == [
        "all: hosts.yml:2:1: is no YAML: while parsing a flow mapping did not find expected ',' or '}';"
        " mend the file; nothing of it can be read"
    ]


def test_a_verb_for_a_whole_site_is_run_again_whole(callback: CallbackModule) -> None:
    callback.v2_playbook_on_start(SimpleNamespace(_file_name="/x/playbooks/rollout.yml"))
    callback.v2_runner_on_failed(result("node1", "Judge", msg="no"))
    callback.v2_playbook_on_stats(stats(node1=(1, 0)))
    assert callback._display.lines[-1] == "  then run the same command again"
