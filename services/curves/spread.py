"""Times of lines: which have come before, and what millisecond a sample gets. Bounded, and exact.

Both remember the newest few and a floor below which everything counts as had. So a suffix of any length may
come again and changes nothing, and a clock that steps back by less than what is remembered loses nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

REMEMBERED = 64


class Seen:
    """The lines of one source that have been taken, by their time and key."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []
        self._floor: tuple[int, str] = (-1, "")

    def __contains__(self, line: tuple[int, str]) -> bool:
        if line <= self._floor:
            return True
        place = bisect_left(self._lines, line)
        return place < len(self._lines) and self._lines[place] == line

    def add(self, line: tuple[int, str]) -> None:
        insort(self._lines, line)
        if len(self._lines) > REMEMBERED:
            self._floor = max(self._floor, self._lines.pop(0))

    def nothing_before(self, time: int) -> None:
        self._floor = max(self._floor, (time - 1, "~"))  # keys are hexadecimal: all of them sort before

    def dump(self) -> list[Any]:
        return [list(self._floor), [list(line) for line in self._lines]]

    @classmethod
    def load(cls, value: list[Any]) -> Seen:
        seen = cls()
        seen._floor = (int(value[0][0]), str(value[0][1]))
        seen._lines = [(int(time), str(key)) for time, key in value[1]]
        return seen


class Spread:
    """Milliseconds that are taken in the series of one job on one node: the next free one is given."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._floor = -1

    def take(self, millisecond: int) -> int:
        wanted = max(millisecond, self._floor + 1)
        start = bisect_left(self._taken, wanted)
        # From `start` on, entries that follow one another without a gap: entry minus index stays the same.
        low, high = start, len(self._taken)
        while low < high:
            middle = (low + high) // 2
            if self._taken[middle] - middle == wanted - start:
                low = middle + 1
            else:
                high = middle
        free = wanted + low - start
        self._taken.insert(low, free)
        if len(self._taken) > REMEMBERED:
            self._floor = self._taken.pop(0)
        return free

    def dump(self) -> list[Any]:
        return [self._floor, self._taken]

    @classmethod
    def load(cls, value: list[Any]) -> Spread:
        spread = cls()
        spread._floor = int(value[0])
        spread._taken = [int(entry) for entry in value[1]]
        return spread
