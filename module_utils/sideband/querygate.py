"""querygate's configuration from the contract: who stands behind which wall, and what one question may take.

Pure: the model and a role's settings in, one JSON-ready record out. services/querygate/config.py reads
exactly this shape, and nothing in it is inherited or left to a default there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import alert_rules

Record = dict[str, Any]

# Of one series, at the tier's resolution: a month of minutes. Longer belongs to a coarser tier or a job.
SAMPLES_OF_A_SERIES = 44_640
POINTS = 11_000  # what the stores themselves allow; Prometheus' clients know the number
_MIB = 2**20
BY_KIND: Mapping[str, Mapping[str, int]] = {
    "tenant": {"series": 5_000, "bytes": 16 * _MIB, "seconds": 20, "running": 4},
    "administrator": {"series": 30_000, "bytes": 64 * _MIB, "seconds": 30, "running": 8},
    "archive": {"series": 30_000, "bytes": 64 * _MIB, "seconds": 30, "running": 2},
}
_JOB = {"series": 20_000, "bytes": 64 * _MIB, "seconds": 50}
# What cannot be read has no known reach: an hour of a screen's points, and little time.
_STRICT = {"range_seconds": 3_600, "points": 400, "series": 1_000, "bytes": 4 * _MIB, "seconds": 5}
_LOGS = {"lines": 5_000, "buckets": 1_000, "bytes": 16 * _MIB, "seconds": 20}
_LOG_RANGE = 7 * 86_400
_DAY = 86_400
# The roles behind the flows that hosts open: group, flow, unit and kind have one word.
DELIVERED_BY, READ_BY = "alerts", "archive"


def compile_querygate(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Record:
    """The whole file. `settings` are the role's: addresses, paths, stores, bounds; see the tests."""
    tiers = _tiers(model["tiers"], settings["tier_urls"])
    if not tiers or tiers[-1]["raw"]:
        raise ValueError(
            "sideband_tiers: querygate needs an aggregated tier (got none); add one with a longer retention"
        )
    return {
        "listen": settings["listen"],
        "ops_listen": settings["ops_listen"],
        "state_directory": settings["state_directory"],
        "audit_directory": settings["audit_directory"],
        "audit_keep_days": settings.get("audit_days", 400),
        "degraded_file": settings["degraded_file"],
        "degraded_tier": next(tier["name"] for tier in tiers if not tier["raw"]),
        "tiers": tiers,
        "log_urls": list(settings["log_urls"]),
        "tls": settings.get("tls"),
        "identities": _identities(model, tiers, settings),
        "running": settings.get("running", 16),
        "wait_seconds": settings.get("wait_seconds", 5),
        "jobs": {
            "workers": settings.get("job_workers", 1),
            "per_identity": settings.get("jobs_per_identity", 4),
            "keep_seconds": settings.get("job_keep_seconds", _DAY),
            "keep_bytes": settings.get("job_keep_bytes", 256 * _MIB),
        },
        "inbox": {
            "keep_seconds": settings.get("inbox_days", 30) * _DAY,
            "rows": settings.get("inbox_rows", 10_000),
        },
        "wishes": {
            "tunable": [name for name, _, tunable in alert_rules.thresholds(alert_rules.load()) if tunable],
            "hosts": list(model["notify"]["channel_hosts"]),
        },
    }


def stores(model: Mapping[str, Any], host: str) -> Record:
    """{"tier_urls", "log_urls"}: what this gateway asks, every lake and log store that it may reach."""
    reaches = model["hosts"][host]["reaches"]
    lakes = [end["authority"] or end["authority6"] for end in reaches.get("ask", ())]
    logs = [end["authority"] or end["authority6"] for end in reaches.get("find", ())]
    return {
        "tier_urls": {name: [f"https://{lake}/{name}" for lake in lakes] for name in model["tiers"]},
        "log_urls": [f"https://{store}" for store in logs],
    }


def hosts_of(model: Mapping[str, Any], word: str) -> list[str]:
    return sorted(name for name, host in model["hosts"].items() if word in host["words"])


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
    model: Mapping[str, Any], tiers: Sequence[Record], settings: Mapping[str, Any]
) -> list[Record]:
    found = [
        _identity("tenant", one["certificate"], one["name"], tiers, settings, one) for one in model["tenants"]
    ]
    found += [
        _identity("administrator", one["certificate"], one["name"], tiers, settings, None)
        for one in model["administrators"]
    ]
    found += [_identity(READ_BY, host, host, tiers, settings, None) for host in hosts_of(model, READ_BY)]
    return found + [_deliverer(host) for host in hosts_of(model, DELIVERED_BY)]


def _identity(
    kind: str, certificate: str, name: str, tiers: Sequence[Record], settings: Mapping[str, Any],
    tenant: Mapping[str, Any] | None,
) -> Record:  # fmt: skip
    aggregated = [tier for tier in tiers if not tier["raw"]]
    by_kind = {**BY_KIND[kind], **settings.get("bounds", {}).get(kind, {})}
    running = by_kind.pop("running")
    own = settings.get("tenant_bounds", {}).get(name, {}) if tenant is not None else {}
    logs = bool(settings["log_urls"])
    return {
        "key": f"{kind}/{certificate}",
        "name": name,
        "kind": kind,
        "wall": None if tenant is None else wall(tenant),
        "bounds": {
            tier["name"]: {**bounds(tier, by_kind), **own.get(tier["name"], {})}
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
        "running": running,
        "waiting": 2 * running,
    }


def _deliverer(host: str) -> Record:
    """Who hands notifications in and asks nothing."""
    return {
        "key": f"{DELIVERED_BY}/{host}", "name": host, "kind": DELIVERED_BY, "wall": None, "bounds": {},
        "job_bounds": {}, "strict": None, "log_wall": None, "log_bounds": None, "running": 1, "waiting": 0,
    }  # fmt: skip


def wall(tenant: Mapping[str, Any]) -> list[list[Record]]:
    """A tenant sees what carries its name, and of its racks what carries no tenant's name."""
    found = [[_matcher("tenant", "=", tenant["name"])]]
    if tenant["rack_regex"]:
        found.append([_matcher("rack", "=~", tenant["rack_regex"]), _matcher("tenant", "=", "")])
    return found


def _matcher(label: str, op: str, value: str) -> Record:
    return {"label": label, "op": op, "value": value}


def bounds(tier: Mapping[str, Any], by_kind: Mapping[str, int]) -> Record:
    most = SAMPLES_OF_A_SERIES * int(tier["resolution_seconds"])
    return {"range_seconds": min(int(tier["retention_seconds"]), most), "points": POINTS, **by_kind}
