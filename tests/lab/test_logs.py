"""Logs and training curves of the lab, from a node to the store and the tier (L1, L3, L4, C11; acceptance 1
and 2)."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from front import site

pytestmark = pytest.mark.lab
UID = 20011
LOOP = """
import sys, time
for step in range(100000):
    print(f"step {step} loss {1 / (step + 1):.4f} MARK", flush=True)
    time.sleep(0.5)
"""
HOLE = "add table inet ltest; add chain inet ltest c { type filter hook output priority 0; }; " \
       "add rule inet ltest c tcp dport 8431 drop"  # fmt: skip
Rows = list[dict[str, Any]]


def on(script: str, host: str = "node1", check: bool = True) -> str:
    done = subprocess.run(
        [str(site.PROJECT / "lab/lab"), "exec", host, "sh", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0 or not check, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def stored(query: str) -> Rows:
    text = site.local("lake1", 8537, "/select/logsql/query?query=" + urllib.parse.quote(query))
    return [json.loads(line) for line in text.splitlines() if line]


def when(query: str, seconds: float = 30) -> tuple[Rows, float]:
    began = time.monotonic()
    while not (found := stored(query)) and time.monotonic() - began < seconds:
        time.sleep(0.2)
    return found, time.monotonic() - began


@pytest.fixture(scope="module")
def training() -> Iterator[str]:
    """A loop under a tenant's uid; nobody was told of it. Its mark is on every line."""
    mark, home = f"m{uuid.uuid4().hex[:12]}", "/tmp/alpha-logs"
    loop = LOOP.replace("MARK", mark)
    on(f"mkdir -p {home} && cat >{home}/train_logs.py <<'END'\n{loop}END\nchown -R {UID}:{UID} {home}")
    setpriv = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    run = f"cd {home}; exec python3 train_logs.py >run.out 2>&1"
    pid = int(on(f"setsid {setpriv} sh -c '{run}' >/dev/null 2>&1 & echo $!"))
    yield mark
    on(f"kill {pid} 2>/dev/null; rm -rf {home}; true")


def test_what_logger_says_is_found() -> None:
    mark = f"m{uuid.uuid4().hex[:12]}"
    on(f"logger -t lab-test -p user.warning {mark} größer")
    found, seconds = when(mark)
    (row,) = found
    print(f"searchable after {seconds:.1f} s")
    want = {"node": "node1", "rack": "rack1", "site": "lab", "source": "journal", "program": "lab-test",
            "severity": "warning", "owner": "0", "_msg": f"{mark} größer"}  # fmt: skip
    assert want.items() <= row.items()
    assert "tenant" not in row


def test_a_training_s_lines_are_its_tenant_s_and_its_steps_are_a_curve(training: str) -> None:
    found, _ = when(f"{training} step", 60)
    row = found[0]
    assert (row["tenant"], row["node"], row["source"]) == ("alpha", "node1", "file")
    assert row["file"] == "/tmp/alpha-logs/run.out"
    job = row["job"]
    query = f'sideband_train_step{{job="{job}",tenant="alpha",node="node1",rack="rack1"}}'
    deadline = time.monotonic() + 60
    steps: list[float] = []
    # The store shows a moment's samples in any order.
    while len(steps) < 20 or steps != [float(step) for step in range(len(steps))]:
        assert time.monotonic() < deadline, steps
        time.sleep(1)
        rows = site.minute(f"{query}[5m]")
        steps = [float(value) for _, value in rows[0]["values"]] if rows else []
    (loss,) = site.minute(f'sideband_train_loss{{job="{job}"}}')
    assert 0 < float(loss["value"][1]) <= 1


def test_a_black_holed_rack_costs_nobody_anything_and_nothing_is_lost() -> None:
    mark = f"m{uuid.uuid4().hex[:12]}"
    on(f"nft '{HOLE}'")
    try:
        began = time.monotonic()
        on(f"i=0; while [ $i -lt 200 ]; do i=$((i + 1)); logger -t lab-test {mark} seq=$i; done")
        print(f"200 calls of logger took {time.monotonic() - began:.1f} s")
        time.sleep(4)
        assert stored(mark) == []
        assert int(on("du -sb /var/lib/sideband/logs/spool").split()[0]) > 10_000
    finally:
        on("nft delete table inet ltest")
    deadline = time.monotonic() + 45
    while len(stored(mark)) < 200 and time.monotonic() < deadline:
        time.sleep(1)
    said = sorted(int(row["_msg"].rsplit("=", 1)[1]) for row in stored(mark))
    assert said == list(range(1, 201))
