"""Wishes of tenants: read and set by their own certificate, read whole by the site's alerting (N2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from test_querygate_app import Bench, bench

assert bench  # the fixture
PATH = "/api/v1/wishes"
WISH = {
    "thresholds": {"gpu_utilisation_low_percent": 50, "loss_jump_ratio": 2.5},
    "channel": {"kind": "slack", "url": "https://hooks.slack.com/services/T/B/s3cr3t"},
    "quiet": ["TrainingGone"],
}


def wish(bench: Bench, text: str, who: str = "tenant/alpha") -> tuple[int, Any]:
    status, _, said = bench.send(PATH, "POST", urlencode({"wish": text}).encode(), who)
    return status, said


def test_a_tenant_sets_its_own_and_the_alerting_reads_all(bench: Bench) -> None:
    assert bench.send(PATH)[2]["data"] == {"wish": {}}
    assert wish(bench, json.dumps(WISH)) == (200, {"status": "success", "data": {"wish": WISH}})
    assert wish(bench, '{"quiet": []}', "tenant/beta")[0] == 200
    assert bench.send(PATH)[2]["data"] == {"wish": WISH}
    assert bench.send(PATH, who="tenant/beta")[2]["data"] == {"wish": {"quiet": []}}
    status, _, said = bench.send(PATH, who="alerts/region1")
    assert (status, said["data"]) == (200, {"wishes": {"alpha": WISH, "beta": {"quiet": []}}})
    assert wish(bench, "{}")[1]["data"] == {"wish": {}}
    assert bench.send(PATH, who="alerts/region1")[2]["data"] == {"wishes": {"beta": {"quiet": []}}}


def test_its_file_is_closed_and_the_audit_does_not_show_it(bench: Bench) -> None:
    wish(bench, json.dumps(WISH))
    bench.send(PATH, who="administrator/ops")
    assert (bench.directory / "wishes.sqlite").stat().st_mode & 0o777 == 0o600
    shown = [
        path for path in Path(bench.directory).rglob("*") if path.is_file() and "wishes" not in path.name
    ]
    assert not [path for path in shown if b"s3cr3t" in path.read_bytes()]


@pytest.mark.parametrize("who", ["administrator/ops", "archive/archiver"])
def test_others_have_none(bench: Bench, who: str) -> None:
    status, _, said = bench.send(PATH, who=who)
    assert (status, said["error"]) == (403, "wishes are tenants': each has its own")


def test_the_alerting_sets_none(bench: Bench) -> None:
    assert wish(bench, "{}", "alerts/region1")[0] == 403


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is no object of thresholds, channel, quiet"),
        ("{", "is no JSON"),
        ('{"thresholds": {}, "email": "a@b.c"}', "is no object of thresholds, channel, quiet"),
        ('{"thresholds": {"gpu_temperature_critical_celsius": 200}}',
         "thresholds: 'gpu_temperature_critical_celsius' cannot be tuned; "),
        ('{"thresholds": {"loss_jump_ratio": "2"}}', "thresholds.loss_jump_ratio: is no number"),
        ('{"thresholds": {"loss_jump_ratio": NaN}}', "thresholds.loss_jump_ratio: is no number"),
        ('{"channel": {"kind": "fax", "url": "https://hooks.slack.com/x"}}', "channel: is no object of "),
        ('{"channel": {"kind": "slack", "url": "https://evil.example/x"}}',
         "channel.url: leads to none of hooks.slack.com, http://10.0.0.1:8090"),
        ('{"channel": {"kind": "slack", "url": "http://hooks.slack.com/x"}}', "channel.url: leads to none "),
        ('{"channel": {"kind": "slack", "url": "https://hooks.slack.com@evil/x"}}',
         "channel.url: leads to none of "),
        ('{"quiet": "TrainingGone"}', "quiet: is no list of at most 50 alerts' names"),
        ('{"quiet": ["' + "a" * 4_100 + '"]}', "is longer than 4,096 bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_kept(bench: Bench, text: str, said: str) -> None:
    status, answer = wish(bench, text)
    assert status == 400
    assert answer["error"].startswith(f"wish: {said}")
    assert "s3cr3t" not in answer["error"]
    assert bench.send(PATH)[2]["data"] == {"wish": {}}
