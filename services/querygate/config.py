"""querygate's configuration: one JSON file, compiled from the contract (module_utils/sideband/querygate.py).

Everything is spelt out in it, nothing is inherited: what an identity may do is read in one place. A file that
is not exactly of this shape is refused at start, with the key that is wrong.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from services import configuration
from services.configuration import ConfigError

from .promql_tree import LABEL, Matcher

KINDS = ("tenant", "administrator", "archive", "alerts")
DELIVERS = ("alerts",)  # hand notifications in and ask nothing
ENGINES = ("prometheus", "victoriametrics")


@dataclass(frozen=True)
class Bounds:
    """What one question may take."""

    range_seconds: int
    points: int
    series: int
    bytes: int
    seconds: int


@dataclass(frozen=True)
class LogBounds:
    range_seconds: int
    lines: int
    buckets: int
    bytes: int
    seconds: int


@dataclass(frozen=True)
class Tier:
    name: str
    engine: str
    urls: tuple[str, ...]
    resolution_seconds: int
    retention_seconds: int
    raw: bool


@dataclass(frozen=True)
class LogWall:
    """Whose lines: stream labels and fields, each with the values that may be."""

    stream: Mapping[str, tuple[str, ...]]
    fields: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Identity:
    """Who asks, and all that follows from it."""

    key: str  # unit and name of the certificate, as HAProxy writes them: tenant/alpha
    name: str
    kind: str
    # Alternatives of matchers, None for no wall. A series is seen when one alternative holds whole.
    wall: tuple[tuple[Matcher, ...], ...] | None
    bounds: Mapping[str, Bounds]  # by tier; a tier without bounds is not for this identity
    job_bounds: Mapping[str, Bounds]
    strict: Bounds | None  # for what cannot be parsed; None refuses it
    log_wall: LogWall | None
    log_bounds: LogBounds | None  # None: no logs
    running: int
    waiting: int

    @property
    def wall_labels(self) -> tuple[str, ...]:
        return tuple(sorted({m.label for alternative in self.wall or () for m in alternative}))


@dataclass(frozen=True)
class Jobs:
    workers: int
    per_identity: int
    keep_seconds: int
    keep_bytes: int  # of one identity's answers; the oldest go first


@dataclass(frozen=True)
class Inbox:
    """How long notifications are kept, and how many."""

    keep_seconds: int
    rows: int


@dataclass(frozen=True)
class Wishes:
    """What a tenant may tune, and where a channel of its own may lead."""

    tunable: tuple[str, ...]
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Tls:
    ca: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Config:
    listen: str
    ops_listen: str
    state_directory: str
    audit_directory: str
    audit_keep_days: int
    degraded_file: str
    degraded_tier: str
    tiers: tuple[Tier, ...]  # finest first
    log_urls: tuple[str, ...]
    tls: Tls | None
    identities: Mapping[str, Identity]
    running: int
    wait_seconds: int
    jobs: Jobs
    inbox: Inbox
    wishes: Wishes

    def tier(self, name: str) -> Tier:
        return next(tier for tier in self.tiers if tier.name == name)


def load(path: str) -> Config:
    return configuration.load(path, parse)


def parse(value: Any) -> Config:
    _keys(value, Config, "")
    tiers = tuple(_tier(one, f"tiers[{index}]") for index, one in enumerate(value["tiers"]))
    names = [tier.name for tier in tiers]
    identities = [
        _identity(one, f"identities[{index}]", names) for index, one in enumerate(value["identities"])
    ]
    if len({one.key for one in identities}) != len(identities):
        raise ConfigError("identities: a key is there twice")
    if value["degraded_tier"] not in [tier.name for tier in tiers if not tier.raw]:
        raise ConfigError(f"degraded_tier: {value['degraded_tier']!r} is no aggregated tier")
    for key in ("listen", "ops_listen"):
        _inside(value[key], key)
    jobs = _plain(value["jobs"], Jobs, "jobs")
    for one in identities:
        _injectable(one, tiers)
        largest = max((bounds.bytes for bounds in one.job_bounds.values()), default=0)
        if largest > jobs.keep_bytes:
            raise ConfigError(f"jobs.keep_bytes: a job of {one.key} may be larger ({largest})")
    return Config(
        **{key: _text(value[key], key) for key in (
            "listen", "ops_listen", "state_directory", "audit_directory", "degraded_file", "degraded_tier")},
        tiers=tiers,
        log_urls=tuple(_url(one, "log_urls") for one in value["log_urls"]),
        tls=None if value["tls"] is None else _plain(value["tls"], Tls, "tls"),
        identities={one.key: one for one in identities},
        audit_keep_days=_number(value["audit_keep_days"], "audit_keep_days"),
        running=_number(value["running"], "running"),
        wait_seconds=_number(value["wait_seconds"], "wait_seconds"),
        jobs=jobs,
        inbox=_plain(value["inbox"], Inbox, "inbox"),
        wishes=_wishes(value["wishes"]),
    )  # fmt: skip


def _wishes(value: Any) -> Wishes:
    _keys(value, Wishes, "wishes")
    return Wishes(**{key: tuple(_text(one, f"wishes.{key}") for one in value[key]) for key in value})


def _inside(text: str, where: str) -> None:
    """The header that names the asker is believed from this machine's own front alone."""
    if text.startswith("unix:/"):
        return
    host, _, port = text.rpartition(":")
    try:
        if ipaddress.ip_address(host.strip("[]")).is_loopback and 0 < int(port) < 65536:
            return
    except ValueError:
        pass
    raise ConfigError(f"{where}: {text!r} is neither unix:/PATH nor an address of loopback")


