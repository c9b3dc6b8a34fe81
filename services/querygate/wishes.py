"""What a tenant wishes of its alerts (N2): thresholds for its jobs, a channel, what need not come there.

A tenant reads and sets its own by the certificate that it also asks with; the site's alerting reads them all.
A channel's URL is a secret: it stands in one file that only this program reads, and in no line of ours."""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from .config import Config
from .refusal import Refused

KINDS = ("wecom", "dingtalk", "slack")
_KEYS = ("thresholds", "channel", "quiet")
_BYTES = 4_096
_QUIET = 50
_TABLE = (
    "CREATE TABLE IF NOT EXISTS wish (tenant TEXT PRIMARY KEY, body TEXT NOT NULL, changed REAL NOT NULL)"
)


class Wishes:
    """Blocking; one SQLite file."""

    def __init__(self, config: Config) -> None:
        self._path = os.path.join(config.state_directory, "wishes.sqlite")
        self._tunable, self._hosts = config.wishes.tunable, config.wishes.hosts

    def prepare(self) -> None:
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(_TABLE)
        os.chmod(self._path, 0o600)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=10)
        try:
            with database:
                yield database
        finally:
            database.close()

    def everybodys(self) -> dict[str, Any]:
        with self._open() as database:
            return {
                tenant: json.loads(body) for tenant, body in database.execute("SELECT tenant, body FROM wish")
            }

    def one(self, tenant: str) -> dict[str, Any]:
        found: dict[str, Any] = self.everybodys().get(tenant, {})
        return found

    def set(self, tenant: str, text: str) -> dict[str, Any]:
        """An empty object takes the wish back. Raises Refused(400) with what would do."""
        wish = self.read(text)
        with self._open() as database:
            database.execute("DELETE FROM wish WHERE tenant = ?", (tenant,))
            if wish:
                row = (tenant, json.dumps(wish, sort_keys=True), time.time())
                database.execute("INSERT INTO wish VALUES (?, ?, ?)", row)
        return wish

    def read(self, text: str) -> dict[str, Any]:
        if len(text.encode()) > _BYTES:
            raise _refused(f"is longer than {_BYTES:,} bytes")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise _refused("is no JSON") from None
        if not isinstance(given, dict) or set(given) - set(_KEYS):
            raise _refused(f"is no object of {', '.join(_KEYS)}")
        wish: dict[str, Any] = {}
        if "thresholds" in given:
            wish["thresholds"] = self._thresholds(given["thresholds"])
        if "channel" in given:
            wish["channel"] = self._channel(given["channel"])
        if "quiet" in given:
            wish["quiet"] = _quiet(given["quiet"])
        return wish

    def _thresholds(self, given: Any) -> dict[str, float]:
        if not isinstance(given, dict):
            raise _refused("thresholds: is no object of names and numbers")
        for name, value in given.items():
            if name not in self._tunable:
                raise _refused(f"thresholds: {name[:40]!r} cannot be tuned; {', '.join(self._tunable)} can")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise _refused(f"thresholds.{name}: is no number")
        return dict(given)

    def _channel(self, given: Any) -> Mapping[str, str]:
        url = given.get("url") if isinstance(given, dict) else None
        if not isinstance(url, str) or set(given) != {"kind", "url"} or given["kind"] not in KINDS:
            raise _refused(f"channel: is no object of kind ({', '.join(KINDS)}) and url")
        try:
            parts = urlsplit(url)
            place = parts.netloc if parts.scheme == "https" else f"{parts.scheme}://{parts.netloc}"
        except ValueError:
            place = ""
        # `hosts` are spelt as they stand in a URL: an alerting host must not be made to knock anywhere else.
        if place not in self._hosts or re.search(r"[\s\x00-\x1f\\]", url):
            raise _refused(f"channel.url: leads to none of {', '.join(self._hosts)}")
        return {"kind": given["kind"], "url": url}


def _quiet(given: Any) -> list[str]:
    names = given if isinstance(given, list) and len(given) <= _QUIET else [None]
    if not all(isinstance(one, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,62}", one) for one in names):
        raise _refused(f"quiet: is no list of at most {_QUIET} alerts' names")
    return list(names)


def _refused(why: str) -> Refused:
    return Refused(400, "wish", f"wish: {why}; docs/how_to/tune_alerts.md")
