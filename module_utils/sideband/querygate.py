"""querygate's configuration from the contract: who stands behind which wall, and what one question may take.

Pure: the model and a role's settings in, one JSON-ready record out. services/querygate/config.py reads
exactly this shape, and nothing in it is inherited or left to a default there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = dict[str, Any]

# Of one series, at the tier's resolution: a month of minutes. Longer belongs to a coarser tier or a job.
SAMPLES_OF_A_SERIES = 44_640
POINTS = 11_000  # what the stores themselves allow; Prometheus' clients know the number
_MIB = 2**20
_BY_KIND: Mapping[str, Mapping[str, int]] = {
    "tenant": {"series": 5_000, "bytes": 16 * _MIB, "seconds": 20},
    "administrator": {"series": 30_000, "bytes": 64 * _MIB, "seconds": 30},
    "archive": {"series": 30_000, "bytes": 64 * _MIB, "seconds": 30},
}
_JOB = {"series": 20_000, "bytes": 64 * _MIB, "seconds": 50}
# What cannot be read has no known reach: an hour of a screen's points, and little time.
_STRICT = {"range_seconds": 3_600, "points": 400, "series": 1_000, "bytes": 4 * _MIB, "seconds": 5}
_LOGS = {"lines": 5_000, "buckets": 1_000, "bytes": 16 * _MIB, "seconds": 20}
_LOG_RANGE = 7 * 86_400
_RUNNING = {"tenant": 4, "administrator": 8, "archive": 2}


def compile_querygate(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Record:
    """The whole file. `settings` are the role's: addresses, paths, stores, who administers; see the tests."""
    tiers = _tiers(model["tiers"], settings["tier_urls"])
    if not tiers or tiers[-1]["raw"]:
        raise ValueError(
            "sideband_tiers: querygate needs an aggregated tier (got none); add one with a longer retention"
        )
    return {
        "listen": settings["listen"],
        "ops_listen": settings["ops_listen"],
        "state_directory": settings["state_directory"],
        "audit_log": settings["audit_log"],
        "degraded_file": settings["degraded_file"],
        "degraded_tier": next(tier["name"] for tier in tiers if not tier["raw"]),
        "tiers": tiers,
        "log_urls": list(settings["log_urls"]),
        "tls": settings.get("tls"),
        "identities": _identities(model["tenants"], tiers, settings),
        "running": settings.get("running", 16),
        "wait_seconds": settings.get("wait_seconds", 5),
        "jobs": {
            "workers": settings.get("job_workers", 1),
            "per_identity": settings.get("jobs_per_identity", 4),
            "keep_seconds": settings.get("job_keep_seconds", 86_400),
        },
    }


def _tiers(tiers: Mapping[str, Mapping[str, Any]], urls: Mapping[str, Sequence[str]]) -> list[Record]:
    """Finest first, as the contract lists them; samples as they came are in the first one only."""
    return [
        {
            "name": name,
            "engine": tier["engine"],
            "urls": list(urls[name]),
            "resolution_seconds": tier["resolution_seconds"],
            "retention_seconds": tier["retention_seconds"],
            "raw": number == 0,
        }
        for number, (name, tier) in enumerate(tiers.items())
    ]


def _identities(
    tenants: Iterable[Mapping[str, Any]], tiers: Sequence[Record], settings: Mapping[str, Any]
) -> list[Record]:
    found = [
        _identity("tenant", tenant["certificate"], tenant["name"], tiers, settings, tenant)
        for tenant in tenants
    ]
    for kind, key in (("administrator", "administrators"), ("archive", "archivers")):
        found += [_identity(kind, name, name, tiers, settings, None) for name in settings.get(key, ())]
    return found


def _identity(
    kind: str, certificate: str, name: str, tiers: Sequence[Record], settings: Mapping[str, Any],
    tenant: Mapping[str, Any] | None,
) -> Record:  # fmt: skip
    aggregated = [tier for tier in tiers if not tier["raw"]]
    logs = bool(settings["log_urls"])
    return {
        "key": f"{kind}/{certificate}",
        "name": name,
        "kind": kind,
        "wall": None if tenant is None else wall(tenant),
        "bounds": {
            tier["name"]: bounds(tier, _BY_KIND[kind])
            for tier in (aggregated if tenant is not None else tiers)
        },
        "job_bounds": {
            tier["name"]: {**bounds(tier, _JOB), "range_seconds": tier["retention_seconds"]}
            for tier in aggregated
        },
        "strict": dict(_STRICT) if settings.get("metricsql", False) else None,
        "log_wall": None
        if tenant is None or not logs
        else {"stream": {"tenant": [tenant["name"]]}, "fields": {}},
        "log_bounds": {**_LOGS, "range_seconds": settings.get("log_range_seconds", _LOG_RANGE)}
        if logs
        else None,
        "running": _RUNNING[kind],
        "waiting": 2 * _RUNNING[kind],
    }


def wall(tenant: Mapping[str, Any]) -> list[list[Record]]:
    """A tenant sees what carries its name, and of its racks what carries no tenant's name."""
    return [
        [_matcher("tenant", "=", tenant["name"])],
        [_matcher("rack", "=~", tenant["rack_regex"]), _matcher("tenant", "=", "")],
    ]


def _matcher(label: str, op: str, value: str) -> Record:
    return {"label": label, "op": op, "value": value}


def bounds(tier: Mapping[str, Any], by_kind: Mapping[str, int]) -> Record:
    most = SAMPLES_OF_A_SERIES * int(tier["resolution_seconds"])
    return {"range_seconds": min(int(tier["retention_seconds"]), most), "points": POINTS, **by_kind}
