"""From a sample to those who are told, by the real daemons (A6, N1 to N3, Q4; cases 43, 71, 73, 74)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from alert_stack import NAMESPACE, STANDS, Stack
from contract_kit import lab
from notifier_kit import LONG, text
from sideband import alertmanager
from sideband.contract import compile_site

pytestmark = pytest.mark.root
KEY = "lab-s3cr3t"
SECRETS = {
    "vault_chat": f"http://{STANDS}/cgi-bin/webhook/send?key={KEY}",
    "vault_ding": f"http://{STANDS}/robot/send?access_token={KEY}",
    "vault_slack": f"http://{STANDS}/services/T0/B0/{KEY}",
    "vault_dead": f"http://{STANDS}/watchdog/{KEY}",
}
NOTIFY = {
    "receivers": [
        {"name": "inbox", "kind": "inbox"},
        {"name": "chat", "kind": "wecom", "secret_variable": "vault_chat"},
        {"name": "ding", "kind": "dingtalk", "secret_variable": "vault_ding"},
        {"name": "slack", "kind": "slack", "secret_variable": "vault_slack"},
    ],
    "routes": {"critical": ["chat", "ding", "slack"], "warning": ["chat"], "info": ["inbox"]},
    "watchdogs": [{"from": "region", "period": "60s", "secret_variable": "vault_dead"}],
}
NODE = 'site="lab",rack="rack1",node="node1"'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("alerts"))
    if not made.complete:
        pytest.skip("no programs to be had: lab/lab mirror brings them")
    subprocess.run(["ip", "netns", "delete", NAMESPACE], capture_output=True)
    hostvars, groups = lab()
    for variables in hostvars.values():
        variables["sideband_notify"] = NOTIFY
    made.lay_out(compile_site(hostvars, groups), SECRETS)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def told(stack: Stack, kind: str, since: float, *words: str) -> list[str]:
    """Texts that came to a stand-in and hold all these words."""
    found = [_words(one["body"]) for one in stack.seen(kind, KEY, since) if one["ok"]]
    return [one for one in found if all(word in one for word in words)]


def _words(body: dict[str, Any]) -> str:
    attachment = (body.get("attachments") or [{}])[0]
    return f"{attachment.get('title', '')}\n{text(body)}"


def test_a6_the_pulse_comes_to_the_switch_outside_again_and_again(stack: Stack) -> None:
    stack.wait(lambda: len(stack.seen("watchdog", KEY)) >= 3)
    bodies = [one["body"] for one in stack.seen("watchdog", KEY)]
    assert {body["alerts"][0]["labels"]["judge"] for body in bodies} == {"region1"}
    assert {body["status"] for body in bodies} == {"firing"}
    # Nobody else is bothered with it.
    assert not told(stack, "wecom", 0, "Watchdog")


def test_alertmanager_says_which_configuration_it_has(stack: Stack) -> None:
    """What verify holds it against."""
    path = stack.place("/etc/sideband/alerts/alertmanager.yml")
    (row,) = stack.wait(lambda: stack.ask("alertmanager_config_hash"))
    assert float(row["value"][1]) == alertmanager.fingerprint(path.read_text())
    assert row["metric"]["daemon"] == "manager"


def test_a_hot_gpu_is_told_and_untold(stack: Stack) -> None:
    since = time.time()
    series = f'DCGM_FI_DEV_GPU_TEMP{{{NODE},gpu="0",modelName="NVIDIA A",job="slurm-7",tenant="alpha"}}'

    def hot(kind: str, celsius: int, line: str) -> bool:
        stack.push(f"{series} {celsius}\n")
        return bool(told(stack, kind, since, "GpuHot", line))

    said = "GPU 0 of node1 is at 96 °C\n"
    for celsius, line in ((96, f"\n{said}"), (41, f"\nresolved: {said}")):
        for kind in ("wecom", "dingtalk", "slack"):
            stack.wait(lambda kind=kind, celsius=celsius, line=line: hot(kind, celsius, line))
    (first, *_) = told(stack, "wecom", since, "GpuHot")
    assert "docs/reference/alerts.md#gpuhot" in first
    (first, *_) = told(stack, "slack", since, "GpuHot", "1 firing")
    assert first.startswith("[lab] critical GpuHot: 1 firing\nGPU 0 of node1 is at 96 °C\n")
    # The list of everything has it with its tenant.
    inbox = [alert for one in stack.seen("hook", "inbox", since) for alert in one["body"]["alerts"]]
    (status,) = {alert["status"] for alert in inbox if alert["labels"]["alertname"] == "GpuHot"} - {
        "resolved"
    }
    assert status == "firing"
    assert {alert["labels"].get("tenant") for alert in inbox if alert["labels"]["alertname"] == "GpuHot"} == {
        "alpha"
    }


def test_case_74_a_node_that_never_came_is_missed_by_name(stack: Stack) -> None:
    since = time.time() - 3600
    stack.wait(lambda: told(stack, "wecom", since, "NodeGone", "Nothing has come from node2 in rack1"))
    rows = stack.ask('max by (node) (sideband_expected_node{job=""})')
    assert {row["metric"]["node"] for row in rows} == {"node1", "node2", "node3"}


def test_case_71_a_storm_with_chinese_text_arrives_whole(stack: Stack) -> None:
    since = time.time()
    names = [f"Overheated{number:03d}" for number in range(120)]
    stack.raise_alerts(
        [{"labels": {"alertname": name, "severity": "critical", "cluster": "c1", "site": "lab"},
          "annotations": {"summary": LONG}} for name in names]
    )  # fmt: skip

    def missing(kind: str) -> list[str]:
        whole = "".join(told(stack, kind, since))
        return [name for name in names if name not in whole]

    for kind in ("wecom", "dingtalk", "slack"):
        stack.wait(lambda kind=kind: not missing(kind), 90)
    for kind in ("wecom", "dingtalk"):
        assert [one["answer"] for one in stack.seen(kind, KEY, since) if not one["ok"]] == []
        assert "节点温度过高" in "".join(told(stack, kind, since))


def test_case_73_what_a_receiver_cannot_render_reaches_the_fall_back(stack: Stack) -> None:
    """The misspelt template of the case, deployed past its check."""
    path = stack.place("/etc/sideband/alerts/alertmanager.yml")
    whole = path.read_text()
    path.write_text(
        whole.replace('{{ template \\"sideband.text\\" . }}', '{{ template \\"tele.titel\\" . }}')
    )
    assert path.read_text() != whole
    since = time.time()
    try:
        stack.http("127.0.0.1:8552", "/-/reload", b"")
        stack.raise_alerts([{"labels": {"alertname": "Odd", "severity": "critical"}, "annotations": {}}])
        stack.wait(
            lambda: [one for one in stack.seen("hook", "inbox", since) if "Odd" in json.dumps(one["body"])]
        )
        stack.wait(lambda: told(stack, "wecom", since, "Odd"))
        stack.wait(lambda: "tele.titel" in stack.logs())
        assert not told(stack, "slack", since, "Odd")
    finally:
        path.write_text(whole)
        stack.http("127.0.0.1:8552", "/-/reload", b"")


def test_no_secret_is_in_a_log_or_an_answer(stack: Stack) -> None:
    stack.place("/etc/sideband/alerts/secrets/wecom-chat").write_text("http://127.0.0.1:1/?key=" + KEY)
    stack.raise_alerts([{"labels": {"alertname": "Lost", "severity": "critical"}, "annotations": {}}])
    stack.wait(lambda: "wecom chat: Connection refused" in stack.logs())
    asked = [stack.http("127.0.0.1:8552", "/api/v2/status"), stack.http("127.0.0.1:8553", "/metrics")]
    assert KEY not in stack.logs() + b"".join(asked).decode()
    failed = 'sideband_notifier_failed_total{integration="wecom"}'
    stack.wait(lambda: [row for row in stack.ask(failed) if float(row["value"][1]) > 0])
