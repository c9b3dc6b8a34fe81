"""Processes as the kernel tells of them. Nothing here can be chosen by a process, but its command line."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from services import durable
from services.nodeagent.bounded import Bounded
from services.nodeagent.identity import Membership, membership, paths, roots

_BYTES = 1 << 16
_YOUNG_SECONDS = 60.0  # so long a process may still be on its way to its cgroup and its command
_HERTZ = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Process:
    pid: int
    start: int  # clock ticks since boot: with the pid, one process and no other
    parent: int
    group: int
    uid: int
    mapped: bool  # in a user name space of its own
    member: Membership
    words: tuple[str, ...]

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start)


def command_words(arguments: Sequence[str]) -> tuple[str, ...]:
    """What a command line runs: the program's name, and for an interpreter its script's or module's."""
    if not arguments or not arguments[0]:
        return ()
    program = os.path.basename(arguments[0])
    found = [program]
    if re.fullmatch(r"(?:python|pypy|bash|sh|dash|ksh|zsh)[0-9.]*t?", program):
        rest = list(arguments[1:])
        while rest:
            word = rest.pop(0)
            if word == "-m" and rest:
                found.append(rest[0])
                break
            if word in ("-c", "-") or word == "--":
                break
            if word in _WITH_VALUE and rest:
                rest.pop(0)
            elif not word.startswith("-"):
                found.append(os.path.basename(word))
                break
    return tuple(found)


@functools.lru_cache(maxsize=4096)  # the same few command lines again and again
def matches(words: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(word, pattern) for word in words for pattern in patterns)


class Processes:
    """A scan of /proc. What was learnt of a process that is no longer young is kept: little of it can
    change."""

    def __init__(self, bounded: Bounded, proc: str = "/proc", patience: float = 0.5) -> None:
        self._bounded = bounded
        self._proc = proc
        self._patience = patience
        self._known: dict[int, Process] = {}
        self._threads: set[int] = set()  # the kernel's own, of which big machines have thousands
        self._scans = 0
        self._roots: dict[str, str] = roots(self._read("1/cgroup"))

    def _read(self, name: str) -> str:
        """One read, without a buffer: this is done for every process in every round."""
        try:
            handle = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            return os.read(handle, _BYTES).decode("utf-8", "surrogateescape")
        except OSError:
            return ""  # it has ended since
        finally:
            os.close(handle)

    def scan(self) -> dict[int, Process]:
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        self._scans += 1
        self._threads = set() if self._scans % 30 == 0 else self._threads & pids
        uptime = float((self._read("uptime") or "0").split()[0])
        # Commands first: a process becomes somebody's, in a group and a cgroup, before it becomes a
        # training. Read the other way round, a training could be taken for whoever has just started it.
        commands = self._commands(pids - self._threads, uptime)
        found = {}
        for pid in pids - self._threads:
            process = self._look(pid, uptime, commands.get(pid))
            if process is not None:
                found[pid] = process
        self._known = found
        return dict(found)

    def _look(self, pid: int, uptime: float, words: tuple[str, ...] | None) -> Process | None:
        head, _, tail = self._read(f"{pid}/stat").rpartition(")")  # a name may hold brackets and blanks
        fields = tail.split()
        if not head or len(fields) < 20 or fields[0] in "ZX":  # a zombie works no more
            return None
        parent, group, start = int(fields[1]), int(fields[2]), int(fields[19])
        if int(fields[6]) & _KERNEL_THREAD:
            self._threads.add(pid)
            return None
        known = self._known.get(pid)
        if known is not None and known.start != start:
            known = None
        if known and self._old(known, uptime) and (known.parent, known.group) == (parent, group):
            return known if words is None else dataclasses.replace(known, words=words)
        uid = re.search(r"^Uid:\s+(\d+)", self._read(f"{pid}/status"), re.MULTILINE)
        if uid is None:
            return None
        member = membership(paths(self._read(f"{pid}/cgroup"), self._roots))
        mapped = self._read(f"{pid}/uid_map").split() not in ([], ["0", "0", "4294967295"])
        if words is None:
            words = known.words if known else ()
        return Process(pid, start, parent, group, int(uid.group(1)), mapped, member, words)

    @staticmethod
    def _old(one: Process, uptime: float) -> bool:
        return uptime - one.start / _HERTZ > _YOUNG_SECONDS

    def _commands(self, pids: set[int], uptime: float) -> dict[int, tuple[str, ...]]:
        """Of the young and of those that have none yet, all in one thread: the read waits for a process's
        memory map, which one that is stuck in a page fault holds."""
        known = {pid: one for pid, one in self._known.items() if one.words and self._old(one, uptime)}
        calls = [(pid, functools.partial(self._command, pid)) for pid in sorted(pids - set(known))]
        results = self._bounded.run(calls, self._patience, lambda hung, other: False)
        return {cast(int, pid): words for pid, words in results.items() if not isinstance(words, Exception)}

    def _command(self, pid: int) -> tuple[str, ...]:
        return command_words(self._read(f"{pid}/cmdline").split("\0")[:32])

    def boot_time(self) -> float:
        # A long file: on big machines the line before it counts thousands of interrupts.
        text = (durable.read(f"{self._proc}/stat", 1 << 24) or b"").decode("ascii", "replace")
        found = re.search(r"^btime (\d+)", text, re.MULTILINE)
        return float(found.group(1)) if found else 0.0


def started(process_start: int, boot_time: float) -> float:
    return boot_time + process_start / _HERTZ
