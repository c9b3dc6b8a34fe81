"""Alert rules as data: their form, what they read, thresholds by model, kind and tenant (N1, N2).

What they say of samples is tested by vmalert-tool: tests/root/test_alerts_tools.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import alert_kit
import promql_parser as pp
import pytest
import yaml
from sideband import alert_rules, alerts
from sideband.alert_rules import Limits

GROUPS = alert_rules.load(alert_kit.RULES)
ALERTS = [(group, alert) for group in GROUPS for alert in group.alerts]


def selected(node: Any) -> Iterator[str]:
    """The metrics that an expression names; a pattern of names as itself."""
    if isinstance(node, pp.VectorSelector):
        name = node.name or next(m.value for m in node.matchers.matchers if m.name == "__name__")
        yield str(name)
        return
    if isinstance(node, pp.MatrixSelector):
        yield from selected(node.vector_selector)
        return
    for key in ("expr", "lhs", "rhs", "param"):
        inside = getattr(node, key, None)
        if inside is not None and not isinstance(inside, (str, float)):
            yield from selected(inside)
    for inside in getattr(node, "args", None) or ():
        yield from selected(inside)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_group_reads_what_it_says(group: alert_rules.Group) -> None:
    """The store beside the judge is fed with these names alone: what is left out would never alert."""
    found: set[str] = set()
    for alert in group.alerts:
        found |= set(selected(pp.parse(f"({alert.expr}) {alert.also}")))
    # A pattern sees what the store is fed with for others.
    patterns = {name for name in found if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name)}
    assert bool(patterns) == (group.name == "fleet")
    assert found - patterns == set(group.reads)


@pytest.mark.parametrize(("group", "alert"), ALERTS, ids=lambda one: one.name)
def test_each_says_what_and_what_to_try(group: alert_rules.Group, alert: alert_rules.Alert) -> None:
    assert len(alert.summary) < 160
    assert len(alert.advice) <= 160
    assert "\n" not in alert.summary + alert.advice
    assert alert.severity != "none" or alert.name == "Watchdog"


def test_every_alert_fires_in_a_test() -> None:
    """And every group's file is one group's."""
    fired = {
        name
        for case in alert_kit.cases()
        for test in case["tests"]
        for one in test["expect"]
        for name, alerts in one.items()
        if name != "at" and alerts
    }
    assert {alert.name for _, alert in ALERTS} == fired
    assert [path.stem for path in sorted(alert_kit.RULES.glob("*.yml"))] == [group.name for group in GROUPS]


def test_each_alert_is_computed_in_one_place() -> None:
    """So no two Alertmanagers tell of it, and critical ones do not need the lake (A6)."""
    on_region, on_lake = alerts.places(["region"]), alerts.places(["lake"])
    assert (on_region, on_lake) == (
        {"near": ["every", "region"]},
        {"near": ["every", "lake"], "lake": ["lake"]},
    )
    for group, alert in ALERTS:
        # What a host says of itself alone is said on every host.
        assert group.hosts != "every" or group.name == "own"
        if alert.severity == "critical":
            assert group.judge == "near", alert.name


def test_numbers_of_the_site_are_put_in() -> None:
    limits = Limits.of(
        [{"name": "cpu_busy_percent", "value": 70}, {"name": "clock_offset_seconds", "value": 0.5}]
    )
    made = alert_rules.vmalert(alert_rules.load(alert_kit.RULES, limits), limits, "page")
    assert "> 70)" in made
    assert "> 0.5" in made
    rule = next(
        rule
        for group in yaml.safe_load(made)["groups"]
        for rule in group["rules"]
        if rule["alert"] == "ClockOff"
    )
    assert rule["annotations"]["link"] == "page#clockoff"
    assert rule["labels"] == {"severity": "warning"}
    assert rule["for"] == "2m"


def one(**changes: Any) -> alert_rules.Group:
    alert = {"name": "A", "severity": "info", "value": "x", "threshold": {"name": "t", "default": 1},
             "summary": "s", "try": "y", **changes}  # fmt: skip
    raw = {"group": "g", "judge": "near", "hosts": "region", "every": "1m", "reads": ["x"],
           "alerts": [{key: value for key, value in alert.items() if value is not None}]}  # fmt: skip
    return alert_rules.parse(raw, "g.yml", Limits())


@pytest.mark.parametrize(
    ("limits", "threshold", "made"),
    [
        ([], {}, "(x) > 1"),
        ([], {"below": True}, "(x) < 1"),
        ([{"name": "t", "value": 2}], {}, "(x) > 2"),
        ([{"name": "t", "value": 5, "model": 'A"'}], {},
         'WITH (v = (x), m0 = (label_match(v, "modelName", "A\\"")), r0 = (v unless m0)) '
         "((m0 > 5) or (r0 > 1))"),
        ([{"name": "t", "value": 5, "kind": "pod"}], {},
         'WITH (v = (x), m0 = ((v and on (site, node, job) sideband_job_info{kind=~"pod"})), '
         "r0 = (v unless m0)) ((m0 > 5) or (r0 > 1))"),
        ([], {"tunable": True},
         'WITH (v = (x), w = (max by (tenant) (last_over_time(sideband_alert_wish{threshold="t"}[10m]))), '
         "f = ((v > 1))) ((f unless on (tenant) w) or (v > on (tenant) group_left () w))"),
    ],
)  # fmt: skip
def test_thresholds(limits: list[dict[str, Any]], threshold: dict[str, Any], made: str) -> None:
    group = one(threshold={"name": "t", "default": 1, **threshold})
    assert alert_rules.expression(group.alerts[0], "near", Limits.of(limits)) == made


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"expr": "y"}, "g.yml: A: give an expr, or a value and a threshold"),
        ({"threshold": None}, "g.yml: A: give an expr, or a value and a threshold"),
        ({"severity": "urgent"}, "g.yml: A: severity is one of critical, warning, info, none"),
        ({"value": "x > ${y}"}, "g.yml: A: ${y} is defined nowhere"),
        ({"runbook": "z"}, "g.yml: A: unknown runbook; known are name, severity, expr, value, threshold, "
         "also, for, labels, summary, try"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_rule_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said) + "$"):
        one(**changes)


def test_every_link_leads_to_a_heading() -> None:
    page = Path(alert_kit.ROOT / "docs/reference/alerts.md").read_text()
    headings = {line[4:].lower() for line in page.splitlines() if line.startswith("### ")}
    assert {alert_rules.anchor(alert.name) for _, alert in ALERTS} == headings
    assert all(f"| `{name}` |" in page for name, _, _ in alert_rules.thresholds(GROUPS))
