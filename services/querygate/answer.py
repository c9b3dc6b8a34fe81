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
_LIST = b'"data":['
LABEL_SETS, NAMES = b'"},{"', b'","'  # what stands between two rows of a list


class Rows:
    """How many label sets or names a store's list holds, counted as it passes.

    The stores print JSON without spaces, label sets are flat and never empty, and a quote inside a string is
    printed with a backslash before it: `"},{"` stands between two label sets, `","` between two names. A
    value that reads `},{` would count as one more; too many is the safe side.
    """

    def __init__(self, between: bytes = LABEL_SETS) -> None:
        self._separator = between
        self._beginning = b""  # up to the list's own
        self._begun = False
        self._rest = b""
        self._empty = True
        self._between = 0

    def add(self, piece: bytes) -> None:
        if not self._begun:
            self._beginning += piece
            _, found, piece = self._beginning.partition(_LIST)
            if not found:
                self._beginning = self._beginning[:_BEGINNING]
                return
            self._begun = True
        if not piece:
            return
        if self._empty and not self._rest:
            self._empty = piece.startswith(b"]")
        text = self._rest + piece
        self._between += text.count(self._separator)
        # What may begin a separator; a whole one in here was counted.
        self._rest = text[-(len(self._separator) - 1) :]

    @property
    def found(self) -> int | None:
        """None where it is no list at all."""
        if not self._begun:
            return None
        return 0 if self._empty else self._between + 1


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
