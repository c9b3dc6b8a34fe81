"""Alertmanager's configuration from the noun `notify`: who is told, how often, what is kept quiet.

No secret is in it: a receiver names the file that holds its own. What Alertmanager does itself (Slack,
PagerDuty, e-mail, plain webhooks) it does; the robots of WeCom and DingTalk, and tenants' own channels, are
told by our own program on loopback. The first route hears everything and needs no template, so an alert that
another receiver could not render is not lost (case 73).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .notify import INBOX, ROBOTS, SEVERITIES

Record = dict[str, Any]

# Alertmanager waits this long for others of a group, and tells of a change no sooner than that.
_WAITS: Mapping[str, tuple[str, str, str]] = {
    "critical": ("5s", "30s", "4h"),
    "warning": ("30s", "5m", "12h"),
    "info": ("1m", "10m", "1d"),
}
INBOX_ALERTS = 600  # at a time; the gateway takes 1,000 and 1 MiB
# What is one fault and many alerts: (what is told, what follows from it, where it must be the same).
_INHIBIT: Sequence[tuple[str, str, tuple[str, ...]]] = (
    ("RackGone", "NodeGone|MetricGone", ("site", "rack")),
    ("NodeGone", "GpuReaderDown|MetricGone|TrainingGone|TrainingRankGone", ("site", "node")),
    ("GpuLost", "GpuXid", ("site", "node", "gpu")),
    ("TrainingGone", "TrainingRankGone", ("site", "node", "job")),
)


@dataclass(frozen=True)
class Places:
    """Where things are on the host."""

    secrets: str  # directory
    templates: str  # glob
    notifier: str  # authority of our own program
    inbox: str = ""  # authority of the gateway's inbox, empty without one
    inbox_tls: Mapping[str, str] | None = None  # ca_file, cert_file, key_file


def compile_manager(notify: Mapping[str, Any], words: Sequence[str], places: Places) -> Record:
    """The whole file. `words`: the roles of the host that it is for."""
    told = [one for one in notify["receivers"] if one["kind"] != INBOX or places.inbox]
    fallback, kinds = _fallback(told), {one["name"]: one["kind"] for one in told}
    watchdogs = [one for one in notify["watchdogs"] if one["from"] in words]
    return {
        "global": {"resolve_timeout": "5m"},
        "templates": [places.templates],
        "route": {
            "receiver": "fallback",
            "group_by": ["alertname", "site"],
            **_waits("warning"),
            "routes": [
                *_watchdog_routes(watchdogs),
                *([_everything()] if fallback["kind"] == INBOX else []),
                {
                    "receiver": "tenants",
                    "matchers": ['tenant!=""', 'tenant!="unassigned"'],
                    "group_by": ["tenant"],
                    "continue": True,
                    **_waits("critical"),
                },
                *(
                    {
                        "receiver": name,
                        "matchers": [f'severity="{severity}"'],
                        "group_by": _grouped(kinds[name]),
                        "continue": True,
                        **_waits(severity),
                    }
                    for severity in SEVERITIES
                    for name in notify["routes"][severity]
                    if name in kinds and (name, kinds[name]) != (fallback["name"], INBOX)
                ),
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": [f'alertname="{source}"'],
                "target_matchers": [f'alertname=~"{target}"'],
                "equal": list(equal),
            }
            for source, target, equal in _INHIBIT
        ],
        "receivers": [
            {"name": "fallback", **_plainly(fallback, places)},
            {"name": "tenants", **_ours("tenants", places)},
            {"name": "nobody"},
            *(
                {"name": f"watchdog-{one['from']}", **_hook(f"watchdog-{one['from']}", places, False)}
                for one in watchdogs
            ),
            *(
                {"name": one["name"], **_receiver(one, notify["smtp"], places)}
                for one in told
                if one["name"] != fallback["name"] or one["kind"] != INBOX
            ),
        ],
    }


def _fallback(told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The inbox; else the first that is told without a template. The contract has seen that there is one."""
    kinds = (INBOX, *ROBOTS, "slack", "webhook")
    fit = sorted((one for one in told if one["kind"] in kinds), key=lambda one: kinds.index(one["kind"]))
    return fit[0]


def _everything() -> Record:
    """At once, and in few pieces: the inbox's front takes so many requests in ten seconds, and a storm of one
    request for each alert would be turned away."""
    return {"receiver": "fallback", "continue": True, "group_by": ["site", "rack", "severity"],
            "group_wait": "1s", "group_interval": "30s", "repeat_interval": "12h"}  # fmt: skip


