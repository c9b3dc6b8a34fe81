"""A refusal says why, and what would pass. Its shape is the one that Prometheus' clients already show."""

from __future__ import annotations

import json

# Prometheus' own words for kinds of error, by status.
_TYPES = {400: "bad_data", 403: "forbidden", 404: "not_found", 405: "bad_data", 413: "bad_data",
          415: "bad_data", 422: "execution", 429: "too_many_requests", 502: "unavailable",
          503: "timeout"}  # fmt: skip


class Refused(Exception):
    """No answer, with a reason that the asker can act on. `reason` is one word, for counters."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text

    def body(self) -> bytes:
        kind = "unavailable" if self.reason == "audit" else _TYPES[self.status]
        answer = {"status": "error", "errorType": kind, "error": self.text, "reason": self.reason}
        return json.dumps(answer).encode() + b"\n"
