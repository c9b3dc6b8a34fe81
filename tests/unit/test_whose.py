"""Whom series tell of, at each hop (A2, Q5; docs/adr/0009). tests/root/test_front.py asks vmagent itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from contract_kit import lab
from hypothesis import given
from hypothesis import strategies as some
from sideband import whose
from sideband.contract import compile_site

from filter_plugins import rack, region

MODEL = compile_site(*lab())
METRICS = MODEL["catalogue"]["metrics"]
NAMES = some.lists(some.from_regex(r"[a-c]{1,3}\*?", fullmatch=True), max_size=6)


def takes(selector: str, series: dict[str, str]) -> bool:
    """A selector as the stores read it, by a reader of its own."""
    matchers = re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', selector)
    assert "{" + ",".join(f'{a}{b}"{c}"' for a, b, c in matchers) + "}" == selector
    for label, sign, text in matchers:
        text, have = text.replace('\\"', '"').replace("\\\\", "\\"), series.get(label, "")
        equal = re.fullmatch(text, have) is not None if "~" in sign else have == text
        if equal == sign.startswith("!"):
            return False
    return True


def relabelled(rules: list[dict[str, Any]], series: dict[str, str]) -> dict[str, str] | None:
    """What vmagent makes of a series; None where it is dropped."""
    for rule in rules:
        hit = takes(rule["if"], series)
        action = rule.get("action", "replace")
        if hit and action == "drop":
            return None
        if not hit and action == "keep":
            return None
        if not hit or action == "keep":
            continue
        if action in ("labeldrop", "labelkeep"):
            series = {
                name: value
                for name, value in series.items()
                if bool(re.fullmatch(rule["regex"], name)) == (action == "labelkeep")
            }
        else:
            series = {**series, rule["target_label"]: rule["replacement"]}
    return {name: value for name, value in series.items() if value}


def admitted(name: str, /, **labels: str) -> dict[str, str] | None:
    own = {"__name__": name, "node": "node1", "rack": "rack1", "site": "lab"}
    rules = whose.admitted(METRICS, MODEL["labels"], MODEL["tenants"], ["rack1"])
    found = relabelled(rules, {**own, **labels})
    return None if found is None else {key: value for key, value in found.items() if key not in own}


@given(NAMES, some.text("abc", max_size=4))
def test_a_pattern_takes_what_any_of_its_names_takes(listed: list[str], name: str) -> None:
    wanted = any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in listed)
    regex = whose.pattern(listed)
    assert bool(regex and re.fullmatch(regex, name)) == wanted


def test_the_dictionary_is_the_tenants_words() -> None:
    assert whose.dictionary(MODEL["tenants"]) == {
        "uids": {"20001-20099": "alpha", "20101-20199": "beta"},
        "slurm_accounts": {"alpha": "alpha", "beta": "beta"},
        "namespaces": {"alpha": "alpha", "beta": "beta"},
    }


@pytest.mark.parametrize(
    ("name", "given_labels", "left"),
    [
        ("node_load1", {"tenant": "alpha", "job": "node"}, {"job": "node"}),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            {"job": "slurm-7", "tenant": "alpha"},
            {"job": "slurm-7", "tenant": "alpha"},
        ),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            {"job": "slurm-7", "tenant": "beta"},
            {"job": "slurm-7", "tenant": "unassigned"},
        ),
        ("DCGM_FI_DEV_GPU_UTIL", {"job": "slurm-7"}, {"job": "slurm-7", "tenant": "unassigned"}),
        ("DCGM_FI_DEV_GPU_UTIL", {"tenant": "alpha"}, {"tenant": "alpha"}),
        ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "0", "app": "x"}, {"gpu": "0"}),
        ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "zero"}, {}),
        ("sideband_job_info", {"tenant": "alpha"}, None),
        ("sideband_job_info", {"job": "../x", "tenant": "alpha"}, None),
        (
            "sideband_job_info",
            {"job": "u20001-1-2", "tenant": "alpha", "name": "train.py", "user": "a b"},
            {"job": "u20001-1-2", "tenant": "alpha", "name": "train.py"},
        ),
    ],
)
def test_a_rack_admits(name: str, given_labels: dict[str, str], left: dict[str, str] | None) -> None:
    assert admitted(name, **given_labels) == left


@given(
    some.sampled_from(("DCGM_FI_DEV_GPU_UTIL", "sideband_train_loss", "node_load1", "anything")),
    some.sampled_from(("", "slurm-1", "u1-2-3", "weird job", "node")),
    some.sampled_from(("", "alpha", "beta", "Alpha", "alpha|beta", "unassigned", "-")),
)
def test_no_series_of_a_rack_is_another_racks_tenants(name: str, job: str, tenant: str) -> None:
    """And what a job did is never everybody's."""
    found = admitted(name, **{key: value for key, value in (("job", job), ("tenant", tenant)) if value})
    if found is None:
        return
    assert found.get("tenant") in (None, "alpha", "unassigned")
    if name in ("DCGM_FI_DEV_GPU_UTIL", "sideband_train_loss") and "job" in found:
        assert "tenant" in found
    if name in ("node_load1", "anything"):
        assert "tenant" not in found