def _injectable(identity: Identity, tiers: tuple[Tier, ...]) -> None:
    """PromQL has no `or` between matchers: a wall of several alternatives stands at VictoriaMetrics only."""
    for tier in tiers:
        if tier.engine == "prometheus" and tier.name in identity.bounds and len(identity.wall or ()) > 1:
            raise ConfigError(
                f"identity {identity.key}: several alternatives cannot stand in tier {tier.name}"
            )


def _identity(value: Any, where: str, tiers: list[str]) -> Identity:
    _keys(value, Identity, where)
    if value["kind"] not in KINDS:
        raise ConfigError(f"{where}.kind: {value['kind']!r} is none of {', '.join(KINDS)}")
    wall = None
    if value["wall"] is not None:
        wall = tuple(tuple(_matcher(m, where) for m in alternative) for alternative in value["wall"])
        if not wall or not all(wall):
            raise ConfigError(f"{where}.wall: an empty wall is none; null says so on purpose")
    if wall is None and value["kind"] == "tenant":
        raise ConfigError(f"{where}.wall: a tenant stands behind one")
    logs = value["log_wall"]
    if logs is not None:
        _keys(logs, LogWall, f"{where}.log_wall")
        logs = LogWall(*(_values(logs[part], f"{where}.log_wall.{part}") for part in ("stream", "fields")))
        if not logs.stream and not logs.fields:
            raise ConfigError(f"{where}.log_wall: an empty wall is none")
    if logs is None and value["kind"] == "tenant" and value["log_bounds"] is not None:
        raise ConfigError(f"{where}.log_wall: a tenant stands behind one")
    return Identity(
        key=_text(value["key"], where), name=_text(value["name"], where), kind=value["kind"], wall=wall,
        bounds=_bounds(value["bounds"], f"{where}.bounds", tiers),
        job_bounds=_bounds(value["job_bounds"], f"{where}.job_bounds", tiers),
        strict=None if value["strict"] is None else _plain(value["strict"], Bounds, f"{where}.strict"),
        log_wall=logs,
        log_bounds=None if value["log_bounds"] is None
        else _plain(value["log_bounds"], LogBounds, f"{where}.log_bounds"),
        running=_number(value["running"], where), waiting=_number(value["waiting"], where, least=0),
    )  # fmt: skip


def _tier(value: Any, where: str) -> Tier:
    _keys(value, Tier, where)
    if value["engine"] not in ENGINES or not isinstance(value["raw"], bool):
        raise ConfigError(f"{where}: engine is one of {', '.join(ENGINES)}, raw is true or false")
    return Tier(
        name=_text(value["name"], where), engine=value["engine"],
        urls=tuple(_url(one, where) for one in value["urls"]),
        resolution_seconds=_number(value["resolution_seconds"], where),
        retention_seconds=_number(value["retention_seconds"], where), raw=value["raw"],
    )  # fmt: skip


def _bounds(value: Any, where: str, tiers: list[str]) -> Mapping[str, Bounds]:
    if not isinstance(value, dict) or set(value) - set(tiers):
        raise ConfigError(f"{where}: an object by tier ({', '.join(tiers)})")
    return {name: _plain(one, Bounds, f"{where}.{name}") for name, one in value.items()}


def _matcher(value: Any, where: str) -> Matcher:
    _keys(value, Matcher, f"{where}.wall")
    if not LABEL.fullmatch(str(value["label"])) or value["op"] not in ("=", "!=", "=~", "!~"):
        raise ConfigError(f"{where}.wall: no matcher (got {value!r})")
    return Matcher(value["label"], value["op"], str(value["value"]))


def _values(value: Any, where: str) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, dict) or not all(isinstance(one, list) and one for one in value.values()):
        raise ConfigError(f"{where}: an object of name: [value, …]")
    return {name: tuple(_text(one, where) for one in given) for name, given in value.items()}


def _keys(value: Any, shape: type[Any], where: str) -> None:
    want = {one.name for one in fields(shape)}
    got = set(value) if isinstance(value, dict) else set()
    if got != want:
        wrong = sorted(want ^ got) if isinstance(value, dict) else type(value).__name__
        raise ConfigError(f"{where or 'the whole'}: {wrong} too much or missing")


def _plain(value: Any, shape: type[Any], where: str) -> Any:
    _keys(value, shape, where)
    read = _text if shape is Tls else _number
    return shape(**{name: read(one, f"{where}.{name}") for name, one in value.items()})


def _number(value: Any, where: str, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{where}: {value!r} is no whole number of at least {least}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: {value!r} is no text")
    return value


def _url(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")) or "?" in value:
        raise ConfigError(f"{where}: {value!r} is no URL of a store")
    return value.rstrip("/")
