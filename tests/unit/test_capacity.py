"""The capacity plan: each figure from its formula, against its limit and what is deployed (O9, A3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from contract_kit import change, lab
from sideband import capacity, catalogue
from sideband.contract import compile_site
from sideband.deployed import read, record, shrinking
from sideband.plan import plan_lines
from test_contract_playbooks import ROOT, play

RECORD = ROOT / "playbooks" / "record.yml"
CONTRACT = ROOT / "playbooks" / "contract.yml"


def model(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return compile_site(*change(*lab(), spec or {}))


def test_samples_are_series_by_their_periods() -> None:
    """full every 5 s, what is always sent every 10 s."""
    node = capacity.plan(model())["nodes"][0]
    always = 8 + 2 * 2  # three file systems for each of two names
    # 2 GPUs with 18 values each and their Xid errors, 2 jobs with 6 each, and what watches them.
    level = 350 + 2 * 18 + (2 * (2 + 1 + 1) + 11) + 2 * 6 + 10 + 1 + 14
    assert node["series"] == level + always
    assert node["samples_per_second"] == pytest.approx(level / 5 + always / 10)
    # A request each period and each report, a poll every 2 s.
    sent = (575 + 20 * level) / 5 + (575 + 45 * always) / 10 + 283 / 2
    assert node["bytes_per_second"] == pytest.approx(sent, abs=1)


def test_each_hop_carries_what_is_below_it() -> None:
    hops = {hop["flow"]: hop for hop in capacity.plan(model())["hops"]}
    relay, store = (hops[name]["bytes_per_second"] for name in ("relay", "store"))
    samples = capacity.plan(model())["nodes"][0]["samples_per_second"]
    assert hops["relay"]["host"] == "rack1"  # two of the three nodes
    assert relay == pytest.approx(575 + 20 * 2 * samples, abs=1)
    assert store == pytest.approx(575 + 20 * 3 * samples, abs=1)


def test_a_tier_takes_samples_by_retention_by_bytes() -> None:
    hot, minute = capacity.plan(model())["tiers"]
    assert hot["bytes"] == pytest.approx(hot["samples_per_second"] * 7 * 86400 * 1.1 * 2, rel=1e-3)
    assert minute["bytes"] == pytest.approx(minute["samples_per_second"] * (365 + 31) * 86400, rel=1e-3)


def test_the_catalogue_says_what_a_tier_keeps() -> None:
    """A counter costs a minute one sample, a gauge four; fewer where the catalogue keeps fewer (A3)."""
    load = "all.sideband_catalogue.metrics.node_load1"
    full = capacity.plan(model())["tiers"][1]["samples_per_second"]
    keep = {"minute": {"statistics": ["max"], "dimensions": []}}
    less = capacity.plan(model({"set": {f"{load}.keep": keep}}))["tiers"][1]["samples_per_second"]
    assert full == less  # node_load* is another entry's
    cpu = {"minute": {"statistics": ["increase"], "dimensions": ["mode"]}}
    spec = {"set": {"all.sideband_catalogue.metrics.node_cpu_seconds_total.keep": cpu}}
    modes = capacity.plan(model(spec))["tiers"][1]["samples_per_second"]
    assert full - modes == pytest.approx(3 * (16 - 8) / 60, abs=1e-3)


def test_gpus_and_jobs_cost_by_their_number() -> None:
    """The finest tier has no series of jobs; the next has each GPU's, and its job's once more; curves are
    kept whole, and are nobody's in the ladder."""
    size = "all.sideband_budget.nodes.lab.size"
    none = {"set": {f"{size}.gpus": 0, f"{size}.jobs": 0}}
    hot, minute = capacity.plan(model())["tiers"]
    hot_bare, minute_bare = capacity.plan(model(none))["tiers"]
    assert hot["series"] - hot_bare["series"] == 3 * (2 * 18 + 2 * 4)
    curves = 2 * (6 + 4)
    gauges, counters = 2 * (12 * 4 + 6), 2 * (12 * 4 + 6)  # by GPU, and by job: as many jobs as GPUs
    assert minute["series"] - minute_bare["series"] >= 3 * (gauges + counters + curves)


def test_the_longest_entry_holds() -> None:
    metrics = catalogue.parse(
        {
            "periods": {"fast": "5s"},
            "metrics": [
                {
                    "name": name,
                    "class": "core",
                    "kind": kind,
                    "period": "fast",
                }  # of a node, if nothing is said
                for name, kind in (("a_*", "mixed"), ("a_b_*", "gauge"), ("a_b_c", "counter"))
            ],
        }
    )["metrics"]
    found = [catalogue.entry_of(metrics, name) for name in ("a_b_c", "a_b_d", "a_x", "z")]
    assert [entry and entry["kind"] for entry in found] == ["counter", "gauge", "mixed", None]


