"""Do questions work, and does every tenant's wall stand? What a gateway host asks its own querygate, and the
judgement of the answers. Pure.

Tenants' keys are theirs, so the gateway is asked behind its front, where root may name any identity; that the
front takes nobody else's certificate is asked with the gateway's own, which no person has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .report import check

Record = dict[str, Any]
SOCKET = "/run/sideband/gateway/query.sock"
CONFIGURATION = "/etc/sideband/gateway"
PATH = "/api/v1/query"
# Every node pushes it at every level; aggregation writes its interval into the name.
QUESTION = 'count by (tenant, rack) ({__name__=~"up:(1m|60s)_.+"})'
REFUSED = '"reason": "identity"'


def asks(model: Mapping[str, Any], host: str, patience: float) -> list[Record]:
    """For each tenant what it sees, and a question at the front that must be refused."""
    part = model["hosts"].get(host, {})
    if "gateway" not in part.get("words", []):
        return []
    walls = [
        {
            "name": f"wall/{tenant['name']}",
            "socket": SOCKET,
            "identity": f"tenant/{tenant['certificate']}",
            "path": PATH,
            "query": QUESTION,
            "enough": 1 if _watched(model, tenant) else 0,
            "patience": patience,
        }
        for tenant in model["tenants"]
    ]
    front = part["serves"].get("query", {})
    return walls + [
        {
            "name": f"front/ipv{family}",
            "host": front[f"address{family}"],
            "port": front["port"],
            "path": PATH,
            "query": QUESTION,
            "enough": 0,
            "patience": 0,
            "ca": f"{CONFIGURATION}/ca.crt",
            "certificate": f"{CONFIGURATION}/host.crt",
            "key": f"{CONFIGURATION}/host.key",
        }
        for family in (4, 6)
        if front.get(f"address{family}")
    ]


def _watched(model: Mapping[str, Any], tenant: Mapping[str, Any]) -> list[str]:
    """Its racks that have nodes, whose series it must see."""
    return [rack for rack in tenant["racks"] if model["racks"].get(rack, {}).get("nodes")]


def judge(model: Mapping[str, Any], host: str, answers: Iterable[Mapping[str, Any]]) -> list[Record]:
    by_name = {answer["name"]: answer for answer in answers}
    missing = {"problem": "not asked", "rows": []}
    checks = []
    for one in asks(model, host, 0):
        kind, _, name = one["name"].partition("/")
        answer = by_name.get(one["name"], missing)
        if kind == "front":
            refused = REFUSED in answer["problem"]
            got = answer["problem"] or "answered"
            checks.append(check(f"query front {name} on {host} refuses strangers", refused, got, "refused"))
            continue
        tenant = next(each for each in model["tenants"] if each["name"] == name)
        checks.append(_wall(model, host, tenant, answer))
    return checks


def _wall(
    model: Mapping[str, Any], host: str, tenant: Mapping[str, Any], answer: Mapping[str, Any]
) -> Record:
    wanted = _watched(model, tenant)
    seen = {(row["labels"].get("tenant", ""), row["labels"].get("rack", "")) for row in answer["rows"]}
    foreign = sorted(
        f"{owner or 'nobody'} in {rack or 'no rack'}"
        for owner, rack in seen
        if owner != tenant["name"] and (owner or rack not in tenant["racks"])
    )
    lost = sorted(set(wanted) - {rack for owner, rack in seen if not owner})
    got: Any = answer["problem"] or {"foreign": foreign, "missing": lost}
    passes = not answer["problem"] and not foreign and not lost
    return check(
        f"query wall of {tenant['name']} on {host}", passes, got, f"racks {', '.join(wanted) or 'none'} alone"
    )
