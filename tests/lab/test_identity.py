"""Acceptance 5 on the lab: what a node pushes is stored under its own name or refused and counted; no other
node's series changes, and the hot tier keeps flowing."""

from __future__ import annotations

import re
import subprocess
import time
import uuid

import pytest
from front import site
from front.client import Client
from front.forgeries import BINARY_FORGERIES, FORGED_QUERIES, TEXT_FORGERIES

pytestmark = pytest.mark.lab


def marker() -> str:
    return f"m{uuid.uuid4().hex[:12]}"


def now() -> int:
    return int(time.time() * 1000)


def assert_own(mark: str, host: str, samples: int = 1) -> None:
    found = site.hot_when(f'{{m="{mark}"}}', samples)
    assert len(found) == 1, found
    metric = found[0]["metric"]
    assert (metric["node"], metric["rack"], metric["site"]) == (host, site.RACK[host], "lab")
    assert len(found[0]["values"]) == samples


def refusals(rack: str) -> dict[str, int]:
    return {
        name: int(count) for name, count in re.findall(r'"(\w+)"\} (\d+)', site.local(rack, 8533, "/metrics"))
    }


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("host", ["node1", "node2", "node3"])
def test_each_node_is_itself_on_its_own_rack(host: str, family: int) -> None:
    client = site.node(host, family=family)
    text, binary = marker(), marker()
    assert client.push_text(f'own{{m="{text}"}} 1\n').status == 204
    assert client.push([([("__name__", "own"), ("m", binary)], [(1.0, now())])]).status == 204
    assert_own(text, host)
    assert_own(binary, host)


def test_forgeries_end_under_the_senders_name_and_change_nobody(request: pytest.FixtureRequest) -> None:
    """Every forgery, then every mark is looked up; node2's series is compared before and after."""
    attacker, victim = site.node("node1"), site.node("node2")
    target = marker()
    instant = now() - 60000
    own = [("__name__", "temperature"), ("m", target)]
    assert victim.push([(own, [(20.0, instant), (21.0, instant + 1000)])]).status == 204
    before = site.hot_when(f'temperature{{m="{target}"}}', 2)
    assert [series["metric"]["node"] for series in before] == ["node2"]

    marks = []
    for forgery in TEXT_FORGERIES.values():
        marks.append(marker())
        assert attacker.push_text(forgery.format(m=marks[-1]) + "\n").status == 204
    for labels in BINARY_FORGERIES.values():
        for first in (True, False):
            marks.append(marker())
            given = [("__name__", "forged"), ("m", marks[-1])]
            series = labels + given if first else given + labels
            assert attacker.push([(series, [(1.0, now())])]).status == 204
    for forged in FORGED_QUERIES:
        marks.append(marker())
        assert (
            attacker.push_text(f'forged{{m="{marks[-1]}"}} 1\n', f"/api/v1/import/prometheus?{forged}").status
            == 204
        )
    aimed = [("node", "node2"), *own, ("rack", "rack1"), ("node", "node2")]
    assert attacker.push([(aimed, [(99.0, instant + 500)])]).status == 204
    marks.append(target)

    for mark in marks[:-1]:
        assert_own(mark, "node1")
    site.hot_when(f'temperature{{m="{target}"}}', 3)
    assert site.hot(f'temperature{{m="{target}",node="node2"}}[1h]') == before
    assert site.hot(f'count({{m=~"{"|".join(marks[:-1])}",node!="node1"}})') == []


def test_the_hot_tier_keeps_flowing() -> None:
    """After whatever was sent above: every node's own heartbeat and new samples arrive."""
    for host in site.RACK:
        mark = marker()
        assert site.node(host).push_text(f'after{{m="{mark}"}} 1\n').status == 204
        assert_own(mark, host)
    level = site.hot("time() - timestamp(sideband_policy_level)")
    assert {series["metric"]["node"] for series in level} >= set(site.RACK)
    assert all(float(series["value"][1]) < 60 for series in level)


@pytest.mark.parametrize(
    "identity", ["node-node3", "rack-rack1", "region-region1", "gateway-gateway1", "tenant-alpha"]
)
def test_a_strangers_certificate_is_refused_and_counted(identity: str) -> None:
    before = refusals("rack1")["identity"]
    assert site.node("node1", identity).push_text("forged 1\n").status == 403
    assert refusals("rack1")["identity"] > before


@pytest.mark.parametrize(
    "path", ["//api/v1/write", "/api/v1/%77rite", "/x/../api/v1/write", "/metrics", "/API/v1/write"]
)
def test_another_path_is_refused_and_counted(path: str) -> None:
    before = refusals("rack1")["path"]
    assert site.node("node1").ask("POST", path, b"forged 1\n").status == 403
    assert refusals("rack1")["path"] > before


def test_bodies_and_methods_are_bounded() -> None:
    client: Client = site.node("node1")
    assert client.push_text("x" * 65537).status == 413
    assert client.ask("GET", "/api/v1/write").status == 405
    assert client.ask("PUT", "/api/v1/import/prometheus", b"forged 1\n").status == 405


def test_refusals_reach_the_lake_under_the_racks_name() -> None:
    site.node("node1").ask("POST", "/nowhere", b"x")
    deadline = time.monotonic() + 90
    want = refusals("rack1")["path"]
    selector = 'sideband_rack_refused_total{reason="path",node="rack1",rack="rack1",job="rack"}'
    while time.monotonic() < deadline:
        found = site.hot(selector)
        if found and float(found[0]["value"][1]) >= want:
            return
        time.sleep(1)
    pytest.fail(f"{selector} is {site.hot(selector)}, wanted at least {want}")


def test_the_random_name_is_different_on_each_rack_and_for_root_alone() -> None:
    names = set()
    for rack in site.RECEIVER:
        lab = [str(site.PROJECT / "lab/lab"), "exec", rack]
        script = "stat -c '%a %U' /etc/sideband/rack/identity.env; cat /etc/sideband/rack/identity.env"
        said = subprocess.run(
            [*lab, "sh", "-c", script], check=True, capture_output=True, text=True
        ).stdout.split()
        assert said[:2] == ["600", "root"]
        names.add(said[2])
        secret = said[2].split("=")[1]
        found = subprocess.run(
            [*lab, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert secret not in found.stdout
    assert len(names) == len(site.RECEIVER)
