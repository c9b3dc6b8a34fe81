"""A store's answer, on its way: in memory while it is small, in an unnamed file beyond that.

A hundred people may ask for 64 MB each; what that takes of memory is a constant for each of them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO

IN_MEMORY = 262_144  # bytes of one answer
_PIECE = 65_536
_BEGINNING = 4_096
_BETWEEN = b'"},{"'


class Rows:
    """How many label sets a store's list holds, counted as it passes.

    The stores print JSON without spaces, label sets are flat and never empty, and a quote inside a string is
    printed with a backslash before it: `"},{"` stands between two of them. A value that reads `},{` would
    count as one more; too many is the safe side.
    """

    def __init__(self) -> None:
        self._beginning = b""
        self._rest = b""
        self._between = 0

    def add(self, piece: bytes) -> None:
        if len(self._beginning) < _BEGINNING:
            self._beginning = (self._beginning + piece)[:_BEGINNING]
        text = self._rest + piece
        self._between += text.count(_BETWEEN)
        # What may begin a separator; a whole one in here was counted.
        self._rest = text[-(len(_BETWEEN) - 1) :]

    @property
    def found(self) -> int | None:
        """None where it is no list at all."""
        if b'"data":[' not in self._beginning:
            return None
        return 0 if b'"data":[]' in self._beginning else self._between + 1


class Answer:
    """Written once, then read once; whoever has it last closes it."""

    def __init__(self, directory: str, content_type: str) -> None:
        self.content_type = content_type
        self.size = 0
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY, dir=directory)  # noqa: SIM115

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self.size += len(piece)

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            yield piece

    def close(self) -> None:
        self._file.close()


class Stored:
    """An answer that lies in a file already."""

    content_type = "application/json"

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def pieces(self) -> Iterator[bytes]:
        while piece := self._file.read(_PIECE):
            yield piece

    def close(self) -> None:
        self._file.close()
