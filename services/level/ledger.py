"""What has been issued: the signer's memory, one line a document."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any

from sideband.documents import Refused, Signed, parse_document


class Ledger:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, "ledger.jsonl")
        self.damaged = 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Two people at two keyboards: one after the other, so that generations stay in order."""
        with open(os.path.join(self._directory, "ledger.lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def issued(self) -> list[Signed]:
        """Every document on record. A line that a crash has cut is passed over and counted."""
        found: list[Signed] = []
        self.damaged = 0
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except FileNotFoundError:
            return found
        for line in lines:
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                found.append(Signed(parse_document(str(value["document"])), str(value["signature"])))
            except (Refused, ValueError, KeyError, TypeError, RecursionError):
                self.damaged += 1
        return found

    def append(self, signed: Signed, notes: dict[str, Any]) -> None:
        line = json.dumps({**signed.as_json(), **notes}, sort_keys=True) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size and not self._ends_whole():
                line = "\n" + line  # never glue a new document to a cut line
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _ends_whole(self) -> bool:
        with open(self._path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
