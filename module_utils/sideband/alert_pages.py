"""Print docs/reference/alerts.md from the rules: what a notification's link leads to. Controller only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from . import alert_rules
from .alert_rules import Alert, Group, Limits

HEAD = """# The alerts

Written from `roles/alerts/files/rules/` by `make generate`; edit there ([how](../how_to/add_a_rule.md)). A
notification's link leads here: what it means, and what to try first.
"""
WHERE = {
    ("near", "region"): "at the region, from raw samples; needs no lake",
    ("near", "lake"): "beside the lake's tiers, from their own figures",
    ("near", "every"): "on every host that alerts, from its own figures",
    ("lake", "lake"): "at the lake, from the one-minute tier",
}


def page(groups: Sequence[Group]) -> str:
    return "\n".join([HEAD, *_thresholds(groups), *(line for group in groups for line in _group(group))])


def _thresholds(groups: Sequence[Group]) -> Iterator[str]:
    yield "## Thresholds"
    yield ""
    yield "A site sets them by `sideband_alerts_thresholds`, for a GPU model or a kind of job where it wants;"
    yield "a tenant sets the tunable ones for its own jobs at the gateway ([how](../how_to/tune_alerts.md))."
    yield ""
    yield "| name | default | tunable by a tenant |"
    yield "|---|---|---|"
    for name, default, tunable in sorted(alert_rules.thresholds(groups)):
        yield f"| `{name}` | {alert_rules.number(default)} | {'yes' if tunable else ''} |"
    yield ""


def _group(group: Group) -> Iterator[str]:
    yield f"## {group.name}"
    yield ""
    yield f"Computed every {group.every} {WHERE[group.judge, group.hosts]}."
    yield ""
    for name in dict.fromkeys(alert.name for alert in group.alerts):
        yield f"### {name}"
        yield ""
        for alert in (one for one in group.alerts if one.name == name):
            yield from _alert(group, alert)


def _alert(group: Group, alert: Alert) -> Iterator[str]:
    told = ", ".join(f"{key} {value}" for key, value in alert.labels.items())
    held = f", after {alert.hold}" if alert.hold else ""
    yield f"- **{alert.severity}**{held}{': ' + told if told else ''}. {alert.advice}"
    if alert.threshold:
        sign = "below" if alert.threshold.below else "above"
        yield f"- {sign} `{alert.threshold.name}`"
    plain = replace(alert.threshold, tunable=False) if alert.threshold else None
    yield f"- `{alert_rules.expression(replace(alert, threshold=plain), group.judge, Limits())}`"
    yield ""
