"""What one host of sideband_alerts runs, from the contract: rules, who is told, what is expected.

A host judges what is near it: raw samples in a small store of its own (a region's agent feeds it, own daemons
are scraped by it), and the one-minute tier where that is on the same host. Every rule is computed in exactly
one place, so no two Alertmanagers tell of one alert and none has to know another (ADR 0012). Controller only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from . import alert_rules, alertmanager, logs, notify
from .alert_rules import Group, Limits

Record = dict[str, Any]

# On loopback, all of them.
STORE, MANAGER, NOTIFIER = "127.0.0.1:8551", "127.0.0.1:8552", "127.0.0.1:8553"
JUDGES = {"near": "127.0.0.1:8554", "lake": "127.0.0.1:8555"}
REGION_AGENT, MINUTE = "127.0.0.1:8531", "127.0.0.1:8532"
JUDGE_UNIT = "sideband-alerts-judge@.service"
CONFIGURATION, STATE = "/etc/sideband/alerts", "/var/lib/sideband/alerts"
SCRAPE_SECONDS = 15
FACTS_SECONDS = 30
WISHES_SECONDS = 20
# What verify asks for, beside what rules read.
_VERIFIED = (
    "alertmanager_alerts_received_total",
    "alertmanager_config_hash",
    "vmalert_alerting_rules_last_evaluation_samples",
)
_IMPORT = "/api/v1/import/prometheus"


@dataclass(frozen=True)
class Settings:
    """The role's own: where the hot tier listens, what alerts link to, thresholds."""

    hot_port: int
    link: str
    limits: Limits
    certificates: Sequence[Mapping[str, Any]]  # {function, host, ends}: seconds since 1970


def places(words: Sequence[str]) -> dict[str, list[str]]:
    """Judge -> whose groups it computes on a host with these roles."""
    found = {"near": ["every", *(word for word in ("region", "lake") if word in words)]}
    if "lake" in words:
        found["lake"] = ["lake"]
    return found


def of_judge(groups: Sequence[Group], judge: str, hosts: Sequence[str]) -> list[Group]:
    return [group for group in groups if group.judge == judge and group.hosts in hosts]


def feed(groups: Sequence[Group]) -> str:
    """A region's agent hands these names to the store beside it: a relabelling file for that destination."""
    names = alert_rules.reads(groups, "near", ["region"])
    keep = {"action": "keep", "source_labels": ["__name__"], "regex": "|".join(names)}
    text: str = yaml.safe_dump([keep], sort_keys=False, width=10_000)
    return text


def compile_host(model: Mapping[str, Any], name: str, groups: Sequence[Group], settings: Settings) -> Record:
    host = model["hosts"][name]
    words, where = host["words"], places(host["words"])
    inbox = next(iter(host["reaches"].get("notify", ())), None)
    files = [
        {
            "path": f"{CONFIGURATION}/scrape.yml",
            "content": _scrape(model["site"], name, words, groups, settings),
        },
        {"path": f"{CONFIGURATION}/facts.prom", "content": facts(model, words, settings.certificates)},
    ]
    rules: list[Record] = []
    for judge, hosts in where.items():
        mine = of_judge(groups, judge, hosts)
        rules += [
            {
                "path": f"{CONFIGURATION}/{judge}/{group.name}.yml",
                "content": alert_rules.vmalert([group], settings.limits, settings.link),
            }
            for group in mine
        ]
        files.append({"path": f"{CONFIGURATION}/{judge}.env", "content": _environment(name, judge)})
    files = [{**one, "mode": "0644"} for one in files]
    return {
        "units": [_unit(judge, of_judge(groups, judge, hosts)) for judge, hosts in where.items()],
        "directories": [{"path": f"{CONFIGURATION}/{judge}", "mode": "0755"} for judge in where],
        "files": files,
        "rules": rules,
        "manager": manager(model, name),
        "notifier": json.dumps(_notifier(model, words, groups, inbox, settings), indent=1) + "\n",
        "secrets": [
            {"path": f"{CONFIGURATION}/secrets/{file}", "file": kept["secret_file"],
             "variable": kept["secret_variable"]}
            for file, kept in notify.secrets(model["notify"], tuple(words))
        ],
    }  # fmt: skip


def manager(model: Mapping[str, Any], name: str) -> str:
    """Alertmanager's file, which needs the contract alone. JSON is YAML too."""
    host = model["hosts"][name]
    inbox = next(iter(host["reaches"].get("notify", ())), None)
    made = alertmanager.compile_manager(model["notify"], host["words"], _places(inbox))
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _unit(judge: str, groups: Sequence[Group]) -> Record:
    return {
        "name": f"sideband-alerts-judge@{judge}.service",
        "enabled": True,
        "running": True,
        "restart_on": [f"/etc/systemd/system/{JUDGE_UNIT}", f"{CONFIGURATION}/{judge}.env"],
        "reload_on": [f"{CONFIGURATION}/{judge}/{group.name}.yml" for group in groups],
    }


