"""The noun `notify`: who is told what. Never a secret: only where one is kept (case 10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .units import duration_seconds

SEVERITIES = ("critical", "warning", "info")
INBOX = "inbox"
# Kinds that need no secret; the others post to a URL or with a key that is one.
OPEN_KINDS = (INBOX, "email")
# What our own program sends: Alertmanager does not know their robots.
ROBOTS = ("wecom", "dingtalk")
# Whose messages need no template, so that one of them hears of what no other could be told (case 73).
PLAIN_KINDS = (INBOX, *ROBOTS, "slack", "webhook")
# Where a tenant's own channel may lead.
CHANNEL_HOSTS = ("qyapi.weixin.qq.com", "oapi.dingtalk.com", "hooks.slack.com")
DEFAULTS: Mapping[str, Any] = {
    "receivers": [{"name": INBOX, "kind": INBOX}],
    "routes": {severity: [INBOX] for severity in SEVERITIES},
}


def parse(noun: Mapping[str, Any] | None) -> dict[str, Any]:
    given = noun or DEFAULTS
    return {
        "receivers": [
            {
                "name": receiver["name"],
                "kind": receiver["kind"],
                "to": list(receiver.get("to", ())),
                **_secret(receiver),
            }
            for receiver in given["receivers"]
        ],
        "routes": {severity: list(given["routes"][severity]) for severity in SEVERITIES},
        "channel_hosts": list(given.get("channel_hosts", CHANNEL_HOSTS)),
        "smtp": _smtp(given["smtp"]) if "smtp" in given else None,
        "watchdogs": [
            {
                "from": one["from"],
                "period_seconds": duration_seconds(one.get("period", "1m")),
                **_secret(one),
            }
            for one in given.get("watchdogs", ())
        ],
    }


def _smtp(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "server": given["server"],
        "port": given["port"],
        "from": given["from"],
        "tls": given.get("tls", True),
        "user": given.get("user", ""),
        **_secret(given),
    }


def _secret(given: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(given.get(key, "")) for key in ("secret_file", "secret_variable")}


def secrets(parsed: Mapping[str, Any], words: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file's name, where the secret is kept) of every secret that an Alertmanager on such a host needs."""
    for receiver in parsed["receivers"]:
        if receiver["kind"] not in OPEN_KINDS:
            yield f"{receiver['kind']}-{receiver['name']}", receiver
    smtp = parsed["smtp"]
    if smtp and (smtp["secret_file"] or smtp["secret_variable"]):
        yield "smtp", smtp
    for one in parsed["watchdogs"]:
        if one["from"] in words:
            yield f"watchdog-{one['from']}", one
