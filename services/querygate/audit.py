"""The audit trail of administrators', the archive's and raw access: one line, on the disk before the answer
leaves (Q5).

No line, no answer: where the file cannot be written the question is refused. A file for each day (UTC); old
ones go when their time is over, others may be renamed away at any time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.jsonl")


class Audit:
    def __init__(self, directory: str, keep_days: int) -> None:
        self._directory = directory
        self._keep = datetime.timedelta(days=keep_days)
        self._lock = threading.Lock()
        self._file = -1
        self._open_as = ("", -1)  # path and inode

    def open(self) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        with self._lock:
            self._reopen()

    def write(self, record: Mapping[str, Any]) -> None:
        """Blocking; raises OSError where the line is not safely there."""
        line = json.dumps(record, sort_keys=False, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            self._reopen()
            written = os.write(self._file, line)
            if written != len(line):
                # A cut line must not swallow the next one.
                os.write(self._file, b"\n")
                raise OSError(f"{self._open_as[0]}: {written} of {len(line)} bytes written")
            os.fsync(self._file)

    def _reopen(self) -> None:
        today = datetime.datetime.now(datetime.timezone.utc).date()
        path = os.path.join(self._directory, f"{today.isoformat()}.jsonl")
        try:
            inode = os.stat(path).st_ino
        except FileNotFoundError:
            inode = -1
        if self._file >= 0 and (path, inode) == self._open_as:
            return
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._open_as = (path, os.fstat(self._file).st_ino)
        if inode == -1:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._purge(today)

    def _purge(self, today: datetime.date) -> None:
        for name in os.listdir(self._directory):
            found = _NAME.fullmatch(name)
            with contextlib.suppress(ValueError, OSError):
                if found and datetime.date.fromisoformat(found.group(1)) < today - self._keep:
                    os.unlink(os.path.join(self._directory, name))
