"""Is data of every kind in every tier? What a gateway host asks, and the judgement of the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .report import check

Record = dict[str, Any]
JOBS = ("node", "policy")
# Freshness is asked as an age in seconds, so that the asker's clock does not matter.
QUESTIONS = {
    "hot": ("/hot/api/v1/query", "time() - timestamp(up)", ("node", "job")),
    # Aggregation writes its interval into the name, spelt as it was configured.
    "minute": (
        "/minute/api/v1/query",
        'time() - max by (node) (timestamp({__name__=~".+:(1m|60s)_.+"}))',
        ("node",),
    ),
}


def nodes(model: Mapping[str, Any]) -> list[str]:
    return sorted(name for name, host in model["hosts"].items() if "node" in host["words"])


def wanted(model: Mapping[str, Any], tier: str) -> list[tuple[str, ...]]:
    """The label values that must have a fresh sample."""
    if tier == "hot":
        return [(node, job) for node in nodes(model) for job in JOBS]
    return [(node,) for node in nodes(model)]


def limit(model: Mapping[str, Any], tier: str) -> int:
    """How old a sample may be: two of the ladder's longest periods, and for a tier its own step twice."""
    longest = max(level["period_seconds"] for level in model["ladder"]["levels"].values())
    return 30 + 2 * max(int(longest), int(model["tiers"][tier]["resolution_seconds"]))


def asks(model: Mapping[str, Any], host: str, patience: float) -> list[Record]:
    """What this host asks: every gateway asks every lake, over both families."""
    words = model["hosts"].get(host, {}).get("words", [])
    if "gateway" not in words:
        return []
    return [
        {
            "name": f"{tier}/{end['host']}/ipv{family}",
            "host": end[f"address{family}"],
            "port": end["port"],
            "path": path,
            "query": query,
            "enough": len(wanted(model, tier)),
            "patience": patience,
            "ca": "/etc/sideband/gateway/ca.crt",
            "certificate": "/etc/sideband/gateway/host.crt",
            "key": "/etc/sideband/gateway/host.key",
        }
        for end in model["hosts"][host]["reaches"].get("ask", ())
        if "lake" in model["hosts"][end["host"]]["words"]
        for tier, (path, query, _) in QUESTIONS.items()
        if tier in model["tiers"]
        for family in (4, 6)
        if end[f"address{family}"]
    ]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    """A check for each kind of data in each tier, as one gateway host sees it over each family."""
    checks = []
    by_name = {answer["name"]: answer for answer in answers}
    for one in asks(model, host, 0):
        tier = one["name"].split("/")[0]
        labels = QUESTIONS[tier][2]
        answer = by_name.get(one["name"], {"problem": "not asked", "rows": []})
        ages = {
            tuple(row["labels"].get(label, "") for label in labels): row["value"] for row in answer["rows"]
        }
        most = limit(model, tier)
        for key in wanted(model, tier):
            age = ages.get(key)
            got = answer["problem"] or ("no sample" if age is None else f"{age:.0f} s old")
            checks.append(
                check(
                    f"data {one['name']} {' '.join(key)}",
                    not answer["problem"] and age is not None and age <= most,
                    got,
                    f"at most {most} s old",
                )
            )
    return checks
