"""querygate's configuration: compiled from the contract, read strictly by the program (Q2, Q5)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract_kit import lab
from querygate.kit import configuration, model
from sideband.contract import compile_site
from sideband.querygate import compile_querygate

from services.configuration import ConfigError
from services.querygate import config as configs

SOUND = configuration(Path("/nowhere"), {})


def test_what_is_compiled_is_what_is_read() -> None:
    config = configs.parse(json.loads(json.dumps(SOUND)))
    assert [(tier.name, tier.raw) for tier in config.tiers] == [
        ("hot", True),
        ("minute", False),
        ("hour", False),
    ]
    assert config.degraded_tier == "minute"
    assert sorted(config.identities) == [
        "administrator/ops", "alerts/region1", "archive/archiver", "tenant/alpha", "tenant/beta",
    ]  # fmt: skip
    alpha, ops = config.identities["tenant/alpha"], config.identities["administrator/ops"]
    assert alpha.wall_labels == ("rack", "tenant")
    assert list(alpha.bounds) == list(alpha.job_bounds) == ["minute", "hour"]
    assert (ops.wall, ops.log_wall, list(ops.bounds)) == (None, None, ["hot", "minute", "hour"])
    assert alpha.log_wall == configs.LogWall({"tenant": ("alpha",)}, {})
    assert alpha.bounds["minute"].range_seconds == 31 * 86400
    assert alpha.bounds["hour"].range_seconds == 730 * 86400


def test_equal_contracts_give_equal_files() -> None:
    settings = {
        "listen": "unix:/x", "ops_listen": "127.0.0.1:1", "state_directory": "/s", "audit_directory": "/a",
        "degraded_file": "/d", "tier_urls": {name: ["http://[::1]:1"] for name in model()["tiers"]},
        "log_urls": [],
    }  # fmt: skip
    made = compile_querygate(model(), settings)
    assert made == compile_querygate(model(), copy.deepcopy(settings))
    config = configs.parse(made)
    assert {one.kind for one in config.identities.values()} == set(configs.KINDS)
    assert all(one.log_bounds is None for one in config.identities.values())
    with pytest.raises(ValueError, match="aggregated tier"):
        compile_querygate({**model(), "tiers": {"hot": model()["tiers"]["hot"]}}, settings)


Change = Callable[[dict[str, Any]], object]
DEFECTS: dict[str, tuple[Change, str]] = {
    "every address": (lambda c: c.update(listen="0.0.0.0:8540"), "loopback"),
    "a plane's address": (lambda c: c.update(ops_listen="10.40.0.51:8541"), "loopback"),
    "a name": (lambda c: c.update(listen="localhost:8540"), "loopback"),
    "unknown key": (lambda c: c.update(extra=1), "extra"),
    "missing key": (lambda c: c.pop("audit_directory"), "audit_directory"),
    "jobs larger than what is kept": (lambda c: c["jobs"].update(keep_bytes=1000), "a job of tenant/alpha"),
    "tenant without a wall": (lambda c: c["identities"][0].update(wall=None), "behind one"),
    "empty wall": (lambda c: c["identities"][0].update(wall=[]), "empty wall"),
    "empty alternative": (lambda c: c["identities"][0].update(wall=[[]]), "empty wall"),
    "no wall for logs": (lambda c: c["identities"][0].update(log_wall=None), "behind one"),
    "empty wall for logs": (
        lambda c: c["identities"][0].update(log_wall={"stream": {}, "fields": {}}), "empty wall",
    ),
    "odd operator": (lambda c: c["identities"][0]["wall"][0][0].update(op="=="), "matcher"),
    "odd label": (lambda c: c["identities"][0]["wall"][0][0].update(label='a="b" or c'), "matcher"),
    "same key twice": (lambda c: c["identities"][1].update(key="tenant/alpha"), "twice"),
    "raw as degraded tier": (lambda c: c.update(degraded_tier="hot"), "aggregated"),
    "bounds for no tier": (lambda c: c["identities"][0]["bounds"].update(x=1), "by tier"),
    "unbounded": (lambda c: c["identities"][0]["bounds"]["minute"].update(points=0), "at least 1"),
    "text as number": (lambda c: c["identities"][0]["bounds"]["minute"].update(points="5"), "whole number"),
    "URL with a query": (lambda c: c["tiers"][1].update(urls=["http://x/?extra_label=a"]), "URL"),
    "several alternatives in Prometheus": (
        lambda c: c["identities"][0]["bounds"].update(hot=c["identities"][0]["bounds"]["minute"]),
        "alternatives",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_named(name: str, tmp_path: Path) -> None:
    value = json.loads(json.dumps(SOUND))
    change, says = DEFECTS[name]
    change(value)
    path = tmp_path / "querygate.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ConfigError, match=says):
        configs.load(str(path))


@pytest.mark.parametrize("listen", ["unix:/run/x.sock", "127.0.0.1:8540", "127.40.0.1:8540", "[::1]:8540"])
def test_where_it_may_listen(listen: str) -> None:
    assert configs.parse({**SOUND, "listen": listen}).listen == listen


def test_the_labs_contract_compiles() -> None:
    site = compile_site(*lab())
    settings = {
        "listen": "127.0.0.1:8540",
        "ops_listen": "127.0.0.1:8541",
        "state_directory": "/s",
        "audit_directory": "/a",
        "degraded_file": "/d",
        "tier_urls": {name: ["http://127.0.0.1:1"] for name in site["tiers"]},
        "log_urls": [],
    }
    site["administrators"] = [{"name": "ops", "certificate": "ops"}]
    config = configs.parse(compile_querygate(site, settings))
    people = {"tenant/alpha", "tenant/beta", "administrator/ops"}
    assert people | {"alerts/lake1", "alerts/region1", "archive/lake1"} == set(config.identities)
