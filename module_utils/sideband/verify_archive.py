"""Can the archive read? What its host asks the gateway's front, by the flow `export` and with its own
certificate, and the judgement. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .report import check
from .verify_queries import PATH, QUESTION

Record = dict[str, Any]
NAME = "export"
CONFIGURATION = "/etc/sideband/archive"


def asks(model: Mapping[str, Any], host: str, patience: float) -> list[Record]:
    part = model["hosts"].get(host, {})
    if "archive" not in part.get("words", []):
        return []
    front = part["reaches"][NAME][0]
    return [
        {
            "name": NAME,
            "host": front["address4"] or front["address6"],
            "port": front["port"],
            "path": PATH,
            "query": QUESTION,
            "enough": 1,
            "patience": patience,
            "ca": f"{CONFIGURATION}/ca.crt",
            "certificate": f"{CONFIGURATION}/host.crt",
            "key": f"{CONFIGURATION}/host.key",
        }
    ]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    if not asks(model, host, 0):
        return []
    missing: Record = {"problem": "not asked", "rows": []}
    answer = next((one for one in answers if one["name"] == NAME), missing)
    seen = sorted({row["labels"].get("rack", "") for row in answer["rows"]})
    want = sorted(name for name, rack in model["racks"].items() if rack["nodes"])
    passes = not answer["problem"] and bool(want) and set(want) <= set(seen)
    name = f"archive {host} reads every rack through the gateway"
    return [check(name, passes, answer["problem"] or seen, want)]