def test_a_rack_without_tenants_has_no_tenants_series() -> None:
    rules = whose.admitted(METRICS, MODEL["labels"], [], ["rack1"])
    series = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "rack": "rack1", "job": "slurm-7", "tenant": "alpha"}
    assert relabelled(rules, series) == {**series, "tenant": "unassigned"}


def test_a_site_without_a_catalogue_has_no_tenants_series() -> None:
    (rule,) = whose.admitted([], [], MODEL["tenants"], ["rack1"])
    assert takes(rule["if"], {"__name__": "x", "tenant": "alpha"})
    assert whose.finest([]) == whose.whole([], "minute") == whose.unscraped([]) == []


def test_a_label_whose_pattern_has_no_end_has_a_length() -> None:
    base = {"name": "gpu", "values": [], "max_length": 9, "max_values": 1}

    def of(pattern: str) -> int:
        rules = whose.admitted(METRICS, [{**base, "pattern": pattern}], [], [])
        return sum(rule.get("target_label") == "gpu" for rule in rules)

    assert [of(pattern) for pattern in ("[0-9]{1,3}", "[0-9*+]{1,3}", r"a\+b")] == [1, 1, 1]
    assert [of(pattern) for pattern in ("[0-9]+", "x{2,}", "(a|b)*")] == [2, 2, 2]


def test_the_finest_tier_has_one_series_for_a_gpu_and_none_of_a_job() -> None:
    rules = MODEL["fan_out"]["hot"]
    gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "node": "node1"}
    assert relabelled(rules, {**gpu, "job": "slurm-7", "tenant": "alpha"}) == gpu
    for name in ("sideband_job_workers", "sideband_train_loss", "sideband_nccl_events_total"):
        assert relabelled(rules, {"__name__": name, "job": "slurm-7"}) is None
    for name in ("up", "sideband_jobs_up", "node_load1"):
        assert relabelled(rules, {"__name__": name, "job": "node"}) == {"__name__": name, "job": "node"}


def test_curves_alone_go_to_the_minute_tier_as_they_come() -> None:
    rules = MODEL["fan_out"]["minute"]
    kept = [name for name in ("sideband_train_loss", "sideband_nccl_events_total", "up", "sideband_job_info")
            if relabelled(rules, {"__name__": name})]  # fmt: skip
    assert kept == ["sideband_train_loss", "sideband_nccl_events_total"]


def test_an_idle_gpu_has_no_job_and_the_scrapes_name_is_none() -> None:
    rules = whose.unscraped(METRICS)
    assert relabelled(rules, {"__name__": "DCGM_FI_DEV_GPU_UTIL", "job": "node"}) == {
        "__name__": "DCGM_FI_DEV_GPU_UTIL"
    }
    for name, job in (("DCGM_FI_DEV_GPU_UTIL", "slurm-7"), ("up", "node")):
        assert relabelled(rules, {"__name__": name, "job": job}) == {"__name__": name, "job": job}


def test_a_receiver_believes_its_own_programs_about_nodes_that_it_serves() -> None:
    found = whose.made_here({"rack1": ["node1", "gpu.2"], "rack2": ["node3"]}, "mark", "secret")
    assert [(rule["regex"], rule["target_label"], rule["replacement"]) for rule in found] == [
        (r"1;(node1|gpu\.2)", "secret", "$1"), (r"1;(node1|gpu\.2)", "secret_rack", "rack1"),
        ("1;(node3)", "secret", "$1"), ("1;(node3)", "secret_rack", "rack2"),
    ]  # fmt: skip
    assert "node3" not in rack.made_here(MODEL, "rack1")


def test_flags_of_the_regions_agent_stand_in_one_order() -> None:
    one = {"url": "http://a", "relabel": "/x.yml", "aggregate": "", "engine": "prometheus"}
    two = {"url": "http://b", "relabel": "", "aggregate": "/m.yml", "engine": "victoriametrics"}
    assert region.targets([one, two]) == [
        "-remoteWrite.url=http://a,http://b",
        "-remoteWrite.forcePromProto=true,false",
        "-remoteWrite.forceVMProto=false,true",
        "-remoteWrite.urlRelabelConfig=/x.yml,",
        "-remoteWrite.streamAggr.config=,/m.yml",
        "-remoteWrite.streamAggr.dropInput=false,true",
    ]
