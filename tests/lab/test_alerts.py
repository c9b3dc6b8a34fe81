"""Alerts on the lab, told at stand-ins on mgmt1 that enforce the real limits (A6, N1, N3; cases 71, 74)."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from front import site
from notifier_kit import LONG, text

pytestmark = pytest.mark.lab
OUTSIDE = "http://10.90.0.61:8090"
STORE = 8551
KEPT = "/var/lib/sideband/alerts/notifier/wishes.json"


def seen(kind: str, since: float) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{OUTSIDE}/seen?since={since}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())
    return [one for one in found if one["kind"] == kind]


def told(kind: str, since: float, *words: str) -> list[str]:
    texts = []
    for one in seen(kind, since):
        assert one["ok"], one["answer"]
        attachment = (one["body"].get("attachments") or [{}])[0]
        texts.append(f"{attachment.get('title', '')}\n{text(one['body'])}")
    return [one for one in texts if all(word in one for word in words)]


def until(works: Callable[[], Any], what: str, seconds: float = 100) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := works()):
        assert time.monotonic() < deadline, what
        time.sleep(0.5)
    return found


def on(host: str, *argv: str) -> str:
    return subprocess.run(
        [str(site.PROJECT / "lab/lab"), "exec", host, *argv], check=True, capture_output=True, text=True
    ).stdout


def near(query: str) -> list[dict[str, Any]]:
    """What the store beside the region's judge says."""
    path = "/api/v1/query?nocache=1&query=" + urllib.parse.quote(query)
    rows: list[dict[str, Any]] = json.loads(site.local("region1", STORE, path))["data"]["result"]
    return rows


def inject(line: str) -> None:
    url = f"http://127.0.0.1:{STORE}/api/v1/import/prometheus"
    on(
        "region1",
        "python3",
        "-c",
        f"import urllib.request as u; u.urlopen(u.Request({url!r}, {line.encode()!r}))",
    )


def raise_alerts(alerts: list[dict[str, Any]], until: float) -> None:
    """Handed to the region's Alertmanager itself."""
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
    code = ("import sys, urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:8552/api/v2/alerts',"
            " sys.stdin.buffer.read(), {'Content-Type': 'application/json'}))")  # fmt: skip
    told = json.dumps([{**one, "endsAt": ends} for one in alerts]).encode()
    argv = [str(site.PROJECT / "lab/lab"), "exec", "region1", "python3", "-c", code]
    subprocess.run(argv, input=told, check=True, capture_output=True)


def test_a6_each_side_calls_its_own_switch_outside() -> None:
    since = time.time() - 60
    for side in ("region", "lake"):
        until(lambda side=side: [one for one in seen("watchdog", since) if one["key"] == side], side)


def test_case_74_the_region_knows_every_host_that_there_should_be() -> None:
    rows = until(lambda: near("max by (node) (last_over_time(sideband_expected_node[5m]))"), "expected set")
    assert {row["metric"]["node"] for row in rows} == set(site.RACK)
    assert {row["metric"]["node"] for row in near('up{job="policy"}')} == set(site.RACK)
    assert near('ALERTS{alertname="NodeGone",alertstate="firing"}') == []


@pytest.fixture(scope="module")
def hot() -> tuple[float, str]:
    """(since when, what is said) of a GPU that ran hot while the lake was down, on a node of no contract; it
    was told at two chats, and has cooled down since."""
    since, node = time.time(), f"ghost{int(time.time()) % 10000}"
    said = f"GPU 0 of {node} is at 97 °C"
    series = f'DCGM_FI_DEV_GPU_TEMP{{site="lab",rack="rack1",node="{node}",gpu="0",modelName="fake"}}'

    def heated(kind: str, celsius: int, *words: str) -> bool:
        inject(f"{series} {celsius}\n")
        return bool(told(kind, since, "GpuHot", *words))

    on("lake1", "systemctl", "stop", "sideband-lake-front", "sideband-minute", "sideband-hot")
    try:
        for kind in ("wecom", "slack"):
            until(lambda kind=kind: heated(kind, 97, said), f"{kind} was not told")
    finally:
        on("lake1", "systemctl", "start", "sideband-hot", "sideband-minute", "sideband-lake-front")
    inject(f"{series} 40\n")
    return since, said


def test_a_critical_alert_is_told_at_two_chats_without_the_lake(hot: tuple[float, str]) -> None:
    (first, *_) = told("wecom", *hot)
    assert "docs/reference/alerts.md#gpuhot" in first


def test_case_71_a_storm_arrives_whole_in_few_messages() -> None:
    since = time.time()
    names = [f"Overheated{number:03d}" for number in range(120)]
    raise_alerts(
        [{"labels": {"alertname": name, "severity": "critical", "cluster": "c1", "site": "lab"},
          "annotations": {"summary": LONG}} for name in names],
        since + 60,
    )  # fmt: skip
    for kind in ("wecom", "dingtalk"):
        until(lambda kind=kind: not _missing(kind, since, names), f"{kind}: some were not told")
        assert len(seen(kind, since)) <= 12
        assert "节点温度过高" in "".join(told(kind, since))


def _missing(kind: str, since: float, names: list[str]) -> list[str]:
    whole = "".join(told(kind, since))
    return [name for name in names if name not in whole]


def test_n2_a_tenant_tunes_its_own_alerts_without_the_contract() -> None:
    """By its certificate at the gateway: a threshold for its jobs, and a channel of its own."""
    wish = {
        "thresholds": {"loss_jump_ratio": 2.5},
        "channel": {"kind": "wecom", "url": f"{OUTSIDE}/cgi-bin/webhook/send?key=lab-alpha"},
        "quiet": ["LossFlat"],
    }
    desk = site.tenant("tenant-alpha")
    form = [("Content-Type", "application/x-www-form-urlencoded")]

    def wished(value: dict[str, Any]) -> int:
        body = urllib.parse.urlencode({"wish": json.dumps(value)}).encode()
        return desk.ask("POST", "/api/v1/wishes", body, form).status

    assert wished({"channel": {"kind": "slack", "url": "https://evil.example/x"}}) == 400
    assert wished(wish) == 200
    try:
        for host in ("region1", "lake1"):
            until(
                lambda host=host: "lab-alpha" in on(host, "sh", "-c", f"cat {KEPT} || true"),
                f"{host} heard of no wish",
                90,
            )
        since = time.time()
        labels = {"severity": "warning", "tenant": "alpha", "job": "j", "site": "lab"}
        told = {"summary": "The loss of j jumps"}
        raise_alerts(
            [
                {"labels": {**labels, "alertname": name}, "annotations": told}
                for name in ("LossJumps", "LossFlat")
            ],
            since + 20,
        )
        until(
            lambda: [one for one in seen("wecom", since) if one["key"] == "lab-alpha"], "alpha was not told"
        )
        (first, *_) = [text(one["body"]) for one in seen("wecom", since) if one["key"] == "lab-alpha"]
        assert "The loss of j jumps" in first
        assert "LossFlat" not in first
    finally:
        assert wished({}) == 200


def test_what_was_told_is_untold(hot: tuple[float, str]) -> None:
    since, said = hot
    until(lambda: told("wecom", since, f"resolved: {said}"), "wecom was not told that it is over")
    until(lambda: told("slack", since, "GpuHot", "1 resolved"), "slack was not told that it is over")
