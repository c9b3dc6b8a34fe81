"""What a node samples at each level, where it pushes, and what the policy process is told."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from filter_plugins import node
from services.nodeagent import config, identity, job, sample, settings

LADDER: dict[str, Any] = {
    "always": {"period_seconds": 10, "metrics": ["up"]},
    "order": ["full", "core", "heartbeat"],
    "levels": {
        "full": {"name": "full", "period_seconds": 5, "poll_seconds": 2, "keep": "^(?:up|node_memory_.*)$"},
        "core": {"name": "core", "period_seconds": 30, "poll_seconds": 2, "keep": "^(?:up|node_load1)$"},
        "heartbeat": {"name": "heartbeat", "period_seconds": 60, "poll_seconds": 10, "keep": ""},
    },
}
METRICS = [
    {"name": "DCGM_*", "of": "gpu"},
    {"name": "sideband_job_*", "of": "job"},
    {"name": "up", "of": "node"},
]
TENANTS = [
    {"name": "alpha", "uids": ["20001-20099"], "slurm_accounts": ["physics"], "namespaces": []},
    {"name": "beta", "uids": ["20101"], "slurm_accounts": [], "namespaces": ["team-b"]},
]
MODEL: dict[str, Any] = {
    "site": "lab", "ladder": LADDER, "catalogue": {"metrics": METRICS}, "tenants": TENANTS,
}  # fmt: skip


def ends(*authorities: tuple[str, str]) -> dict[str, Any]:
    push = [{"authority": four, "authority6": six} for four, six in authorities]
    return {"name": "GPU_07", "rack": "rack-07", "reaches": {"push": push}}


def policy(self: dict[str, Any]) -> dict[str, Any]:
    return node.policy(
        MODEL, self, configuration="/etc/sideband/node", state="/var/lib/sideband/policy", filesystems=["/"]
    )


def test_case_4_a_rack_with_ipv6_only_is_reached_in_brackets() -> None:
    assert node.receivers(ends(("", "[2001:db8:10::21]:8427"))) == ["https://[2001:db8:10::21]:8427"]
    assert policy(ends(("", "[2001:db8:10::21]:8427")))["racks_url"] == ["https://[2001:db8:10::21]:8427"]


def test_receivers_keep_the_contracts_order() -> None:
    found = node.receivers(ends(("10.21.0.22:8427", ""), ("10.21.0.21:8427", "[fd00::21]:8427")))
    assert found == ["https://10.21.0.22:8427", "https://10.21.0.21:8427"]


def test_a_node_without_a_receiver_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match=r"GPU_07: flows: no receiver .*rack-07.*; hint"):
        node.receivers(ends())


def test_case_5_the_instance_is_the_inventory_name_and_the_target_is_loopback() -> None:
    found = node.levels(MODEL, "/levels", "GPU_07", "127.0.0.1:9100")
    assert list(found) == ["/levels/full.yml", "/levels/core.yml", "/levels/heartbeat.yml"]
    scraped = yaml.safe_load(found["/levels/full.yml"])["scrape_configs"][0]
    labels = {"instance": "GPU_07", "%{SIDEBAND_MARK}": "1"}
    assert scraped["static_configs"] == [{"targets": ["127.0.0.1:9100"], "labels": labels}]
    assert scraped["job_name"] == "node"


def test_a_level_keeps_its_names_and_no_others() -> None:
    found = yaml.safe_load(node.levels(MODEL, "/l", "n", "t:1")["/l/core.yml"])
    keep, unscraped = found["scrape_configs"][0]["metric_relabel_configs"]
    assert unscraped["if"] == '{__name__=~"DCGM_.*|sideband_job_.*",job="node"}'
    assert keep["action"] == "keep"
    assert re.fullmatch(keep["regex"], "node_load1")
    assert not re.fullmatch(keep["regex"], "node_load15")
    assert found["global"] == {"scrape_interval": "30s", "scrape_timeout": "10s"}


def test_the_lowest_level_samples_nothing() -> None:
    assert yaml.safe_load(node.levels(MODEL, "/l", "n", "t:1")["/l/heartbeat.yml"])["scrape_configs"] == []


@pytest.mark.parametrize(("period", "timeout"), [(1, "1s"), (2, "1s"), (5, "4s"), (15, "10s")])
def test_a_scrape_ends_before_the_next_begins(period: int, timeout: str) -> None:
    level = {"period_seconds": period, "keep": "up"}
    assert node.scrape(level, "n", "t:1", [])["global"]["scrape_timeout"] == timeout


def test_the_policy_process_accepts_its_configuration() -> None:
    parsed = config.parse(policy(ends(("10.21.0.21:8427", ""))))
    assert parsed.default_level == "full"
    assert parsed.levels["core"].scrape == "/etc/sideband/node/levels/core.yml"
    assert parsed.scrape_path == "/var/lib/sideband/policy/scrape.yml"


def test_the_job_process_accepts_its_configuration() -> None:
    told = node.job(MODEL, ["lustre"])
    found = settings.parse(told, job.FIELDS)
    assert found["file_systems"] == ["lustre"]
    tenants = identity.tenants(found["tenants"])
    assert (tenants.of_uid(20050), tenants.of_uid(20101), tenants.of_uid(1000)) == ("alpha", "beta", None)
    assert tenants.find("slurm", 1000, "physics") == "alpha"
    assert tenants.find("pod", 20050, "", "team-b") == "beta"


def test_the_sample_process_goes_at_the_highest_levels_pace() -> None:
    found = settings.parse(node.sample(MODEL, "/dev/kmsg"), sample.FIELDS)
    assert (found["period_seconds"], found["kernel_log"]) == (5, "/dev/kmsg")


def test_a_mark_is_its_keys_and_tells_nothing_of_it() -> None:
    first, second = node.mark("-----BEGIN KEY-----\nMIIE\n"), node.mark("another")
    assert first != second
    assert re.fullmatch(r"scraped_[0-9a-f]{16}", first)


def test_the_program_is_the_same_bytes_each_time() -> None:
    first = node.program("nodeagent")
    assert base64.b64decode(first).startswith(b"#!/usr/bin/python3")
    assert first == node.program("nodeagent")
