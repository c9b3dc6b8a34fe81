"""The policy process's configuration: read once, checked whole, every problem named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from services.configuration import ConfigError


@dataclass(frozen=True)
class Level:
    name: str
    poll_seconds: float
    scrape: str


@dataclass(frozen=True)
class Config:
    site: str
    rack: str
    node: str
    racks_url: tuple[str, ...]
    ca: str
    certificate: str
    key: str
    allowed_signers: str
    levels: dict[str, Level]
    order: tuple[str, ...]
    default_level: str
    scrape_path: str
    state_directory: str
    always_period_seconds: float
    filesystems: tuple[str, ...]


_TEXTS = ("site", "rack", "node", "ca", "certificate", "key", "allowed_signers", "default_level",
          "scrape_path", "state_directory")  # fmt: skip
_LISTS = ("racks_url", "order", "filesystems")


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 3600


def parse(value: Any) -> Config:
    problems: list[str] = []
    if not isinstance(value, dict):
        raise ConfigError("the configuration is no object")
    for key in _TEXTS:
        if not isinstance(value.get(key), str) or not value[key]:
            problems.append(f"{key}: a text is needed (got {value.get(key)!r})")
    for key in _LISTS:
        entry = value.get(key)
        if not isinstance(entry, list) or not entry or not all(isinstance(one, str) for one in entry):
            problems.append(f"{key}: a list of texts is needed (got {entry!r})")
    if not _seconds(value.get("always_period_seconds")):
        got = value.get("always_period_seconds")
        problems.append(f"always_period_seconds: seconds are needed (got {got!r})")
    levels: dict[str, Level] = {}
    given = value.get("levels")
    for name, level in given.items() if isinstance(given, dict) else ():
        if (
            isinstance(level, dict)
            and _seconds(level.get("poll_seconds"))
            and isinstance(level.get("scrape"), str)
        ):
            levels[name] = Level(name, float(level["poll_seconds"]), level["scrape"])
        else:
            problems.append(f"levels.{name}: poll_seconds and scrape are needed (got {level!r})")
    if not problems:
        wanted = set(value["order"]) | {value["default_level"]}
        for name in sorted(wanted - set(levels)):
            problems.append(f"levels.{name}: missing, but order or default_level names it")
        for url in value["racks_url"]:
            parts = urlsplit(url)
            if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
                problems.append(f"racks_url: https://ADDRESS:PORT is needed (got {url!r})")
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(
        levels=levels,
        always_period_seconds=float(value["always_period_seconds"]),
        racks_url=tuple(value["racks_url"]),
        order=tuple(value["order"]),
        filesystems=tuple(value["filesystems"]),
        **{key: str(value[key]) for key in _TEXTS},
    )


def missing_files(config: Config) -> list[str]:
    """The files that the process needs and cannot read now."""
    paths = [config.ca, config.certificate, config.key, config.allowed_signers]
    paths += [level.scrape for level in config.levels.values()]
    return [path for path in paths if not os.access(path, os.R_OK)]