def _places(inbox: Mapping[str, Any] | None) -> alertmanager.Places:
    return alertmanager.Places(
        secrets=f"{CONFIGURATION}/secrets",
        templates=f"{CONFIGURATION}/*.tmpl",
        notifier=NOTIFIER,
        inbox=_authority(inbox) if inbox else "",
        inbox_tls={
            "ca_file": f"{CONFIGURATION}/ca.crt",
            "cert_file": f"{CONFIGURATION}/host.crt",
            "key_file": f"{CONFIGURATION}/host.key",
        },
    )


def _authority(end: Mapping[str, Any]) -> str:
    return str(end["authority"] or end["authority6"])


def _stores(words: Sequence[str]) -> list[str]:
    return [STORE, *([MINUTE] if "lake" in words else [])]


def _environment(name: str, judge: str) -> str:
    store = {"near": STORE, "lake": MINUTE}[judge]
    return f"LISTEN={JUDGES[judge]}\nSTORE=http://{store}\nHOST={name}\n"


def daemons(words: Sequence[str], hot_port: int) -> dict[str, str]:
    """Whose own figures the store on such a host scrapes: name -> address on its loopback."""
    found = {"store": STORE, "manager": MANAGER, "notifier": NOTIFIER}
    found.update({f"judge-{judge}": JUDGES[judge] for judge in places(words)})
    if "region" in words:
        found["region-agent"] = REGION_AGENT
    if "lake" in words:
        found.update({"hot": f"127.0.0.1:{hot_port}", "minute": MINUTE})
    if "logs" in words:
        found.update({"keeper": logs.KEEPER_OPS, "logs": logs.STORE_LISTEN})
    return found


def _scrape(site: str, name: str, words: Sequence[str], groups: Sequence[Group], settings: Settings) -> str:
    keep = alert_rules.reads(groups, "near", places(words)["near"])
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": "10s"},
        "scrape_configs": [
            {
                "job_name": "own",
                "static_configs": [
                    {"targets": [address], "labels": {"site": site, "host": name, "daemon": daemon}}
                    for daemon, address in daemons(words, settings.hot_port).items()
                ],
                "metric_relabel_configs": [
                    {"action": "keep", "source_labels": ["__name__"], "regex": "|".join([*keep, *_VERIFIED])}
                ],
            }
        ],
    }
    text: str = yaml.safe_dump(config, sort_keys=False, width=10_000)
    return text


def facts(model: Mapping[str, Any], words: Sequence[str], certificates: Sequence[Mapping[str, Any]]) -> str:
    """The expected set, for the region's judge; nothing on other hosts, where nobody asks."""
    if "region" not in words:
        return ""
    site, lines = model["site"], []
    for name, host in model["hosts"].items():
        for word in ("node", "rack"):
            if word in host["words"]:
                labels = f'site="{site}",rack="{host["rack"]}",node="{name}"'
                lines.append(f"sideband_expected_{word}{{{labels}}} 1")
    for one in certificates:
        labels = f'site="{site}",function="{one["function"]}",host="{one["host"]}"'
        lines.append(f"sideband_certificate_expires_timestamp_seconds{{{labels}}} {one['ends']}")
    return "".join(f"{line}\n" for line in lines)


def _notifier(
    model: Mapping[str, Any], words: Sequence[str], groups: Sequence[Group],
    inbox: Mapping[str, Any] | None, settings: Settings,
) -> Record:  # fmt: skip
    kinds = (*notify.ROBOTS, "slack")
    return {
        "listen": NOTIFIER,
        "receivers": {
            one["name"]: {
                "kind": one["kind"],
                "secret_file": f"{CONFIGURATION}/secrets/{one['kind']}-{one['name']}",
            }
            for one in model["notify"]["receivers"]
            if one["kind"] in kinds
        },
        "facts_file": f"{CONFIGURATION}/facts.prom",
        "facts_urls": [f"http://{store}{_IMPORT}" for store in _stores(words)],
        "facts_seconds": FACTS_SECONDS,
        "wishes": {
            "url": f"https://{_authority(inbox)}/api/v1/wishes",
            "ca": f"{CONFIGURATION}/ca.crt",
            "certificate": f"{CONFIGURATION}/host.crt",
            "key": f"{CONFIGURATION}/host.key",
            "state": f"{STATE}/notifier/wishes.json",
            "seconds": WISHES_SECONDS,
            "hosts": list(model["notify"]["channel_hosts"]),
            "tunable": [name for name, _, tunable in alert_rules.thresholds(groups) if tunable],
        }
        if inbox
        else None,
    }
