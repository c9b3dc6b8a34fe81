"""One machine (O3): every role on a fresh host, by a local connection and one command, beside what a
researcher runs there already; data flows end to end, and a level can be set."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from bench import single_site, spare_site

pytestmark = pytest.mark.lab
NAME, SUITE = "single13", "trixie"
HOT, NEAR = (f"http://127.0.0.1:{port}/api/v1/query?query=" for port in (8534, 8551))
# Of a process below sideband's slice: where it listens, but for loopback.
OPEN = """
import subprocess
for line in subprocess.run(["ss", "-Htlnup"], capture_output=True, text=True).stdout.splitlines():
    if "127." in line.split()[4] or "pid=" not in line:
        continue
    pid = line.split("pid=")[1].split(",")[0]
    if "sideband" in open(f"/proc/{pid}/cgroup").read():
        print(line)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[str]:
    with single_site.machine(NAME, SUITE) as host:
        single_site.researcher(host)
        single_site.checkout(host, SUITE)
        began = time.monotonic()
        single_site.play(host, "site")
        print(f"one machine: installed in {time.monotonic() - began:.0f} s")
        yield host


def hot(host: str, query: str) -> list[dict[str, Any]]:
    return stored(host, HOT, query)


def stored(host: str, store: str, query: str) -> list[dict[str, Any]]:
    program = (
        f"import urllib.request as r; print(r.urlopen({store + urllib.parse.quote(query)!r}).read().decode())"
    )
    found: list[dict[str, Any]] = json.loads(spare_site.inside(host, "python3", "-c", program))["data"][
        "result"
    ]
    return found


def test_a_sample_of_the_node_is_in_the_hot_tier(machine: str) -> None:
    until = time.monotonic() + 60
    while not (rows := hot(machine, 'up{job="node"}')) and time.monotonic() < until:
        time.sleep(2)
    (row,) = rows
    labels = {name: row["metric"][name] for name in ("node", "rack", "site")}
    assert labels == {"node": "machine1", "rack": "rack1", "site": "single"}
    assert row["value"][1] == "1"


def test_the_gateway_answers_the_one_tenant(machine: str) -> None:
    ask = ("env", "-C", single_site.PLACE, "tools/ask", "node_load1:1m_max")
    until = time.monotonic() + 180
    while not (text := spare_site.inside(machine, *ask).strip()) and time.monotonic() < until:
        time.sleep(3)
    value, labels = text.split("\t")
    assert float(value) >= 0
    assert "rack=rack1" in labels.split()


def test_alerting_lives_and_has_nothing_to_say(machine: str) -> None:
    """Both judges on one machine, and no alarm of a machine on which all is well (A6)."""
    until = time.monotonic() + 60
    firing = 'ALERTS{alertstate="firing"}'
    while not (rows := stored(machine, NEAR, firing)) and time.monotonic() < until:
        time.sleep(2)
    names = {row["metric"]["alertname"] for row in rows}
    assert "Watchdog" in names
    assert (
        not {"NodeGone", "RackGone", "OwnDaemonDown", "ExpectedSetGone", "NotifyFails", "RulesFail"} & names
    )


def test_a_machine_without_gpus_is_silent_about_them(machine: str) -> None:
    for unit in ("sideband-sample", "sideband-job"):
        assert spare_site.inside(machine, "systemctl", "is-active", unit).strip() == "active"
    assert hot(machine, '{__name__=~"DCGM_.*|sideband_gpu_.*"}') == []
    assert hot(machine, "sideband_jobs_up") != []
    said = spare_site.inside(machine, "journalctl", "-o", "cat", "-u", "sideband-sample", "_COMM=python3")
    assert said == ""


def test_a_rollback_changes_the_level(machine: str) -> None:
    single_site.play(machine, "rollback", "-e", "level=core")
    levels = {row["metric"]["level"] for row in hot(machine, "sideband_policy_level")}
    assert "core" in levels


def test_nothing_of_ours_is_reached_from_elsewhere_and_theirs_runs_on(machine: str) -> None:
    assert spare_site.inside(machine, "python3", "-", text=OPEN) == ""
    assert single_site.researchers_services(machine) == single_site.THEIRS
    assert "sideband" not in spare_site.inside(machine, "nft", "list", "tables")
