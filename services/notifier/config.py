"""The notifier's configuration: a JSON file that role alerts writes; everything in it is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.configuration import ConfigError
from services.notifier.forms import FORMS

_KEYS = ("listen", "receivers", "facts_file", "facts_urls", "facts_seconds", "wishes")
_WISHES = ("url", "ca", "certificate", "key", "state", "seconds", "hosts", "tunable")


@dataclass(frozen=True)
class Receiver:
    kind: str
    secret_file: str


@dataclass(frozen=True)
class Wishes:
    """Where tenants' own thresholds and channels are asked for."""

    url: str
    ca: str
    certificate: str
    key: str
    state: str  # what was heard last, for when nobody answers
    seconds: float
    hosts: tuple[str, ...]  # to which a tenant's channel may lead
    tunable: tuple[str, ...]  # thresholds that a tenant may set


@dataclass(frozen=True)
class Config:
    listen: tuple[str, int]
    receivers: Mapping[str, Receiver]
    facts_file: str
    facts_urls: tuple[str, ...]
    facts_seconds: float
    wishes: Wishes | None


def parse(value: Any) -> Config:
    _exactly(value, _KEYS, "the configuration")
    address, _, port = _text(value, "listen").rpartition(":")
    if not address or not port.isdigit():
        raise ConfigError(f"listen: an address and a port are needed (got {value['listen']!r})")
    receivers = {}
    if not isinstance(value["receivers"], dict):
        raise ConfigError("receivers: an object is needed")
    for name, given in value["receivers"].items():
        _exactly(given, ("kind", "secret_file"), f"receivers.{name}")
        if given["kind"] not in FORMS:
            raise ConfigError(
                f"receivers.{name}.kind: one of {', '.join(FORMS)} is needed (got {given['kind']!r})"
            )
        receivers[str(name)] = Receiver(given["kind"], _path(given, "secret_file"))
    return Config(
        (address.strip("[]"), int(port)),
        receivers,
        _path(value, "facts_file"),
        _texts(value, "facts_urls"),
        _seconds(value, "facts_seconds"),
        None if value["wishes"] is None else _wishes(value["wishes"]),
    )


def _wishes(value: Any) -> Wishes:
    _exactly(value, _WISHES, "wishes")
    return Wishes(
        _text(value, "url"),
        _path(value, "ca"),
        _path(value, "certificate"),
        _path(value, "key"),
        _path(value, "state"),
        _seconds(value, "seconds"),
        _texts(value, "hosts"),
        _texts(value, "tunable"),
    )


def _exactly(value: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: an object is needed")
    odd = sorted(set(value) ^ set(keys))
    if odd:
        raise ConfigError(f"{where}: has or lacks {', '.join(map(str, odd))}; its keys are {', '.join(keys)}")


def _text(value: Mapping[str, Any], key: str) -> str:
    if not isinstance(value[key], str) or not value[key]:
        raise ConfigError(f"{key}: a text is needed (got {value[key]!r})")
    return str(value[key])


def _path(value: Mapping[str, Any], key: str) -> str:
    if not _text(value, key).startswith("/"):
        raise ConfigError(f"{key}: an absolute path is needed (got {value[key]!r})")
    return str(value[key])


def _texts(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = value[key]
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise ConfigError(f"{key}: a list of texts is needed (got {given!r})")
    return tuple(given)


def _seconds(value: Mapping[str, Any], key: str) -> float:
    given = value[key]
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 1 <= given <= 3600:
        raise ConfigError(f"{key}: seconds from 1 to 3600 are needed (got {given!r})")
    return float(given)
