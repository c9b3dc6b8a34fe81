"""NVIDIA's Xid errors, counted from the kernel log: each one, also several within a round (case 43).

The last error's number, which dcgm-exporter shows, never clears and hides the error before it; a counter does
neither. Counts and position are kept in a file, so that a restart neither forgets nor counts twice.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from services import durable
from services.nodeagent.gpus import pci_address

BOOT_ID = "/proc/sys/kernel/random/boot_id"
# A GPU's part (MIG) stands behind its address: (PCI:0000:3b:00 GPU-I:05).
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,24})(?:[ ,][^()]{1,40})?\): (\d{1,4})\b")
# What a log daemon puts before the kernel's own words. Elsewhere in a line stands what others have chosen: a
# mount's options, a device's name.
_HEAD = re.compile(r"(?:[^\n]{0,128}? kernel: )?(?:\[ *\d{1,10}\.\d{1,9}\] ?)?")
_CHUNK = 1 << 16
_TAIL = 4 << 20  # of a log file, no more than this is read at the first start
_STATE_BYTES = 1 << 20
_MOST_KINDS = (
    256  # of (address, number): there are some 150 numbers, and no log may make more series than this
)

Xid = tuple[str, str]


def find(text: str, headed: bool = False) -> Xid | None:
    """The address and number in one line of the log that begins with them, or does so behind its head."""
    head = _HEAD.match(text) if headed else None
    found = _XID.match(text, head.end() if head else 0)
    address = pci_address(found.group(1)) if found else ""
    return (address, str(int(found.group(2)))) if found and address else None


class _Ring:
    """/dev/kmsg: one record a read, numbered since boot."""

    headed = False

    def __init__(self, path: str, after: int) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.position = after
        self.lost = 0

    def lines(self) -> Iterator[str]:
        while True:
            try:
                record = os.read(self._handle, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before it was read; the next read goes on with the oldest
                self.lost += 1
                continue
            head, _, text = record.partition(b";")
            fields = head.split(b",")
            if len(fields) < 2 or not fields[0].isdigit() or not fields[1].isdigit():
                continue
            sequence = int(fields[1])
            # Facility 0 is the kernel itself: a program that writes to this device cannot take it.
            if sequence > self.position and int(fields[0]) >> 3 == 0:
                self.position = sequence
                yield text.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._handle)


class _File:
    """A log file, for kernels whose log is not to be had: whole lines only, followed through rotation.
    Whoever may write to it is believed."""

    headed = True

    def __init__(self, path: str, inode: int, offset: int, first: bool) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._handle)
        if first:
            offset = max(0, status.st_size - _TAIL)
        elif status.st_ino != inode or status.st_size < offset:
            offset = 0
        self.inode, self.position, self.lost = status.st_ino, offset, 0

    def lines(self) -> Iterator[str]:
        yield from self._rest()
        try:
            status = os.stat(self._path)
        except OSError:
            return  # between the two halves of a rotation
        if status.st_ino != self.inode or status.st_size < self.position:
            os.close(self._handle)
            self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self.inode, self.position = os.fstat(self._handle).st_ino, 0
            yield from self._rest()

    def _rest(self) -> Iterator[str]:
        while True:
            data = os.pread(self._handle, _CHUNK, self.position)
            end = data.rfind(b"\n") + 1
            if end == 0:
                if len(data) < _CHUNK:
                    return
                end = len(data)  # a line longer than any of the kernel's
            for line in data[:end].splitlines(keepends=True):
                self.position += len(line)
                yield line.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._handle)


class Xids:
    """The counters. A log that cannot be read is said so, and tried again each round."""

    def __init__(self, path: str, state: str, boot_id: str = BOOT_ID) -> None:
        self._path = path
        self._state = state
        self._source: _Ring | _File | None = None
        self._saved = self._load()
        self._boot = (durable.read(boot_id, 64) or b"").decode("ascii", "replace").strip()
        counts = self._saved.get("counts", [])
        self.counts: collections.Counter[Xid] = collections.Counter(
            {(str(address), str(number)): int(count) for address, number, count in counts}
        )
        self.lost = 0
        self.problem = ""

    def poll(self) -> None:
        """Take up what has been logged since."""
        before = sum(self.counts.values())
        try:
            if self._source is None:
                self._source = self._open()
            for line in self._source.lines():
                found = find(line, self._source.headed)
                if found is not None:
                    self._count(found)
            self.lost = self._source.lost
            self.problem = ""
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"
            self.close()
        if sum(self.counts.values()) != before:
            self._save()

    def close(self) -> None:
        if self._source is not None:
            with contextlib.suppress(OSError):
                self._source.close()
            self._source = None

    def _count(self, found: Xid) -> None:
        if found not in self.counts and len(self.counts) >= _MOST_KINDS:
            found = ("", "other")
        self.counts[found] += 1

    def _open(self) -> _Ring | _File:
        saved = self._saved if self._saved.get("path") == self._path else {}
        position = int(saved.get("position", 0))
        if stat.S_ISCHR(os.stat(self._path).st_mode):
            return _Ring(self._path, position if self._boot and saved.get("boot") == self._boot else -1)
        return _File(self._path, int(saved.get("inode", 0)), position, first=not saved)

    def _load(self) -> dict[str, Any]:
        try:
            value = json.loads(durable.read(self._state, _STATE_BYTES) or b"{}")
            for address, number, count in value.get("counts", []):
                if not isinstance(count, int) or not isinstance(address, str) or not isinstance(number, str):
                    raise ValueError
            if not isinstance(value.get("position", 0), int) or not isinstance(value.get("inode", 0), int):
                raise ValueError
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}  # damaged: counting begins anew, which a counter's readers understand
        return dict(value)

    def _save(self) -> None:
        counts = [[address, number, count] for (address, number), count in sorted(self.counts.items())]
        self._saved = {"path": self._path, "boot": self._boot, "counts": counts}
        if self._source is not None:
            self._saved.update(position=self._source.position, inode=getattr(self._source, "inode", 0))
        try:
            durable.write(self._state, json.dumps(self._saved).encode())
        except OSError as error:
            self.problem = f"{self._state}: {error.strerror}"
