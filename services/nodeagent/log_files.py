"""The log files that a process has open, found without touching a file on a file system that might hang
(case 49)."""

from __future__ import annotations

import collections
import fnmatch
import itertools
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from services import durable

# Where a stat cannot wait for a network or for another program. Whatever is not listed is left alone: there
# are more parallel file systems than any list knows, and FUSE stands for anything.
LOCAL = (
    "bcachefs",
    "btrfs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "jfs",
    "overlay",
    "ramfs",
    "tmpfs",
    "xfs",
    "zfs",
)
_BYTES = 1 << 20
_DESCRIPTORS = 4096  # of one process; a user may have a million, and logs are among the first
_PATH_BYTES = 1024
_WRITES = os.O_WRONLY | os.O_RDWR
_FD = re.compile(r"^(pos|flags|mnt_id):\s+(\d+)", re.MULTILINE)
# A name goes into another program's configuration: no quotes, no wildcards (they would take other files
# along), no control characters.
_NAME = re.compile(r"/(?:[A-Za-z0-9 _./:@+,=%~^-]|[^\x00-\x9f\u2028\u2029\ud800-\udfff])*")


@dataclass(frozen=True)
class LogFile:
    path: str  # as the process names it
    read_path: str  # where the host reads it
    device: int
    inode: int
    source: str  # stdout, stderr or log


class LogFiles:
    def __init__(self, names: Sequence[str], file_systems: Sequence[str], proc: str = "/proc") -> None:
        self._names = tuple(names)
        self._local = frozenset(LOCAL) | frozenset(file_systems)
        self._proc = proc
        # The host's, not this process's: a unit's sandbox is a name space of its own.
        self._host_mounts = self._link("1/ns/mnt") or self._link("self/ns/mnt")
        self.skipped: collections.Counter[str] = collections.Counter()

    def _link(self, name: str) -> str:
        try:
            return os.readlink(f"{self._proc}/{name}")
        except OSError:
            return ""

    def of(self, pid: int, uids: frozenset[int], most: int) -> list[LogFile]:
        """A process's log files, each once. `uids` are those who may own what is shown as theirs."""
        try:
            with os.scandir(f"{self._proc}/{pid}/fd") as entries:  # in the order of their numbers
                numbers = [int(entry.name) for entry in itertools.islice(entries, _DESCRIPTORS)]
        except OSError:
            self.skipped["no_access"] += 1
            return []
        mounts: dict[int, str] | None = None
        elsewhere = self._link(f"{pid}/ns/mnt") != self._host_mounts
        found: dict[tuple[int, int], LogFile] = {}
        for number in numbers:
            path = self._link(f"{pid}/fd/{number}")
            source = {1: "stdout", 2: "stderr"}.get(number, "log")
            if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/sys/")):
                continue
            if source == "log" and not self._looks_like_a_log(path):
                continue
            information = dict(_FD.findall(self._text(f"{pid}/fdinfo/{number}")))
            if not int(information.get("flags", "0"), 8) & _WRITES:
                continue
            mounts = self._mounts(pid) if mounts is None else mounts
            if mounts.get(int(information.get("mnt_id", "-1")), "") not in self._local:
                self.skipped["file_system"] += 1
                continue
            one = self._examine(pid, number, path, source, uids, elsewhere)
            if one is None or (one.device, one.inode) in found:
                continue
            if len(found) >= most:
                self.skipped["too_many"] += 1
                break
            found[(one.device, one.inode)] = one
        return list(found.values())

    def _looks_like_a_log(self, path: str) -> bool:
        name = os.path.basename(path)
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._names)

    def _examine(
        self, pid: int, number: int, path: str, source: str, uids: frozenset[int], elsewhere: bool
    ) -> LogFile | None:
        try:
            status = os.stat(f"{self._proc}/{pid}/fd/{number}")
        except OSError:
            return None  # closed since
        if not stat.S_ISREG(status.st_mode) or status.st_nlink == 0:
            return None
        if len(os.fsencode(path)) > _PATH_BYTES or not _NAME.fullmatch(path) or "/../" in path:
            self.skipped["name"] += 1
            return None
        if status.st_uid not in uids:  # a descriptor may be handed over; the file stays another's
            self.skipped["owner"] += 1
            return None
        read_path = f"{self._proc}/{pid}/root{path}" if elsewhere else path
        return LogFile(path, read_path, status.st_dev, status.st_ino, source)

    def _text(self, name: str) -> str:
        return (durable.read(f"{self._proc}/{name}", _BYTES) or b"").decode("utf-8", "replace")

    def _mounts(self, pid: int) -> dict[int, str]:
        """Mount's number to type, from the process's own name space: asking the mount itself might hang."""
        found = {}
        for line in self._text(f"{pid}/mountinfo").splitlines():
            left, _, right = line.partition(" - ")
            if right:
                found[int(left.split(" ", 1)[0])] = right.split(" ", 1)[0]
        return found
