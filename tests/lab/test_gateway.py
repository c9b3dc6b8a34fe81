"""What people get through the gateway of the lab, from their desk on the query plane (B7, Q2, Q3, Q5, D5;
cases 68, 70)."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front import site
from front.client import Answer

from bench import tenancy

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.lab
EVERYTHING = 'count by (rack) ({__name__=~"up:1m_.+"})'
FORM = [("Content-Type", "application/x-www-form-urlencoded")]


def ask(name: str, query: str, path: str = "/api/v1/query", address: str = site.GATEWAY) -> Answer:
    return site.tenant(name, address).ask("GET", f"{path}?{query}")


def racks(answer: Answer) -> set[str]:
    assert answer.status == 200, answer
    return {series["metric"].get("rack", "") for series in json.loads(answer.body)["data"]["result"]}


@pytest.mark.parametrize("address", [site.GATEWAY, site.GATEWAY6])
@pytest.mark.parametrize(("name", "rack"), [("alpha", "rack1"), ("beta", "rack2")])
def test_a_tenant_sees_its_own_racks(name: str, rack: str, address: str) -> None:
    """There is something to see of both, and each sees one; as a range, and as a form."""
    assert {row["metric"].get("rack") for row in site.minute(EVERYTHING)} >= {"rack1", "rack2"}
    query = "query=" + urllib.parse.quote(EVERYTHING)
    assert racks(ask(f"tenant-{name}", query, address=address)) == {rack}
    ranged = f"{query}&start=-10m&end=now&step=60"
    assert racks(ask(f"tenant-{name}", ranged, "/api/v1/query_range", address)) == {rack}
    form = site.tenant(f"tenant-{name}", address).ask("POST", "/api/v1/query", query.encode(), FORM)
    assert racks(form) == {rack}
    values = ask(f"tenant-{name}", "start=-10m", "/api/v1/label/rack/values", address)
    assert json.loads(values.body)["data"] == [rack]


def test_no_attempt_shows_what_is_anothers() -> None:
    """A part of them that is the same every time; bench/tenancy.py makes all (case 68, 70)."""
    checks, figures = tenancy.run(tenancy.some(120))
    assert [one for one in checks if not one["pass"]] == []
    assert figures["foreign_series"] == 0
    assert figures["attempts"] >= 100
    assert figures["answered"] >= 15  # a gate that refuses everything keeps secrets too


@pytest.mark.parametrize("identity", ["node-node1", "region-region1", "lake-lake1", "gateway-gateway1"])
def test_who_is_nobody_of_the_site_is_refused(identity: str) -> None:
    answer = ask(identity, "query=up")
    assert (answer.status, json.loads(answer.body)["reason"]) == (403, "identity")


def on_gateway(script: str) -> str:
    words = [str(ROOT / "lab/lab"), "exec", "gateway1", "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_an_administrators_question_leaves_its_line() -> None:
    mark = f"nowhere{time.time_ns()}"
    answer = ask("administrator-ops", f"query=up%7Bnode%3D%22{mark}%22%7D")
    assert (answer.status, answer.headers["x-sideband-tier"]) == (200, "hot")
    line = json.loads(on_gateway(f"grep -h {mark} /var/lib/sideband/gateway/audit/*.jsonl"))
    assert (line["who"], line["tier"], line["raw"]) == ("administrator/ops", "hot", True)


def test_a_heavy_question_becomes_a_job() -> None:
    client = site.tenant("tenant-alpha")
    body = "query=" + urllib.parse.quote('count by (rack) (max_over_time({__name__=~"up:1m_.+"}[80d]))')
    assert client.ask("POST", "/api/v1/query", body.encode(), FORM).status == 422
    said = json.loads(client.ask("POST", "/api/v1/jobs", body.encode(), FORM).body)["data"]
    deadline = time.monotonic() + 60
    while (state := json.loads(client.ask("GET", f"/api/v1/jobs/{said['id']}").body)["data"])[
        "state"
    ] != "done":
        assert state["state"] in ("queued", "running"), state
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert racks(client.ask("GET", f"/api/v1/jobs/{said['id']}/result")) == {"rack1"}


def play(book: str, *options: str) -> float:
    began = time.monotonic()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    words = [str(ROOT / ".venv/bin/ansible-playbook"), f"playbooks/{book}.yml", *options]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return time.monotonic() - began


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    play("restore", "-e", "actions=aggregated")


def headers(name: str, query: str) -> tuple[Any, Any]:
    found = ask(name, query).headers
    return found.get("x-sideband-tier"), found.get("x-sideband-degraded")


@pytest.mark.usefixtures("restored")
def test_one_command_points_queries_at_the_aggregated_copy_and_one_takes_it_back() -> None:
    """D5, within seconds; a run of the role changes nothing about it, and no training node is asked."""
    assert headers("administrator-ops", "query=up&tier=hot") == ("hot", None)
    seconds = play("rollback", "-e", "actions=aggregated")
    print(f"queries aggregated after {seconds:.1f} s")
    assert headers("administrator-ops", "query=up&tier=hot") == ("minute", "aggregated")
    assert headers("tenant-alpha", "query=up") == ("minute", "aggregated")
    play("restore", "-e", "actions=aggregated")
    assert headers("administrator-ops", "query=up&tier=hot") == ("hot", None)
