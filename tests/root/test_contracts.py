"""Fifty random contracts: each validates, compiles, and is read by kernel and daemons (acceptance 1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract_kit import Groups, HostVars, change, lab
from deploy_kit import SERVES, Ground, each, meaning
from sideband.contract import compile_site

pytestmark = pytest.mark.root
COUNT = 50


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("contracts"))
    yield made
    made.close()


def test_random_contracts_are_read_by_everything_that_reads_them(ground: Ground) -> None:
    faults: list[str] = []

    def look(hostvars: HostVars, groups: Groups) -> None:
        faults.extend(ground.faults(hostvars, groups))

    each(COUNT, look)
    assert faults == []
    assert ground.counts["contracts"] == COUNT
    assert ground.counts["configurations"] >= COUNT * 7
    assert ground.counts["checks"] >= COUNT * 4


def test_what_a_daemon_refuses_is_seen(ground: Ground) -> None:
    """A check that cannot fail is a defect: rules, a configuration and a meaning, broken once each."""
    model = compile_site(*lab())
    model["hosts"]["rack1"]["ruleset"] += "table netdev sideband { chain x { type nonsense; } }\n"
    assert ground._rules(model)[0].startswith("nft: ")
    del model["hosts"]["gateway1"]["serves"]["query"]
    assert "does not render" in ground._daemons("gateway", "gateway1", model)[0]
    model = compile_site(*lab())
    broken = {"path": "/etc/sideband/rack/haproxy.cfg", "content": "frontend x\n  bnid :1\n", "mode": "0644",
              "check": "haproxy -c -f %s"}  # fmt: skip
    ground.bench.place(broken, broken["content"].encode())
    assert "bnid" in ground._check(broken)
    for word, flows in SERVES.items():
        host = next(name for name, part in model["hosts"].items() if word in part["words"])
        assert meaning(word, host, model, "    bind 0.0.0.0:8427\n")
        listens = [
            model["hosts"][host]["serves"][flow][key] for flow in flows for key in ("listen4", "listen6")
        ]
        assert meaning(word, host, model, "".join(f"    bind {address} ssl\n" for address in listens)) == []


def test_what_the_catalogue_keeps_is_read_by_the_aggregator(ground: Ground) -> None:
    stem = "all.sideband_catalogue.metrics"
    keep = {
        "node_load1": ["max"],
        "node_disk_*": ["increase", "sum_samples", "count_samples"],
        "node_cpu_seconds_total": ["increase"],
    }
    spec = {
        "set": {
            f"{stem}.{name}.keep": {"minute": {"statistics": said, "dimensions": ["device"]}}
            for name, said in keep.items()
        }
    }
    before = ground.counts["checks"]
    assert ground.faults(*change(*lab(), spec)) == []
    assert ground.counts["checks"] > before
