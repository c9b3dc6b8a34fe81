"""The audit trail of administrators' and raw access: one line, on the disk before the answer leaves (Q5).

No line, no answer: where the file cannot be written the question is refused. The file only grows; it may be
renamed away at any time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

_TEXT = 4096  # of what was asked


class Audit:
    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file = -1
        self._inode = -1

    def open(self) -> None:
        with self._lock:
            self._reopen()

    def write(self, record: Mapping[str, Any]) -> None:
        """Blocking; raises OSError where the line is not safely there."""
        what = {key: value[:_TEXT] if isinstance(value, str) else value for key, value in record.items()}
        line = json.dumps(what, sort_keys=False, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            self._reopen()
            written = os.write(self._file, line)
            if written != len(line):
                # A cut line must not swallow the next one.
                os.write(self._file, b"\n")
                raise OSError(f"{self._path}: {written} of {len(line)} bytes written")
            os.fsync(self._file)

    def _reopen(self) -> None:
        try:
            inode = os.stat(self._path).st_ino
        except FileNotFoundError:
            inode = -1
        if self._file >= 0 and inode == self._inode:
            return
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._inode = os.fstat(self._file).st_ino
        if inode == -1:
            directory = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
