"""The in-site inbox: what Alertmanager hands in, kept for the people whom it concerns (N3, Q4).

One row for each (fingerprint, startsAt); that it is over changes the row. A tenant sees what its wall shows
by the alerts' labels, as it would of series; whoever has no wall sees all.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import form
from .config import Config, Identity
from .moments import moment
from .promql_tree import LABEL, Matcher
from .refusal import Refused

BODY_BYTES = 1_048_576
_ALERTS = 1_000  # of one message
_LABELS, _VALUE, _TEXT = 40, 256, 1_024
_STATES = ("firing", "resolved")
_SHOWN, _SHOWN_MOST = 100, 1_000
_NAMES = ("fingerprint", "started", "ended", "state", "labels", "summary", "attempt", "receiver", "updated")
_COLUMNS = ", ".join(_NAMES)
_TABLE = """CREATE TABLE IF NOT EXISTS alert (
    fingerprint TEXT NOT NULL, started REAL NOT NULL, ended REAL, state TEXT NOT NULL, labels TEXT NOT NULL,
    summary TEXT NOT NULL, attempt TEXT NOT NULL, receiver TEXT NOT NULL, updated REAL NOT NULL,
    PRIMARY KEY (fingerprint, started)
)"""


@dataclass(frozen=True)
class Alert:
    fingerprint: str
    started: float  # Unix time
    ended: float | None
    state: str
    labels: Mapping[str, str]
    summary: str
    attempt: str  # what to try
    receiver: str
    updated: float

    def public(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint, "status": self.state, "started": self.started,
            "ended": self.ended, "labels": dict(self.labels), "summary": self.summary, "try": self.attempt,
            "receiver": self.receiver, "updated": self.updated,
        }  # fmt: skip


def read(body: bytes, now: float) -> list[Alert]:
    """Alertmanager's webhook, version 4. Raises Refused(400) for what will never be one."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise _no_webhook("no JSON") from None
    if not isinstance(message, dict) or message.get("version") != "4":
        raise _no_webhook("version is not 4")
    alerts = message.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > _ALERTS:
        raise _no_webhook(f"alerts is no list of at most {_ALERTS:,}")
    receiver = _cut(message.get("receiver"), _VALUE)
    return [_alert(one, f"alerts[{number}]", receiver, now) for number, one in enumerate(alerts)]


def _alert(one: Any, where: str, receiver: str, now: float) -> Alert:
    if not isinstance(one, dict) or one.get("status") not in _STATES:
        raise _no_webhook(f"{where}.status is none of {', '.join(_STATES)}")
    labels, notes = one.get("labels"), one.get("annotations", {})
    if not isinstance(labels, dict) or not isinstance(notes, dict):
        raise _no_webhook(f"{where}.labels or annotations is no object")
    if not re.fullmatch(r"[0-9a-f]{1,64}", str(one.get("fingerprint", ""))):
        raise _no_webhook(f"{where}.fingerprint is missing")
    kept = sorted((name, value) for name, value in labels.items() if LABEL.fullmatch(name))[:_LABELS]
    ended = _time(one, "endsAt", where) if one["status"] == "resolved" else None
    return Alert(
        fingerprint=one["fingerprint"], started=_time(one, "startsAt", where), ended=ended,
        state=one["status"], labels={name: _cut(value, _VALUE) for name, value in kept},
        summary=_cut(notes.get("summary"), _TEXT),
        attempt=_cut(notes.get("try") or notes.get("description"), _TEXT), receiver=receiver, updated=now,
    )  # fmt: skip


def _time(one: Mapping[str, Any], name: str, where: str) -> float:
    try:
        return moment(name, str(one.get(name)), 0.0)
    except Refused:
        raise _no_webhook(f"{where}.{name} is no time") from None


def _cut(value: Any, most: int) -> str:
    return str(value)[:most] if value is not None else ""


def _no_webhook(why: str) -> Refused:
    return Refused(400, "webhook", f"no webhook of Alertmanager that can be kept: {why}")


def seen(wall: Sequence[Sequence[Matcher]] | None, labels: Mapping[str, str]) -> bool:
    """Whether a series with these labels would be behind the wall's door."""
    return wall is None or any(all(_holds(one, labels) for one in group) for group in wall)


def _holds(matcher: Matcher, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.label, "")
    if matcher.op in ("=", "!="):
        return (value == matcher.value) == (matcher.op == "=")
    return (re.fullmatch(matcher.value, value) is not None) == (matcher.op == "=~")


class Inbox:
    """Blocking; one SQLite file."""

    def __init__(self, config: Config) -> None:
        self._path = os.path.join(config.state_directory, "inbox.sqlite")
        self._keep = config.inbox.keep_seconds
        self._rows = config.inbox.rows

    def prepare(self) -> None:
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(_TABLE)
            database.execute("CREATE INDEX IF NOT EXISTS newest ON alert (updated DESC)")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=10)
        try:
            with database:
                yield database
        finally:
            database.close()

    def take(self, alerts: Sequence[Alert], now: float) -> None:
        """All or none. What came late about an alert that is over does not wake it again."""
        rows = [
            (a.fingerprint, a.started, a.ended, a.state, json.dumps(a.labels), a.summary, a.attempt,
             a.receiver, a.updated)
            for a in alerts
        ]  # fmt: skip
        with self._open() as database:
            database.executemany(
                f"INSERT INTO alert ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (fingerprint, started) DO UPDATE SET ended = excluded.ended,"
                " state = excluded.state, labels = excluded.labels, summary = excluded.summary,"
                " attempt = excluded.attempt, receiver = excluded.receiver, updated = excluded.updated"
                " WHERE alert.state = 'firing'",
                rows,
            )
            database.execute("DELETE FROM alert WHERE updated < ?", (now - self._keep,))
            database.execute(
                "DELETE FROM alert WHERE rowid IN"
                " (SELECT rowid FROM alert ORDER BY updated DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (self._rows,),
            )

    def show(self, identity: Identity, values: Mapping[str, str], now: float) -> list[dict[str, Any]]:
        """Newest first. `since`, `status` and `limit` narrow it."""
        most = form.count(values, "limit", _SHOWN_MOST) if "limit" in values else _SHOWN
        since = moment("since", values["since"], now) if "since" in values else 0.0
        state = values.get("status", "")
        if state and state not in _STATES:
            raise Refused(400, "parameter", f"status: one of {', '.join(_STATES)} (got {state[:40]!r})")
        found: list[dict[str, Any]] = []
        with self._open() as database:
            cursor = database.execute(
                f"SELECT {_COLUMNS} FROM alert WHERE updated >= ? AND ? IN ('', state)"
                " ORDER BY updated DESC, rowid DESC",
                (since, state),
            )
            for row in cursor:
                alert = Alert(**{**dict(zip(_NAMES, row)), "labels": json.loads(row[4])})
                if seen(identity.wall, alert.labels):
                    found.append(alert.public())
                    if len(found) >= most:
                        break
        return found

    def count(self) -> int:
        with self._open() as database:
            (rows,) = database.execute("SELECT count(*) FROM alert").fetchone()
        return int(rows)
