"""Data of every kind is in every tier of the lab (design: Proof; acceptance of the data path)."""

from __future__ import annotations

import subprocess
import time
import uuid

import pytest
from front import site

pytestmark = pytest.mark.lab


def on(host: str, *argv: str) -> str:
    return subprocess.run(
        [str(site.PROJECT / "lab/lab"), "exec", host, *argv], check=True, capture_output=True, text=True
    ).stdout


def test_every_nodes_samples_are_in_the_hot_tier_with_its_labels() -> None:
    for host, rack in site.RACK.items():
        found = site.hot(f'up{{node="{host}",job="node"}}')
        assert found, host
        assert {series["metric"]["rack"] for series in found} == {rack}
        assert {series["metric"]["site"] for series in found} == {"lab"}


def test_every_nodes_minutes_are_in_the_minute_tier_by_composable_results() -> None:
    """Gauges by sum, count, min and max; nothing raw but training curves."""
    for host in site.RACK:
        for output in ("sum_samples", "count_samples", "min", "max"):
            name = f"sideband_policy_level:1m_{output}"
            assert site.minute(f'last_over_time({{__name__="{name}",node="{host}"}}[5m])'), (host, output)
        raw = site.minute(
            f'count(last_over_time({{__name__!~".+:1m_.+|sideband_train_.+|sideband_nccl_.+",node="{host}"}}[10m]))'
        )
        assert raw == []


def test_a_counter_becomes_its_increase() -> None:
    """A counter that grows by 10 every 5 s for two minutes: the increases add up to its growth."""
    client = site.node("node1")
    mark = uuid.uuid4().hex[:12]
    last = 0
    for step in range(24):
        last = 1000 + 10 * step
        assert (
            client.push_text(f'events_total{{m="{mark}"}} {last}\nlevel{{m="{mark}"}} {step}\n').status == 204
        )
        time.sleep(5)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        counted = site.minute(f'sum_over_time({{__name__="level:1m_count_samples",m="{mark}"}}[10m])')
        if counted and float(counted[0]["value"][1]) == 24:
            break
        time.sleep(2)
    assert float(counted[0]["value"][1]) == 24
    summed = site.minute(f'sum_over_time({{__name__="level:1m_sum_samples",m="{mark}"}}[10m])')
    assert float(summed[0]["value"][1]) == sum(range(24))
    grown = site.minute(f'sum_over_time({{__name__="events_total:1m_increase",m="{mark}"}}[10m])')
    # The first sample of a new counter has no predecessor; what follows counts in full.
    assert float(grown[0]["value"][1]) == last - 1000
    assert len(site.hot(f'level{{m="{mark}"}}[10m]')[0]["values"]) == 24


@pytest.mark.parametrize(
    ("host", "unit"),
    [("lake1", "sideband-hot"), ("region1", "sideband-region-agent"), ("rack1", "sideband-rack-agent")],
)
def test_an_outage_on_the_way_is_made_up(host: str, unit: str) -> None:
    """Five samples during the outage, five after it: all ten are in the hot tier."""
    client = site.node("node1")
    mark = uuid.uuid4().hex[:12]
    start = int(time.time() * 1000) - 20000
    sent = 0
    on(host, "systemctl", "stop", f"{unit}.service")
    try:
        for step in range(5):
            answer = client.push([([("__name__", "gap"), ("m", mark)], [(float(step), start + step * 1000)])])
            # A receiver that is down answers 503: the sender keeps the block and sends it again.
            assert answer.status in (204, 503)
            sent += answer.status == 204
    finally:
        on(host, "systemctl", "start", f"{unit}.service")
    assert sent == (0 if host == "rack1" else 5)
    deadline = time.monotonic() + 90
    for step in range(sent, 10):
        while (
            client.push([([("__name__", "gap"), ("m", mark)], [(float(step), start + step * 1000)])]).status
            != 204
            and time.monotonic() < deadline
        ):
            time.sleep(0.5)
    found = site.hot_when(f'gap{{m="{mark}"}}', 10, 120)
    assert [float(value) for _, value in found[0]["values"]] == [float(step) for step in range(10)]
