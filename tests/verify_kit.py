"""What a sound site would answer to the questions of verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sideband import verify_data, verify_queries


def right(model: Mapping[str, Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    kind, _, rest = ask["name"].partition("/")
    problem, rows = "", []
    if kind == "front":
        problem = f"ValueError: status 403: {verify_queries.REFUSED}"
    elif kind == "wall":
        racks = next(one["racks"] for one in model["tenants"] if one["name"] == rest)
        rows = [{"labels": {"rack": rack}, "value": 1.0} for rack in racks]
    else:
        labels = verify_data.QUESTIONS[kind][2]
        keys = verify_data.wanted(model, kind)
        rows = [{"labels": dict(zip(labels, key)), "value": 1.0} for key in keys]
    return {"name": ask["name"], "problem": problem, "rows": rows}
