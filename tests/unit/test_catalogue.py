"""What a region makes of each metric for a coarser tier: each name under one rule (A3, S2)."""

from __future__ import annotations

import re
from typing import Any

from contract_kit import change, lab
from sideband import catalogue
from sideband.contract import compile_site

NAMES = (
    "node_load1", "node_load5", "node_cpu_seconds_total", "node_disk_reads_completed_total",
    "node_disk_io_now", "node_disk_info", "site_things_total", "site_thing", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "sideband_gpu_lost", "sideband_gpu_xid_any_total",
    "sideband_job_info",
)  # fmt: skip


def matches(rule: dict[str, Any], name: str) -> bool:
    """The selector's matchers, read by a reader of its own."""
    ways = {
        "=": lambda value: name == value,
        "=~": lambda value: re.fullmatch(value, name) is not None,
        "!~": lambda value: re.fullmatch(value, name) is None,
    }
    found = re.findall(r'__name__(=~|!~|=)"([^"]*)"', rule["match"])
    assert found
    return all(ways[way](value) for way, value in found)


def rules(spec: dict[str, Any] | None = None, of_jobs: bool = False) -> list[dict[str, Any]]:
    made = compile_site(*change(*lab(), spec or {}))["aggregation"]["minute"]
    return [rule for rule in made if rule["of_jobs"] is of_jobs]


def keeping(**kept: dict[str, Any]) -> dict[str, Any]:
    """Names of the catalogue without their *, and what the minute tier keeps of each."""
    stem = "all.sideband_catalogue.metrics"
    return {
        "set": {f"{stem}.{name.replace('__all', '*')}.keep": {"minute": how} for name, how in kept.items()}
    }


def test_without_a_word_counters_grow_and_the_rest_is_measured() -> None:
    bare = {"set": {"all.sideband_catalogue": {}}}
    assert [(rule["match"], rule["outputs"], rule["by"]) for rule in rules(bare)] == [
        ('{__name__=~".+_total"}', ["increase"], []),
        ('{__name__!~".+_total"}', ["sum_samples", "count_samples", "min", "max"], []),
    ]
    assert rules(bare, of_jobs=True) == []


def test_each_name_is_under_one_rule() -> None:
    spec = keeping(
        node_load1={"statistics": ["max"]},
        node_load__all={"statistics": ["min", "max"]},
        node_disk___all={"statistics": ["increase", "max"]},
        node_cpu_seconds_total={"statistics": ["increase"], "dimensions": ["mode"]},
    )
    made = rules(spec)
    found = {name: [rule for rule in made if matches(rule, name)] for name in NAMES}
    assert {name: len(under) for name, under in found.items()} == dict.fromkeys(NAMES, 1)
    outputs = {name: under[0]["outputs"] for name, under in found.items()}
    assert outputs["node_load1"] == ["max"]
    assert outputs["node_load5"] == ["min", "max"]
    assert outputs["node_disk_reads_completed_total"] == ["increase"]
    assert outputs["node_disk_io_now"] == ["max"]
    assert outputs["site_things_total"] == ["increase"]
    assert found["node_cpu_seconds_total"][0]["by"] == ["node", "rack", "site", "mode"]
    assert [rule["counter"] for rule in found["node_cpu_seconds_total"]] == [True]


def test_what_is_kept_nowhere_has_no_rule() -> None:
    made = rules(keeping(node_load1={"statistics": []}))
    assert [rule for rule in made if matches(rule, "node_load1")] == []
    assert [rule for rule in made if matches(rule, "node_load5")] != []


def test_what_is_kept_whole_has_no_rule() -> None:
    """Training curves: every step, not a minute's mean of them."""
    for name in ("sideband_train_loss", "sideband_nccl_events_total"):
        assert [rule for rule in rules() + rules(of_jobs=True) if matches(rule, name)] == []


def test_what_gpus_carry_is_added_up_by_job() -> None:
    made = rules(of_jobs=True)
    found = {name: [rule for rule in made if matches(rule, name)] for name in NAMES}
    with_job = {name: under[0] for name, under in found.items() if under}
    assert set(with_job) == {
        "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "sideband_gpu_lost",
        "sideband_gpu_xid_any_total",
    }  # fmt: skip
    assert all(len(under) <= 1 for under in found.values())
    assert with_job["DCGM_FI_DEV_GPU_TEMP"]["outputs"] == ["sum_samples", "count_samples", "min", "max"]
    assert with_job["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]["outputs"] == ["increase"]
    for rule in made:
        assert rule["by"] == ["site", "tenant", "job"]
        assert 'job!=""' in rule["match"]


def test_what_a_job_keeps_nowhere_is_added_up_nowhere() -> None:
    kept = keeping(DCGM_FI_DEV_GPU_TEMP={"statistics": []})
    assert [rule for rule in rules(kept, of_jobs=True) if matches(rule, "DCGM_FI_DEV_GPU_TEMP")] == []
    assert [rule for rule in rules(kept, of_jobs=True) if matches(rule, "DCGM_FI_DEV_GPU_UTIL")] != []


def test_a_gpu_never_loses_its_tenant_on_the_way() -> None:
    """A series without one is seen by every tenant of the rack."""
    kept = keeping(DCGM_FI_DEV_GPU_TEMP={"statistics": ["max"], "dimensions": ["gpu"]})
    (rule,) = [rule for rule in rules(kept) if matches(rule, "DCGM_FI_DEV_GPU_TEMP")]
    assert rule["by"] == ["node", "rack", "site", "job", "tenant", "gpu"]


def test_the_plan_counts_what_the_rules_make() -> None:
    metrics = catalogue.parse(lab()[0]["node1"]["sideband_catalogue"])["metrics"]
    made = rules()
    for name in NAMES[:3]:
        outputs = next(rule["outputs"] for rule in made if matches(rule, name))
        assert list(catalogue.statistics(catalogue.entry_of(metrics, name), name, "minute")) == outputs
