"""Rollback action D5: a small file says that queries read the newest aggregated copy only.

The policy side writes it, whole or not at all; it is looked at before every question. `{"aggregated": true}`
and whatever else the writer likes to note; no file is the normal state.
"""

from __future__ import annotations

import json
import os
import time

_BYTES = 4096


class Degraded:
    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = (-1, -1, -1)
        self._aggregated = False
        self.damaged = False
        self.since = 0.0

    def now(self) -> bool:
        """A damaged file changes nothing while we run; found at start it counts as degraded: less load."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            stamp = None
        except OSError:
            self.damaged = True
            return self._aggregated
        else:
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return self._aggregated
        first = self._stamp == (-1, -1, -1)
        self._stamp = stamp
        if stamp is None:
            self._set(False, damaged=False)
        else:
            value = self._read()
            self._set(first or self._aggregated if value is None else value, damaged=value is None)
        return self._aggregated

    def _read(self) -> bool | None:
        try:
            with open(self._path, "rb") as file:
                value = json.loads(file.read(_BYTES))
            answer = value["aggregated"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return answer if isinstance(answer, bool) else None

    def _set(self, aggregated: bool, damaged: bool) -> None:
        if aggregated != self._aggregated:
            self.since = time.time()
        self._aggregated, self.damaged = aggregated, damaged
