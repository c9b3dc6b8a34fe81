"""Does alerting live? What a host of sideband_alerts asks the store beside its judges, and the judgement.

The watchdog has to be computed and Alertmanager to hear of it, every rule that the contract gives this host
has to be computed, and Alertmanager has to have the configuration that was compiled for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import alert_rules, alertmanager, alerts
from .alerts import JUDGES, STORE, places
from .report import check

Record = dict[str, Any]
PATH = "/api/v1/query"
# How old a figure may be: it is scraped every 15 s.
_WINDOW = "[1m]"
QUESTIONS: Mapping[str, str] = {
    "watchdog": f'last_over_time(ALERTS{{alertname="Watchdog",alertstate="firing"}}{_WINDOW})',
    "received": 'sum(increase(alertmanager_alerts_received_total{status="firing"}[2m]))',
    "configuration": f"last_over_time(alertmanager_config_hash{_WINDOW})",
    "rules": f"count by (daemon) (last_over_time(vmalert_alerting_rules_last_evaluation_samples{_WINDOW}))",
    "daemons": f'last_over_time(up{{job="own"}}{_WINDOW})',
}


def asks(model: Mapping[str, Any], host: str, patience: float) -> list[Record]:
    if "alerts" not in model["hosts"].get(host, {}).get("words", []):
        return []
    address, _, port = STORE.rpartition(":")
    return [
        {
            "name": f"alerts/{name}",
            "host": address,
            "port": int(port),
            "path": PATH,
            "query": query,
            "enough": 1,
            "patience": patience,
        }
        for name, query in QUESTIONS.items()
    ]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    wanted = asks(model, host, 0)
    if not wanted:
        return []
    by_name = {answer["name"]: answer for answer in answers}
    missing = {"problem": "not asked", "rows": []}
    found = {name: by_name.get(f"alerts/{name}", missing) for name in QUESTIONS}
    return [
        _values(host, "the watchdog is computed", found["watchdog"], lambda value: value == 1),
        _values(host, "Alertmanager hears of alerts", found["received"], lambda value: value > 0),
        _configuration(model, host, found["configuration"]),
        *(_rules(model, host, judge, found["rules"]) for judge in places(model["hosts"][host]["words"])),
        _daemons(host, found["daemons"]),
    ]


def _values(host: str, what: str, answer: Mapping[str, Any], fit: Any) -> Record:
    values = [row["value"] for row in answer["rows"]]
    got = answer["problem"] or (values[0] if values else "no figure")
    return check(f"alerts {host}: {what}", bool(values) and all(map(fit, values)), got, "so")


def _configuration(model: Mapping[str, Any], host: str, answer: Mapping[str, Any]) -> Record:
    values = [row["value"] for row in answer["rows"]]
    want = alertmanager.fingerprint(alerts.manager(model, host))
    got = answer["problem"] or (values[0] if values else "no figure")
    return check(f"alerts {host}: fingerprint of Alertmanager's configuration", got == want, got, want)


def rules(model: Mapping[str, Any], host: str, judge: str) -> int:
    """How many rules a judge of this host computes."""
    hosts = places(model["hosts"][host]["words"])[judge]
    return sum(len(group.alerts) for group in alerts.of_judge(alert_rules.load(), judge, hosts))


def _rules(model: Mapping[str, Any], host: str, judge: str, answer: Mapping[str, Any]) -> Record:
    rows = [row for row in answer["rows"] if row["labels"].get("daemon") == f"judge-{judge}"]
    want = rules(model, host, judge)
    got = answer["problem"] or (int(rows[0]["value"]) if rows else 0)
    return check(f"alerts {host}: rules of judge {judge} at {JUDGES[judge]}", got == want, got, want)


def _daemons(host: str, answer: Mapping[str, Any]) -> Record:
    down = sorted(row["labels"].get("daemon", "") for row in answer["rows"] if row["value"] != 1)
    got = answer["problem"] or down or ("none seen" if not answer["rows"] else [])
    return check(f"alerts {host}: daemons that do not answer", got == [], got, [])
