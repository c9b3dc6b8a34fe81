"""VictoriaLogs, spoken to so that no row is stored twice and none is missing.

It has no transactions, deduplicates nothing, and keeps what it has just taken in memory for some seconds. So
rows are kept here until it has surely written them, and after any doubt (no answer, or another process at the
other end) it is asked which of them it has.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any

from services.keeper.book import Row
from services.keeper.record import STREAM_FIELDS

_INSERT = "/insert/jsonline?" + urllib.parse.urlencode(
    {"_stream_fields": ",".join(STREAM_FIELDS), "_time_field": "_time", "_msg_field": "_msg"}
)
_STARTED = re.compile(rb"^vm_app_start_timestamp (\S+)", re.MULTILINE)


class Unavailable(Exception):
    """The store does not answer; the text says how."""


class Store:
    def __init__(self, url: str, timeout: float = 30.0) -> None:
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._timeout = timeout

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        try:
            connection.request(method, path, body or None, {"Content-Type": kind} if kind else {})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status // 100 != 2:
                raise Unavailable(f"answered {answer.status}: {data[:200].decode('utf-8', 'replace')}")
            return data
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(str(error) or type(error).__name__) from None
        finally:
            connection.close()

    def started(self) -> str:
        """What tells one process of the store from the next."""
        found = _STARTED.search(self._ask("GET", "/metrics"))
        if found is None:
            raise Unavailable("says no start time")
        return found.group(1).decode("ascii")

    def insert(self, rows: Sequence[Row]) -> None:
        body = b"\n".join(
            json.dumps(row.value, ensure_ascii=False).encode("utf-8", "replace") for row in rows
        )
        self._ask("POST", _INSERT, body, "application/stream+json")

    def has(self, rows: Sequence[Row]) -> set[int]:
        """Which of these rows it has, by their numbers. What came in the last second or two may not be
        found."""
        numbers = [row.number for row in rows]
        times = sorted(str(row.value["_time"]) for row in rows)
        form = {
            "query": f"seq:range[{numbers[0]}, {numbers[-1]}] | fields seq",
            "start": times[0],
            "end": times[-1][:-1] + "999Z",
        }
        data = self._ask(
            "POST",
            "/select/logsql/query",
            urllib.parse.urlencode(form).encode(),
            "application/x-www-form-urlencoded",
        )
        found: set[int] = set()
        for line in data.splitlines():
            value: dict[str, Any] = json.loads(line)
            found.add(int(value["seq"]))
        return found