def _grouped(kind: str) -> list[str]:
    """A robot takes 20 messages a minute, so a storm of many alerts goes to it in one piece; our own program
    puts it into words. For the others a message is about one alert's name."""
    return ["site"] if kind in ROBOTS else ["alertname", "site"]


def _waits(severity: str) -> dict[str, str]:
    wait, interval, repeat = _WAITS[severity]
    return {"group_wait": wait, "group_interval": interval, "repeat_interval": repeat}


def _watchdog_routes(watchdogs: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Repeated at every turn of its group: a repeat as long as the turn would leave out every other one."""
    matchers = ['alertname="Watchdog"']
    if not watchdogs:
        return [{"receiver": "nobody", "matchers": matchers}]
    return [
        {
            "receiver": f"watchdog-{one['from']}",
            "matchers": matchers,
            "group_wait": "0s",
            "group_interval": f"{one['period_seconds']}s",
            "repeat_interval": f"{max(1, one['period_seconds'] // 2)}s",
            "continue": one is not watchdogs[-1],
        }
        for one in watchdogs
    ]


def _ours(name: str, places: Places) -> Record:
    return {
        "webhook_configs": [{"url": f"http://{places.notifier}/send/{name}", "send_resolved": True}],
    }


def _hook(secret: str, places: Places, resolved: bool) -> Record:
    return {"webhook_configs": [{"url_file": f"{places.secrets}/{secret}", "send_resolved": resolved}]}


def _plainly(receiver: Mapping[str, Any], places: Places) -> Record:
    """A receiver in a form without templates."""
    if receiver["kind"] == "webhook":
        return _hook(f"webhook-{receiver['name']}", places, True)
    if receiver["kind"] == INBOX:
        hook = {
            "url": f"https://{places.inbox}/api/v1/inbox",
            "send_resolved": True,
            "max_alerts": INBOX_ALERTS,
            "http_config": {"tls_config": dict(places.inbox_tls or {})},
        }
        return {"webhook_configs": [hook]}
    return _ours(receiver["name"], places)


def _receiver(receiver: Mapping[str, Any], smtp: Mapping[str, Any] | None, places: Places) -> Record:
    kind, name = receiver["kind"], receiver["name"]
    secret = f"{places.secrets}/{kind}-{name}"
    if kind == "slack":
        return {"slack_configs": [{"api_url_file": secret, "send_resolved": True, **_SLACK}]}
    if kind == "pagerduty":
        return {"pagerduty_configs": [{"routing_key_file": secret, "send_resolved": True, **_PAGERDUTY}]}
    if kind == "email":
        return {"email_configs": [_email(receiver, smtp or {}, places)]}
    return _plainly(receiver, places)


def _email(receiver: Mapping[str, Any], smtp: Mapping[str, Any], places: Places) -> Record:
    made = {
        "to": ", ".join(receiver["to"]),
        "from": smtp["from"],
        "smarthost": f"{smtp['server']}:{smtp['port']}",
        "require_tls": smtp["tls"],
        "send_resolved": True,
        "headers": {"Subject": '{{ template "sideband.title" . }}'},
        "text": '{{ template "sideband.text" . }}',
        "html": "",
    }
    if smtp["user"]:
        made["auth_username"] = smtp["user"]
    if smtp["secret_file"] or smtp["secret_variable"]:
        made["auth_password_file"] = f"{places.secrets}/smtp"
    return made


_SLACK: Mapping[str, str] = {
    "username": "sideband",
    "title": '{{ template "sideband.title" . }}',
    "title_link": '{{ template "sideband.link" . }}',
    "fallback": '{{ template "sideband.title" . }}',
    "text": '{{ template "sideband.text" . }}',
    "color": '{{ template "sideband.color" . }}',
}
_PAGERDUTY: Mapping[str, Any] = {
    "description": '{{ template "sideband.title" . }}',
    "client": "sideband",
    "client_url": '{{ template "sideband.link" . }}',
    "severity": '{{ template "sideband.severity" . }}',
    "details": {"text": '{{ template "sideband.text" . }}'},
}


def fingerprint(text: str) -> float:
    """What Alertmanager says of a file as `alertmanager_config_hash`: the first six bytes of its MD5 as a
    number.

    Source: Alertmanager's config/coordinator.go (md5HashAsMetricValue)."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    value: int = struct.unpack("<Q", digest[:6] + b"\0\0")[0]
    return float(value)
