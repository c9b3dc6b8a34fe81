"""What has been taken, on disk before it is confirmed, until the store holds it for good.

Rows are written into segments, each with a number that rises. Whoever starts here again knows from the
segments and the last snapshot which places have been taken, and which rows the store may not have.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services import durable
from services.keeper.seen import Seen

_SEGMENT_BYTES = 8 << 20
_SNAPSHOT_BYTES = 1 << 30
_NAME = re.compile(r"(\d{20})\.rows")


@dataclass
class Row:
    number: int
    value: dict[str, Any]
    size: int
    sent: float = 0.0  # when the store confirmed it; 0 as long as it has not


class Book:
    def __init__(
        self, directory: str, say: Callable[[str], None], segment_bytes: int = _SEGMENT_BYTES
    ) -> None:
        self._directory, self._say, self._segment_bytes = directory, say, segment_bytes
        self.changed = threading.Condition()
        self.seen = Seen()
        self.rows: deque[Row] = deque()  # not settled, by number
        self.bytes = 0
        self.damaged = 0
        # Rises for ever, whatever becomes of these files: the store is asked by it.
        self._next = time.time_ns() // 1000
        self._file: Any = None
        self._written = 0
        self._load()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _segments(self) -> list[str]:
        return sorted(name for name in os.listdir(self._directory) if _NAME.fullmatch(name))

    def _load(self) -> None:
        raw = durable.read(self._path("seen.json"), _SNAPSHOT_BYTES)
        if raw is not None:
            try:
                self.seen.load(json.loads(raw))
            except (ValueError, TypeError, RecursionError):
                self.damaged += 1
                self._say("seen.json is damaged; kept as seen.json.damaged: lines may be stored twice")
                os.replace(self._path("seen.json"), self._path("seen.json.damaged"))
        settled = self._settled()
        for name in self._segments():
            with open(self._path(name), "rb") as file:
                for line in file:
                    try:
                        number, node, stream, start, end, value = json.loads(line)
                    except ValueError:
                        if line.endswith(b"\n"):
                            self.damaged += 1
                        continue  # the last one, cut: nobody had a confirmation of it
                    self.seen.take(node, stream, start, end)
                    self._next = max(self._next, number + 1)
                    if number > settled:
                        self._add(Row(number, value, len(line)))

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.bytes += row.size

    def _settled(self) -> int:
        text = (durable.read(self._path("settled"), 64) or b"").strip()
        return int(text) if text.isdigit() else 0

    # -- taking -------------------------------------------------------------------------------------------

    def put(self, node: str, stream: str, start: int, end: int, value: dict[str, Any]) -> None:
        """Taken; on disk after the next `sync`. An error of the disk ends the program: what was not confirmed
        comes again."""
        number = self._next
        self._next += 1
        value["seq"] = number
        line = json.dumps([number, node, stream, start, end, value], separators=(",", ":")).encode() + b"\n"
        if self._file is None or self._written > self._segment_bytes:
            self._roll(number)
        self._file.write(line)
        self._written += len(line)
        self.seen.take(node, stream, start, end)
        self._add(Row(number, value, len(line)))

    def _roll(self, number: int) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
        self._file = open(self._path(f"{number:020d}.rows"), "ab")  # noqa: SIM115  # until the next one
        self._written = 0

    def sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fdatasync(self._file.fileno())

    # -- letting go ---------------------------------------------------------------------------------------

    def settle(self, before: float) -> int:
        """Rows that the store confirmed before then, and holds for good: they are forgotten here."""
        last = count = 0
        while self.rows and 0 < self.rows[0].sent < before:
            row = self.rows.popleft()
            self.bytes -= row.size
            last, count = row.number, count + 1
        if last:
            with open(self._path("settled.new"), "w", encoding="ascii") as file:
                file.write(str(last))
            os.replace(self._path("settled.new"), self._path("settled"))
            self._drop(last)
        return count

    def _drop(self, settled: int) -> None:
        names = self._segments()
        done = [name for name, after in zip(names, names[1:]) if int(after[:20]) <= settled + 1]
        if done:
            # First what they say, then they go.
            data = json.dumps(self.seen.dump(), separators=(",", ":")).encode()
            durable.write(self._path("seen.json"), data, 0o600)
            for name in done:
                os.unlink(self._path(name))
