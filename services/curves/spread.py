"""Which lines have come before, and what millisecond a sample gets. Bounded, and the oldest goes first.

Nothing here counts on order: queues that are part in memory and part on disk hand lines out as they like,
thousands apart.
"""

from __future__ import annotations

from typing import Any

LINES = 65_536  # of all jobs: what rsyslog may send again, or a node may read again
TAKEN = 2_048  # of one job on one node


class Seen:
    """Lines that have been taken, by their key."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def knows(self, key: str) -> bool:
        return key in self._lines

    def add(self, key: str) -> None:
        self._lines.pop(key, None)
        self._lines[key] = None
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]

    def dump(self) -> list[str]:
        return list(self._lines)

    @classmethod
    def load(cls, value: list[Any]) -> Seen:
        seen = cls()
        seen._lines = dict.fromkeys(map(str, value))
        return seen


class Spread:
    """Milliseconds that are taken in the series of one job on one node: the next free one is given."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}  # for each one that is taken, where to look next

    def take(self, millisecond: int) -> int:
        free, passed = millisecond, []
        while free in self._next:
            passed.append(free)
            free = self._next[free]
        for one in passed:  # so that a burst does not walk its whole length for each of its lines
            self._next[one] = free + 1
        self._next[free] = free + 1
        if len(self._next) > TAKEN:
            del self._next[next(iter(self._next))]
        return free

    def dump(self) -> list[list[int]]:
        return [[one, after] for one, after in self._next.items()]

    @classmethod
    def load(cls, value: list[Any]) -> Spread:
        spread = cls()
        spread._next = {int(one): int(after) for one, after in value}
        return spread
