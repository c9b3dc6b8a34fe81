"""Dashboards as code: what Grafana's own models take, PromQL that the gateway answers, metrics that exist."""

from __future__ import annotations

import json
import re
from itertools import combinations

import dashboards_kit as kit
import pytest
from contract_kit import LAB, load
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from sideband.catalogue import covers

from services.querygate import promql
from services.querygate.promql_tree import Selector, parse

PAGES = kit.pages()
# Of the racks' own programs, and what the policy process reports at every level.
BESIDE = {
    *load(kit.ROOT / "schemas/roles/rack.yml")["properties"]["sideband_rack_own_metrics"]["default"],
    *load(LAB / "group_vars/all/ladder.yml")["sideband_ladder"]["always"]["metrics"],
    "sideband_policy_last_fetch_age_seconds",
}
METRICS = [one["name"] for one in load(LAB / "group_vars/all/catalogue.yml")["sideband_catalogue"]["metrics"]]


@pytest.mark.parametrize("name", PAGES)
def test_grafanas_own_models_take_a_page_as_it_is(name: str) -> None:
    again = json.loads(json.dumps(Dashboard.from_json(PAGES[name]), cls=JSONEncoder))
    assert again == PAGES[name]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_complete(name: str) -> None:
    page = PAGES[name]
    assert page["uid"] == f"sideband-{name}"
    assert page["timezone"] == "utc"
    shown = [panel for panel in kit.panels(page) if panel["type"] != "row"]
    assert len(shown) >= 8
    assert len({panel["title"] for panel in shown if panel["type"] == "timeseries"}) == sum(
        panel["type"] == "timeseries" for panel in shown
    )
    for panel in shown:
        assert panel["targets"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
    places = [panel["gridPos"] for panel in kit.panels(page)]
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_all_pages_of_the_mission_are_there() -> None:
    assert sorted(PAGES) == ["capacity", "fleet", "gpu", "isolation", "job", "node", "pipeline"]


@pytest.mark.parametrize("question", list(kit.questions()), ids=lambda one: f"{one.page}-{one.panel}")
def test_a_question_is_promql_about_metrics_that_there_are(question: kit.Question) -> None:
    tree = parse(question.query)
    promql.forbid_writing(tree, ("tenant", "rack"))
    found = [one for one in promql.every(tree) if isinstance(one, Selector)]
    assert found
    for one in found:
        if not one.name:
            continue  # counts all names
        base = one.name.removeprefix("job:").partition(":")[0]
        assert base in BESIDE or any(covers(metric, base) for metric in METRICS), one.name
        whole = base.startswith(("sideband_train_", "sideband_nccl_"))
        assert bool(re.search(r":1m_(min|max|sum_samples|count_samples|increase)$", one.name)) != whole, (
            one.name
        )
