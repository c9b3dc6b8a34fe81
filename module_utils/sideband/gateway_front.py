"""What the gateway's front lets through to querygate: by flow, whose certificates, which paths, how much."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]

CONFIGURATION = "/etc/sideband/gateway"
MESSAGE_BYTES = 1_048_576  # of Alertmanager's, as querygate reads them
# People, by the unit of their certificates: where the model lists them.
PEOPLE = {"tenant": "tenants", "administrator": "administrators"}


@dataclass(frozen=True)
class Front:
    """One flow that ends at the gateway. Paths are exact, or patterns that hold from end to end."""

    units: tuple[str, ...]
    exact: tuple[str, ...]
    patterns: tuple[str, ...]
    methods: tuple[str, ...]
    strangers: str  # what others are told


_PATHS = (
    "/api/v1/query", "/api/v1/query_range", "/api/v1/series", "/api/v1/labels", "/api/v1/jobs",
    "/api/v1/inbox", "/api/v1/wishes", "/select/logsql/query", "/select/logsql/hits",
)  # fmt: skip
_PATTERNS = ("^/api/v1/label/[a-zA-Z_][a-zA-Z0-9_]*/values$", "^/api/v1/jobs/[0-9a-f]{32}(/result)?$")
FRONTS: Mapping[str, Front] = {
    "query": Front(
        ("tenant", "administrator"), _PATHS, _PATTERNS, ("GET", "POST"),
        "this certificate belongs to nobody whom the site lets ask: ask for an entry in sideband_tenants",
    ),
    "export": Front(
        ("archive",), _PATHS, _PATTERNS, ("GET", "POST"), "only the archive of the site reads here"
    ),
    "notify": Front(
        ("alerts",), ("/api/v1/inbox", "/api/v1/wishes"), ("^$",), ("GET", "POST"),
        "only the alerting of the site hands notifications in here",
    ),
}  # fmt: skip


def fronts(model: Mapping[str, Any], host: str, question_bytes: int) -> list[Record]:
    """A record for each flow that ends here: where it listens, who may come, to what, and what the others and
    the rest are told (JSON as Prometheus' clients show it)."""
    serves = model["hosts"][host]["serves"]
    if "query" not in serves:
        raise ValueError("sideband_flows: nobody may ask this gateway (flow query does not end at it)")
    return [
        {
            "flow": flow,
            "listens": [serves[flow][key] for key in ("listen4", "listen6") if serves[flow][key]],
            "connections": serves[flow]["connections"],
            "identities": _identities(model, front, serves[flow]["peers"]),
            "exact": list(front.exact),
            "patterns": list(front.patterns),
            "methods": list(front.methods),
            "bytes": MESSAGE_BYTES if flow == "notify" else question_bytes,
            "refusals": _refusals(front, MESSAGE_BYTES if flow == "notify" else question_bytes),
        }
        for flow, front in FRONTS.items()
        if flow in serves
    ]


def lists(found: Sequence[Mapping[str, Any]]) -> list[Record]:
    """The files that name who may come, for a fragment."""
    return [
        {
            "path": f"{CONFIGURATION}/{front['flow']}.list",
            "content": "".join(f"{name}\n" for name in front["identities"]),
            "mode": "0644",
        }
        for front in found
    ]


def _identities(model: Mapping[str, Any], front: Front, peers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Unit and name, as the certificates have them."""
    found = []
    for unit in front.units:
        names = (
            [one["certificate"] for one in model[PEOPLE[unit]]]
            if unit in PEOPLE
            else [peer["host"] for peer in peers]
        )
        found += [f"{unit}/{name}" for name in names]
    return found


def _refusals(front: Front, most: int) -> list[Record]:
    methods = " and ".join(front.methods)
    said = (
        ("identity", 403, "forbidden", front.strangers, ""),
        ("path", 403, "forbidden", f"only these paths exist here, spelt exactly so: {_spelt(front)}", ""),
        ("method", 405, "bad_data", f"the method must be {methods}", f"hdr Allow {','.join(front.methods)}"),
        ("length", 411, "bad_data", "a body comes with its Content-Length, not in chunks", ""),
        ("size", 413, "bad_data", f"longer than {most:,} bytes: send less at a time", ""),
        ("rate", 429, "too_many_requests", "too many questions: wait ten seconds", "hdr Retry-After 10"),
    )
    return [
        {"reason": reason, "status": status, "header": header, "body": _body(kind, text, reason)}
        for reason, status, kind, text, header in said
    ]


def _spelt(front: Front) -> str:
    """Patterns as people read them."""
    known = ["/api/v1/label/NAME/values", "/api/v1/jobs/ID"] if len(front.patterns) > 1 else []
    return ", ".join((*front.exact, *known))


def _body(kind: str, text: str, reason: str) -> str:
    return json.dumps({"status": "error", "errorType": kind, "error": text, "reason": reason})
