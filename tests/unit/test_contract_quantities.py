"""Units, shapes and prices: every figure from its formula (cases 34, 59)."""

from __future__ import annotations

from typing import Any

import pytest
from contract_kit import change, lab
from sideband import price, qdisc, units
from sideband.contract import compile_site
from sideband.plan import plan_lines


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("1m", 60), ("12h", 43200), ("365d", 31536000)])
def test_durations(text: str, seconds: int) -> None:
    assert units.duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["7", "", "0s", "-1s", "1.5h", "7 d", "7D", "5ms", "1w", "1M", "05s", "٣s"])
def test_a_duration_is_never_guessed(text: str) -> None:
    """Case 59."""
    with pytest.raises(ValueError, match="duration"):
        units.duration_seconds(text)


def test_rates_and_sizes() -> None:
    assert units.rate_bits("20Mbit") == 20_000_000
    assert units.size_bytes("2GiB") == 2 * 2**30
    for wrong in ("20", "20mbit", "20MB"):
        with pytest.raises(ValueError, match="rate"):
            units.rate_bits(wrong)


@pytest.mark.parametrize("rate", [8_000, 10**6, 20 * 10**6, 10**9, 2 * 10**9, 100 * 10**9, 800 * 10**9])
def test_quantum_and_burst_stay_where_the_kernel_wants_them(rate: int) -> None:
    """Case 34: a quantum between one frame and 200000, a burst of at least two frames, both without gaps."""
    assert 1514 <= qdisc.quantum_bytes(rate) <= 60_000
    assert 2 * 1514 <= qdisc.burst_bytes(rate) <= 2**20
    assert qdisc.burst_bytes(rate) >= min(2**20, rate * 4 // 8000)


def shapes(spec: dict[str, Any], host: str) -> dict[str, Any]:
    return {shape["plane"]: shape for shape in compile_site(*change(*lab(), spec))["hosts"][host]["shapes"]}


def test_flows_of_one_mark_share_a_class() -> None:
    """A filter sees the mark only: two flows that leave an interface with one DSCP cannot be told apart."""
    core = shapes({}, "region1")["core"]
    assert [(c["id"], c["flows"], c["tos"], c["rate_bits_per_second"]) for c in core["classes"]] == [
        (10, ["relay", "store"], 32, 130_000_000),
        (11, ["notify"], 40, 2_000_000),
    ]
    lake = shapes({}, "lake1")["core"]
    assert [(c["flows"], c["tos"]) for c in lake["classes"]] == [
        (["store", "ship_on"], 32),
        (["ask", "find", "notify"], 40),
    ]


def test_what_is_not_promised_is_the_rest() -> None:
    edge = shapes({}, "node1")["edge"]
    assert (edge["rate_bits_per_second"], edge["default"]["rate_bits_per_second"]) == (20_000_000, 5_000_000)
    full = shapes({"set": {"all.sideband_flows.push.rate": "20Mbit"}}, "node1")["edge"]
    assert full["default"]["rate_bits_per_second"] == 200_000
    assert all(c["ceil_bits_per_second"] == 20_000_000 for c in [*edge["classes"], edge["default"]])


def test_training_and_management_are_not_shaped() -> None:
    """B7."""
    assert set(shapes({}, "node1")) == {"edge"}
    assert shapes({}, "mgmt1") == {}


def test_series_follow_the_node() -> None:
    node = price.NodeSize(cpus=4, disks=2, interfaces=3, filesystems=5)
    assert price.series(["node_cpu_seconds_total"], node) == 32
    assert price.series(["node_filesystem_avail_bytes", "node_load1", "up"], node) == 7
    assert price.series(["node_load*"], node) == 3


def test_bytes_are_requests_and_what_is_in_them() -> None:
    assert price.level_bytes_per_second(2, 5) == (575 + 2 * 20) / 5
    assert price.level_bytes_per_second(25_000, 5) == (3 * 575 + 25_000 * 20) / 5
    assert price.level_bytes_per_second(0, 60) == 0
    assert price.always_bytes_per_second(16, 10, 2) == (575 + 16 * 45) / 10 + 283 / 2
    assert price.intake_bytes_per_second([], 60) == price.INTAKE_FLOOR_BYTES
    # A limit must not hurt a node with many CPUs.
    cpus = ["node_cpu_seconds_total"]
    honest = price.level_bytes_per_second(price.series(cpus, price.ROOMY_NODE), 15)
    assert price.intake_bytes_per_second(cpus, 15) >= 2 * honest


def test_the_plan_reads_like_one() -> None:
    lines = plan_lines(compile_site(*lab()))
    assert lines[0] == "The contract of lab holds: 10 hosts, 2 racks, 3 nodes, 9 flows, 2 tenants."
    assert [line.split()[0] for line in lines[4:8]] == ["full", "reduced", "core", "heartbeat"]
    assert any(line.split()[:5] == ["575", "bytes", "a", "request", "on"] for line in lines)
