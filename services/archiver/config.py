"""archiver's configuration: one JSON file, compiled from the contract (module_utils/sideband/archive.py).

Everything is spelt out in it; a file that is not exactly of this shape is refused with the key that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar
from urllib.parse import urlsplit

from services import configuration
from services.configuration import ConfigError

Made = TypeVar("Made")


@dataclass(frozen=True)
class Tls:
    ca: str
    certificate: str
    key: str


@dataclass(frozen=True)
class Tier:
    """A tier that keeps jobs' series; finest first in the configuration."""

    name: str
    resolution_seconds: int
    retention_seconds: int


@dataclass(frozen=True)
class Remote:
    """S3-compatible storage. `credentials` is a file in the form of AWS' own tools, profile `default`."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    credentials: str
    ca: str  # "": the system's


@dataclass(frozen=True)
class Repository:
    """Where a tenant keeps its code. Whose experiment it is follows from here, never from what a tag says."""

    tenant: str
    url: str


@dataclass(frozen=True)
class Config:
    gateways: tuple[str, ...]  # https://address:port, tried in turn
    tls: Tls | None
    tiers: tuple[Tier, ...]
    state_directory: str
    remote: Remote
    repositories: tuple[Repository, ...]
    git_config: str  # the one file of settings that git reads
    settle_seconds: int  # how long after a job's end its last samples may still come
    memory_bytes: int
    cache_bytes: int
    peak_flops: Mapping[str, float]  # by GPU model, dense, of the precision that is trained in
    price_per_gpu_hour: Mapping[str, float]  # by GPU model; "default" for all others
    currency: str


def load(path: str) -> Config:
    return configuration.load(path, parse)


def parse(value: Any) -> Config:
    _keys(value, Config, "")
    tiers = tuple(_made(one, Tier, f"tiers[{index}]") for index, one in enumerate(value["tiers"]))
    if not tiers:
        raise ConfigError("tiers: one is needed")
    gateways = tuple(_url(one, "gateways", ("http", "https")) for one in value["gateways"])
    if not gateways:
        raise ConfigError("gateways: one is needed")
    tls = None if value["tls"] is None else _made(value["tls"], Tls, "tls")
    if tls is None and any(one.startswith("https:") for one in gateways):
        raise ConfigError("tls: https wants a certificate")
    remote = _made(value["remote"], Remote, "remote")
    _url(remote.endpoint, "remote.endpoint", ("http", "https"))
    repositories = [
        _made(one, Repository, f"repositories[{index}]") for index, one in enumerate(value["repositories"])
    ]
    return Config(
        gateways=gateways,
        tls=tls,
        tiers=tiers,
        state_directory=_text(value["state_directory"], "state_directory"),
        remote=remote,
        repositories=tuple(repositories),
        git_config=_text(value["git_config"], "git_config"),
        settle_seconds=_whole(value["settle_seconds"], "settle_seconds", 0),
        memory_bytes=_whole(value["memory_bytes"], "memory_bytes", 64 << 20),
        cache_bytes=_whole(value["cache_bytes"], "cache_bytes", 0),
        peak_flops=_numbers(value["peak_flops"], "peak_flops"),
        price_per_gpu_hour=_numbers(value["price_per_gpu_hour"], "price_per_gpu_hour"),
        currency=str(value["currency"]),
    )


def _keys(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where or 'the file'}: no object")
    known = {field.name for field in fields(kind)}
    before = f"{where}." if where else ""
    for name in sorted(known - set(value)):
        raise ConfigError(f"{before}{name}: missing")
    for name in sorted(set(value) - known):
        raise ConfigError(f"{before}{name}: not known")


def _made(value: Any, kind: type[Made], where: str) -> Made:
    _keys(value, kind, where)
    made = {}
    for field in fields(kind):  # type: ignore[arg-type]
        wanted = int if field.type == "int" else str
        given = value[field.name]
        if not isinstance(given, wanted) or isinstance(given, bool):
            raise ConfigError(f"{where}.{field.name}: {wanted.__name__} is needed (got {given!r})")
        made[field.name] = given
    return kind(**made)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: a text is needed (got {value!r})")
    return value


def _whole(value: Any, where: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{where}: a whole number of at least {least} is needed (got {value!r})")
    return value


def _numbers(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: no object")
    for name, number in value.items():
        if not isinstance(number, (int, float)) or isinstance(number, bool) or number < 0:
            raise ConfigError(f"{where}.{name}: a number is needed (got {number!r})")
    return {str(name): float(number) for name, number in value.items()}


def _url(value: Any, where: str, schemes: tuple[str, ...]) -> str:
    try:
        parts = urlsplit(str(value))
        _ = parts.port
        if parts.scheme in schemes and parts.hostname and parts.path in ("", "/"):
            return str(value).rstrip("/")
    except ValueError:
        pass
    raise ConfigError(f"{where}: {' or '.join(schemes)}://ADDRESS:PORT is needed (got {value!r})")