def test_series_that_a_site_states_count() -> None:
    entry = {"name": "site_job_info", "class": "extra", "kind": "gauge", "period": "fast", "series": 500}
    spec = {
        "add": {
            "all.sideband_catalogue.metrics": entry,
            "all.sideband_ladder.levels.full.metrics": "site_job_info",
        }
    }
    before, after = capacity.plan(model()), capacity.plan(model(spec))
    assert after["series"] - before["series"] == 3 * 500


def test_a_site_without_a_budget_is_planned_and_not_refused() -> None:
    spec = {"remove": ["all.sideband_budget"], "set": {"all.sideband_tiers.hot.cap": "1MiB"}}
    built = model(spec)
    planned = capacity.plan(built)
    assert planned["nodes"][0]["name"] == "assumed"
    assert list(capacity.excess(built, planned)) == []


def test_every_figure_has_its_source() -> None:
    text = "\n".join(plan_lines(model()))
    for figure in capacity.FIGURES.values():
        assert figure.source
        assert figure.source in text


def test_a_change_shows_its_price() -> None:
    """A3: before it is made, line by line."""
    deployed = record(model())
    spec = {
        "add": {
            "all.sideband_catalogue.metrics": {
                "name": "site_job_info", "class": "extra", "kind": "gauge", "period": "fast", "series": 500,
            },
            "all.sideband_ladder.levels.full.metrics": "site_job_info",
        }
    }  # fmt: skip
    text = "\n".join(plan_lines(model(spec), deployed))
    assert "site_job_info  0 samples/s  300 samples/s  +300 samples/s" in text
    assert "tier hot" in text.split("Against what is deployed")[1]
    assert plan_lines(model(), deployed)[-1] == "Against what is deployed: no difference."


def test_the_record_is_plain_and_stable() -> None:
    once = json.dumps(record(model()), sort_keys=True)
    assert json.loads(once)["tiers"]["hot"]["retention_seconds"] == 604800
    assert once == json.dumps(record(model()), sort_keys=True)


def test_what_is_deployed_longer_does_not_shrink_by_growing() -> None:
    deployed = record(model())
    assert (
        list(shrinking(deployed, model({"set": {"all.sideband_tiers.minute.retention": "400d"}})["tiers"]))
        == []
    )
    assert list(shrinking({}, model()["tiers"])) == []


def test_a_complete_run_records_and_a_limited_one_does_not(tmp_path: Path) -> None:
    """Case 59 by the playbooks: recorded, shrunk, refused, confirmed."""
    records = f"sideband_contract_records={tmp_path}"
    assert play(CONTRACT, RECORD, "-e", records, "--limit", "node1").returncode == 0
    place = tmp_path / "lab" / "deployed.json"
    assert play(CONTRACT, RECORD, "-e", records, "--check").returncode == 0
    assert not place.exists()
    assert play(CONTRACT, RECORD, "-e", records).returncode == 0
    kept = json.loads(place.read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(record(model())))
    kept["tiers"]["hot"]["retention_seconds"] += 86400
    kept["tiers"]["hot"]["retention"] = "8d"
    place.write_text(json.dumps(kept), encoding="utf-8")
    refused = play(CONTRACT, "-e", records)
    assert refused.returncode != 0
    assert "is shorter than the deployed 8d (got 7d)" in refused.stdout
    assert "confirm_retention=shrink" in refused.stdout
    assert play(CONTRACT, "-e", records, "-e", "confirm_retention=shrink").returncode == 0
    renamed = play(CONTRACT, "-e", records, "-e", "sideband_site=lab2")
    assert renamed.returncode != 0
    assert (
        "all: sideband_site: has no record, and lake1 holds the data of 'lab' (got 'lab2'); "
        in renamed.stdout
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tiers": {"hot": {}}}', '{"tiers": []}', "[" * 200_000])
def test_a_damaged_record_is_unknown_and_not_nothing(tmp_path: Path, text: str) -> None:
    """Else a shrink would pass unasked, or the check would end in a traceback."""
    path = tmp_path / "deployed.json"
    path.write_text(text, encoding="utf-8")
    deployed = read(path)
    (error,) = map(str, shrinking(deployed, {}))
    assert error.startswith(f"all: {path}: is damaged, so that nobody knows what is deployed; ")
    assert plan_lines(model(), deployed)[-1].startswith("Nothing is recorded")
    path.write_text(json.dumps(record(model())), encoding="utf-8")
    assert read(path) == record(model())
