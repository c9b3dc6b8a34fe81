"""Do lines arrive? Every node says one when verify begins, and a gateway must find it in the log store.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .report import check
from .verify_data import nodes

Record = dict[str, Any]
SAID = "sideband verify run {magic}"
PATH = "/select/logsql/stats_query"
# The number of the run is filled in where it is asked.
QUERY = f'_time:15m "{SAID}" | stats by (node, rack) count() lines'


def ships(model: Mapping[str, Any], host: str) -> bool:
    return bool(model["hosts"].get(host, {}).get("reaches", {}).get("ship"))


def asks(model: Mapping[str, Any], host: str, patience: float) -> list[Record]:
    return [
        {
            "name": f"logs/{end['host']}/ipv{family}",
            "host": end[f"address{family}"],
            "port": end["port"],
            "path": PATH,
            "query": QUERY,
            "enough": sum(ships(model, node) for node in nodes(model)),
            "patience": patience,
            "ca": "/etc/sideband/gateway/ca.crt",
            "certificate": "/etc/sideband/gateway/host.crt",
            "key": "/etc/sideband/gateway/host.key",
        }
        for end in model["hosts"].get(host, {}).get("reaches", {}).get("find", ())
        for family in (4, 6)
        if end[f"address{family}"]
    ]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    """A check for each node that ships: its line, in its rack, once."""
    by_name = {answer["name"]: answer for answer in answers}
    checks = []
    for one in asks(model, host, 0):
        answer = by_name.get(one["name"], {"problem": "not asked", "rows": []})
        found = {
            (row["labels"].get("node"), row["labels"].get("rack")): row["value"] for row in answer["rows"]
        }
        for node in nodes(model):
            if ships(model, node):
                lines = found.get((node, model["hosts"][node]["rack"]), 0)
                got = answer["problem"] or f"{lines:.0f} lines"
                passed = not answer["problem"] and lines == 1
                checks.append(check(f"data {one['name']} {node}", passed, got, "its line of this run, once"))
    return checks
