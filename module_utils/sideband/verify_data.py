"""Is data of every kind in every tier? What a gateway host asks, and the judgement of the answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .report import check

Record = dict[str, Any]
JOBS = ("node", "policy")
GPU, JOB = "DCGM_FI_DEV_GPU_TEMP", "sideband_jobs_up"
# By tier, or tier and kind. Freshness is an age in seconds, so that the asker's clock does not matter.
QUESTIONS = {
    "hot": ("/hot/api/v1/query", "time() - timestamp(up)", ("node", "job")),
    # Aggregation writes its interval into the name, spelt as it was configured.
    "minute": (
        "/minute/api/v1/query",
        'time() - max by (node) (timestamp({__name__=~".+:(1m|60s)_.+"}))',
        ("node",),
    ),
    "hot-gpus": (
        "/hot/api/v1/query",
        f"time() - max by (node, gpu) (timestamp({GPU}))",
        ("node", "gpu"),
    ),
    "minute-gpus": (
        "/minute/api/v1/query",
        f'time() - max by (node, gpu) (timestamp({{__name__=~"{GPU}:(1m|60s)_max"}}))',
        ("node", "gpu"),
    ),
    "hot-jobs": ("/hot/api/v1/query", f"time() - timestamp({JOB})", ("node",)),
}


def nodes(model: Mapping[str, Any]) -> list[str]:
    return sorted(name for name, host in model["hosts"].items() if "node" in host["words"])


def tier_of(name: str) -> str:
    return name.split("-")[0]


def wanted(model: Mapping[str, Any], name: str) -> list[tuple[str, ...]]:
    """The label values that must have a fresh sample; none where the ladder does not list the metric."""
    if name == "hot":
        return [(node, job) for node in nodes(model) for job in JOBS]
    if name.endswith("-gpus"):
        sizes = {spec["name"]: int(spec["size"]["gpus"]) for spec in model["budget"]["nodes"]}
        of = model["budget"]["classes"]
        gpus = {node: sizes.get(of.get(node, ""), 0) for node in nodes(model)}
        return [(node, str(gpu)) for node in gpus for gpu in range(gpus[node])] if _listed(model, GPU) else []
    if name.endswith("-jobs") and not _listed(model, JOB):
        return []
    return [(node,) for node in nodes(model)]


def _listed(model: Mapping[str, Any], metric: str) -> bool:
    ladder = model["ladder"]
    keep = ladder["levels"][ladder["order"][0]]["keep"]
    return bool(keep and re.fullmatch(keep, metric))


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
            "name": f"{name}/{end['host']}/ipv{family}",
            "host": end[f"address{family}"],
            "port": end["port"],
            "path": path,
            "query": query,
            "enough": len(wanted(model, name)),
            "patience": patience,
            "ca": "/etc/sideband/gateway/ca.crt",
            "certificate": "/etc/sideband/gateway/host.crt",
            "key": "/etc/sideband/gateway/host.key",
        }
        for end in model["hosts"][host]["reaches"].get("ask", ())
        if "lake" in model["hosts"][end["host"]]["words"]
        for name, (path, query, _) in QUESTIONS.items()
        if tier_of(name) in model["tiers"] and wanted(model, name)
        for family in (4, 6)
        if end[f"address{family}"]
    ]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    """A check for each kind of data in each tier, as one gateway host sees it over each family."""
    checks = []
    by_name = {answer["name"]: answer for answer in answers}
    for one in asks(model, host, 0):
        name = one["name"].split("/")[0]
        labels = QUESTIONS[name][2]
        answer = by_name.get(one["name"], {"problem": "not asked", "rows": []})
        ages = {
            tuple(row["labels"].get(label, "") for label in labels): row["value"] for row in answer["rows"]
        }
        most = limit(model, tier_of(name))
        for key in wanted(model, name):
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
