"""One file, from where it was left to where it ends, whatever its name is meanwhile."""

from __future__ import annotations

import os
import secrets
import stat
from typing import Any

from services.tail.formats import FORMATS
from services.tail.line import LINE_BYTES, Splitter
from services.tail.stream import HOLD_SECONDS, Record, Stream

READ_BYTES = 262_144
PARTIAL_SECONDS = 5.0  # a line without an end is taken as it is after so long
PRINT_BYTES = 64
OLD_BYTES = 64 << 20  # of a file that was there before us, what is read at most


class Swapped(OSError):
    """Another file stands where the wanted one was."""


def open_file(path: str, device: int | None, inode: int | None, owners: frozenset[int] | None) -> int:
    """A descriptor of exactly this file. Paths are users': none is followed to where the user may not
    read."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Swapped(f"{path}: no regular file")
        if inode is not None and (status.st_ino, status.st_dev) != (inode, device or status.st_dev):
            raise Swapped(f"{path}: another file")
        if owners is not None and status.st_uid not in owners:
            raise Swapped(f"{path}: another owner")
    except BaseException:
        os.close(handle)
        raise
    return handle


class Follower:
    def __init__(self, handle: int, path: str, labels: dict[str, str], form: str, node: str) -> None:
        status = os.fstat(handle)
        self.handle, self.path, self.form = handle, path, form
        self.key = (status.st_dev, status.st_ino)
        self.owner = status.st_uid
        self.stream = Stream(secrets.token_hex(8), labels, node, own_times=form == "plain")
        self._splitter = Splitter(0)
        self._changed = 0.0
        self._partial_since = 0.0
        self.outstanding = 0
        self.committed = 0
        self.covered = 0
        self.print = b""
        self.truncated = 0
        self.skipped_bytes = 0
        self.wanted = True
        self.idle_since = 0.0

    # -- where it was left --------------------------------------------------------------------------------

    def begin(self, clock: float) -> None:
        """A file that nobody has read yet: from its beginning, of a very long one its end."""
        size = os.fstat(self.handle).st_size
        if size > OLD_BYTES:
            at = size - OLD_BYTES
            while block := os.pread(self.handle, LINE_BYTES, at):
                cut = block.find(b"\n")
                at += len(block) if cut < 0 else cut + 1
                if cut >= 0:
                    break
            self.skipped_bytes = at
            self._place(at, at)
        self._changed = self.idle_since = clock

    def resume(self, entry: dict[str, Any], clock: float) -> None:
        """On from an entry of the state; raises Swapped where the file is not what it was."""
        at, before = int(entry["offset"]), bytes.fromhex(entry["print"])
        if os.pread(self.handle, len(before), at - len(before)) != before:
            raise Swapped(f"{self.path}: written anew")
        self.stream.name = str(entry["stream"])
        self.print = before
        self._place(at, int(entry["covered"]))
        self._changed = self.idle_since = clock

    def _place(self, at: int, covered: int) -> None:
        self._splitter = Splitter(at)
        self.stream.done, self.stream.covered = at, covered
        self.committed, self.covered = at, covered

    def entry(self) -> dict[str, Any]:
        return {
            "stream": self.stream.name,
            "path": self.path,
            "device": self.key[0],
            "inode": self.key[1],
            "owner": self.owner,
            "offset": self.committed,
            "covered": self.covered,
            "print": self._print_at(self.committed).hex(),
            "labels": self.stream.labels,
            "format": self.form,
        }

    def _print_at(self, at: int) -> bytes:
        length = min(PRINT_BYTES, at)
        try:
            return os.pread(self.handle, length, at - length)
        except OSError:
            return b""

    # -- reading ------------------------------------------------------------------------------------------

    def read(self, clock: float, most: int = READ_BYTES) -> list[Record]:
        """What has been written since; and what was held back long enough."""
        at = self._splitter.at + self._splitter.kept
        if self._rewritten(at):
            return self._start_over(clock)
        data = os.pread(self.handle, most, at)
        made: list[Record] = []
        if data:
            self.idle_since = self._partial_since = clock
            self.print = (self.print + data)[-PRINT_BYTES:]
            form = FORMATS[self.form]
            made = self.stream.feed([form(line) for line in self._splitter.feed(data)], clock)
        elif self._splitter.kept and clock - self._partial_since >= PARTIAL_SECONDS:
            made = self.stream.feed([FORMATS[self.form](line) for line in self._splitter.flush()], clock)
            made += self.stream.flush(clock, 0)
        else:
            # What is held may go on with the line whose end is not written yet; a bar's end may never come.
            made = self.stream.flush(clock, 2 * PARTIAL_SECONDS if self._splitter.kept else HOLD_SECONDS)
        self._sent(made)
        return made

    def _rewritten(self, at: int) -> bool:
        """Truncated, or truncated and grown again beyond where we were (copytruncate)."""
        status = os.fstat(self.handle)
        if status.st_size < at:
            return True
        stamp = status.st_mtime_ns
        if stamp == self._changed or not self.print:
            return False
        self._changed = stamp
        return os.pread(self.handle, len(self.print), at - len(self.print)) != self.print

    def _start_over(self, clock: float) -> list[Record]:
        """A new stream: what was written between our last look and the truncation is gone, and is told of."""
        made = self.stream.feed([FORMATS[self.form](line) for line in self._splitter.flush()], clock)
        made += self.stream.flush(clock, 0)
        self._sent(made)
        self.truncated += 1
        self.stream.name = secrets.token_hex(8)
        self.print = b""
        self._place(0, 0)
        self.outstanding = 0  # what was made before counts for the old stream
        return made

    def _sent(self, made: list[Record]) -> None:
        self.outstanding += len(made)
        self.settle()

    def taken(self, record: Record) -> None:
        if record.text.find(self.stream.name.encode(), 0, 160) < 0:
            return  # of before a truncation
        self.outstanding -= 1
        self.committed = self.covered = record.commit
        self.settle()

    def settle(self) -> None:
        if self.outstanding == 0:
            self.committed, self.covered = self.stream.commit, self.stream.covered

    @property
    def behind_bytes(self) -> int:
        return max(0, os.fstat(self.handle).st_size - self._splitter.at - self._splitter.kept)

    @property
    def quiet(self) -> bool:
        """Nothing is left to read, to hand over or to wait for."""
        return not (self.outstanding or self.stream.held or self._splitter.kept or self.behind_bytes)

    def close(self) -> None:
        os.close(self.handle)
