"""Asking the query gateway as the site's archive: forms over mutual TLS, in pieces that it answers.

What the gateway refuses as too large is asked for in halves; what it refuses otherwise ends the run with its
own words.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import urlencode, urlsplit

from services.archiver.config import Config, Tls
from services.archiver.problem import Problem

_SMALLER = (
    "range",
    "points",
    "bytes",
    "series",
    "late",
)  # reasons of the gateway that a shorter span answers
_LEAST_SECONDS = 60
_MOST_SECONDS = 28 * 86_400
_PATIENCE = 8  # times that a busy or unreachable gateway is asked again
_BYTES = 128 << 20

Labels = Mapping[str, str]
Samples = list[tuple[int, Optional[float]]]  # milliseconds since 1970, value


@dataclass
class Refused(Exception):
    """The gateway's answer to a question that it will not take as it is."""

    status: int
    reason: str
    text: str


class Unreachable(Exception):
    """No gateway answered this time."""


def context(tls: Tls) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=tls.ca)
    made.load_cert_chain(tls.certificate, tls.key)
    return made


class Gateway:
    def __init__(self, config: Config, sleep: Callable[[float], None] = time.sleep) -> None:
        self._urls = list(config.gateways)
        self._context = context(config.tls) if config.tls else None
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- questions

    def instant(self, query: str, at: float, tier: str) -> list[dict[str, Any]]:
        return self._result("/api/v1/query", query=query, time=plain(at), tier=tier)

    def range(self, query: str, start: float, end: float, step: int, tier: str) -> list[dict[str, Any]]:
        values = {"query": query, "start": plain(start), "end": plain(end), "step": str(step), "tier": tier}
        return self._result("/api/v1/query_range", **values)

    def names(self, selector: str, start: float, end: float, tier: str) -> set[str]:
        """The metrics that a selector finds within a span."""
        found: set[str] = set()
        for first, last in pieces(start, end, _MOST_SECONDS):
            values = {"match[]": selector, "start": plain(first), "end": plain(last), "tier": tier}
            found.update(self._ask("/api/v1/label/__name__/values", values))
        return found

    def samples(self, selector: str, start: float, end: float, tier: str) -> Iterator[tuple[Labels, Samples]]:
        """Every stored sample of a selector in [start, end] (seconds), with its own time.

        Asked as range selectors, whose window is open at its beginning: neighbouring windows share nothing.
        """
        first, last = round(start * 1000) - 1, round(end * 1000)
        width = min(_MOST_SECONDS, max(1, -(-(last - first) // 1000))) * 1000
        while first < last:
            until = min(first + width, last)
            try:
                rows = self.instant(f"{selector}[{until - first}ms]", until / 1000, tier)
            except Refused as problem:
                if problem.reason not in _SMALLER or width <= _LEAST_SECONDS * 1000:
                    raise Problem(f"the gateway refuses {selector}: {problem.text}") from None
                width = max(_LEAST_SECONDS * 1000, width // 2)
                continue
            for row in rows:
                yield row["metric"], [read(pair) for pair in row["values"]]
            first = until

    # -- the wire

    def _result(self, path: str, **values: str) -> list[dict[str, Any]]:
        data = self._ask(path, values)
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise Problem(f"the gateway's answer to {path} is no result")
        return list(data["result"])

    def _ask(self, path: str, values: Mapping[str, str]) -> Any:
        body = urlencode(values).encode()
        said = ""
        for attempt in range(_PATIENCE):
            if attempt:
                self._sleep(min(30.0, 0.5 * 2**attempt))
            try:
                status, answer = self._post(path, body)
            except Unreachable as problem:
                said = str(problem)
                continue
            if status == 200:
                return _data(answer)
            refusal = _refusal(status, answer)
            if status not in (429, 502) and not (status == 503 and refusal.reason != "late"):
                raise refusal
            said = refusal.text
        raise Problem(
            f"the gateway does not answer ({said})", "see that it runs, then the same command again", True
        )

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        said: list[str] = []
        for _ in range(len(self._urls)):
            try:
                connection = self._connected()
                connection.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})
                response = connection.getresponse()
                answer = response.read(_BYTES + 1)
                if len(answer) > _BYTES:
                    self.close()
                    return 413, b'{"reason": "bytes", "error": "more than this program reads"}'
                return response.status, answer
            except (OSError, http.client.HTTPException) as problem:
                said.append(f"{self._urls[0]}: {problem or type(problem).__name__}")
                self.close()
                self._urls.append(self._urls.pop(0))
        raise Unreachable("; ".join(said))

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            place = urlsplit(self._urls[0])
            assert place.hostname is not None
            self._connection = (
                http.client.HTTPSConnection(place.hostname, place.port, timeout=90, context=self._context)
                if place.scheme == "https"
                else http.client.HTTPConnection(place.hostname, place.port, timeout=90)
            )
        return self._connection


def pieces(start: float, end: float, width: float) -> Iterator[tuple[float, float]]:
    while start < end:
        yield start, min(start + width, end)
        start += width


def plain(seconds: float) -> str:
    return f"{seconds:.3f}"


def read(pair: Any) -> tuple[int, float | None]:
    """(milliseconds, value) of a pair as stores write it. Null is kept apart from NaN (case 82)."""
    moment, value = pair
    return round(float(moment) * 1000), None if value is None else float(value)


def selector(**matchers: str) -> str:
    """Of equal matchers; a name that ends in `_re` matches by an expression."""
    inside = []
    for name, value in matchers.items():
        op, label = ("=~", name[:-3]) if name.endswith("_re") else ("=", name)
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        inside.append(f'{label}{op}"{quoted}"')
    return "{" + ",".join(inside) + "}"


def either(values: list[str]) -> str:
    """An expression that matches these texts and no other."""
    return "|".join(re.sub(r"([.\[\]{}()\\*+?|^$])", r"\\\1", value) for value in sorted(values))


def _data(answer: bytes) -> Any:
    try:
        return json.loads(answer)["data"]
    except (ValueError, KeyError, TypeError):
        raise Problem(
            "the gateway's answer cannot be read", "is it the gateway that answers there?"
        ) from None


def _refusal(status: int, answer: bytes) -> Refused:
    try:
        said = json.loads(answer)
        return Refused(status, str(said.get("reason", "")), str(said["error"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Refused(status, "", f"{status} {answer[:200].decode('utf-8', 'replace').strip()}")
