"""Which lines belong together: tracebacks and what is indented below a line (case 77)."""

from __future__ import annotations

import re

_RANK = re.compile(r"^(?:\[(?:rank|default)[ _]?\d{1,6}\]|\[\d+,\d{1,6}\]<std(?:out|err)>):? ?")
_TRACE = re.compile(r"Traceback \(most recent call last\):|Exception Group Traceback")
_BETWEEN = re.compile(r"During handling of the above exception|The above exception was the direct cause")
# A single blank is not enough: Megatron-LM begins its lines with one.
_INDENTED = re.compile(r"(?:\t|  )\s*\S")
_BELOW = re.compile(r"Caused by: |\.\.\. \d+ more\b|frame #\d+: |\s*at \S+\(|\s+\^+\s*$")
_LAST = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")  # the exception itself


class Joiner:
    """Reads lines in order and says of each whether it goes on with the one before."""

    def __init__(self) -> None:
        self._state = "plain"

    def reset(self) -> None:
        self._state = "plain"

    def continues(self, text: str) -> bool:
        text = _RANK.sub("", text, count=1)
        if _TRACE.match(text):
            self._state = "trace"
            return True
        if self._state == "trace":
            if not text.strip() or _INDENTED.match(text) or text.startswith(" "):
                return True
            if _LAST.match(text):
                self._state = "ended"
                return True
        elif self._state == "ended" and (not text.strip() or _BETWEEN.match(text)):
            return True
        if _INDENTED.match(text) or _BELOW.match(text):
            return True
        self._state = "plain"
        return False
