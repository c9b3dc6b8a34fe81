"""What a sound site would answer to the questions of verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sideband import (
    alertmanager,
    alerts,
    verify_alerts,
    verify_archive,
    verify_data,
    verify_logs,
    verify_queries,
)


def right(model: Mapping[str, Any], ask: Mapping[str, Any], host: str = "gateway1") -> dict[str, Any]:
    kind, _, rest = ask["name"].partition("/")
    problem, rows = "", []
    if kind == "front":
        problem = f"ValueError: status 403: {verify_queries.REFUSED}"
    elif kind == "wall":
        racks = next(one["racks"] for one in model["tenants"] if one["name"] == rest)
        rows = [{"labels": {"rack": rack}, "value": 1.0} for rack in racks]
    elif kind == verify_archive.NAME:
        rows = [{"labels": {"rack": rack}, "value": 1.0} for rack in model["racks"]]
    elif kind == "alerts":
        rows = _alerts(model, host, rest)
    elif kind == "logs":
        shipping = [node for node in verify_data.nodes(model) if verify_logs.ships(model, node)]
        rows = [
            {"labels": {"node": node, "rack": model["hosts"][node]["rack"]}, "value": 1.0}
            for node in shipping
        ]
    else:
        labels = verify_data.QUESTIONS[kind][2]
        keys = verify_data.wanted(model, kind)
        rows = [{"labels": dict(zip(labels, key)), "value": 1.0} for key in keys]
    return {"name": ask["name"], "problem": problem, "rows": rows}


def _alerts(model: Mapping[str, Any], host: str, what: str) -> list[dict[str, Any]]:
    words = model["hosts"][host]["words"]
    if what == "rules":
        return [
            {"labels": {"daemon": f"judge-{judge}"}, "value": float(verify_alerts.rules(model, host, judge))}
            for judge in alerts.places(words)
        ]
    if what == "daemons":
        return [{"labels": {"daemon": name}, "value": 1.0} for name in alerts.daemons(words, 9090)]
    if what == "configuration":
        return [{"labels": {}, "value": alertmanager.fingerprint(alerts.manager(model, host))}]
    return [{"labels": {}, "value": 1.0}]
