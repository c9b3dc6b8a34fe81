"""Which places of which streams have been taken. Places follow on each other, so a stream is a few spans."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterable, Sequence
from typing import Any

Span = tuple[int, int]
STREAMS = 200_000
SPANS = 256  # of one stream: beyond it the eldest hole counts as lost, and is closed


class Spans:
    """Sorted spans that do not touch."""

    def __init__(self, spans: Iterable[Sequence[int]] = ()) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in spans:
            self.add(start, end)

    def covers(self, start: int, end: int) -> bool:
        at = bisect.bisect_right(self.starts, start) - 1
        return at >= 0 and self.ends[at] >= end

    def add(self, start: int, end: int) -> None:
        first = bisect.bisect_left(self.ends, start)
        last = bisect.bisect_right(self.starts, end)
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self.starts[first:last] = [start]
        self.ends[first:last] = [end]

    def close_eldest(self) -> None:
        del self.starts[1], self.ends[0]

    @property
    def holes(self) -> int:
        return max(0, len(self.starts) - 1)

    def dump(self) -> list[Span]:
        return list(zip(self.starts, self.ends))


class Seen:
    """By node and stream; streams that nothing has come of for the longest time go first."""

    def __init__(self, most: int = STREAMS) -> None:
        self._most = most
        self._streams: collections.OrderedDict[tuple[str, str], Spans] = collections.OrderedDict()

    def fresh(self, node: str, stream: str, places: Sequence[Span]) -> list[int]:
        """Which of these lines, by their number, have not been taken yet."""
        spans = self._streams.get((node, stream))
        if spans is None:
            return list(range(len(places)))
        return [at for at, (start, end) in enumerate(places) if not spans.covers(start, end)]

    def take(self, node: str, stream: str, start: int, end: int) -> None:
        key = (node, stream)
        spans = self._streams.get(key)
        if spans is None:
            spans = self._streams[key] = Spans()
        else:
            self._streams.move_to_end(key)
        spans.add(start, end)
        if len(spans.starts) > SPANS:
            spans.close_eldest()
        while len(self._streams) > self._most:
            self._streams.popitem(last=False)

    @property
    def holes(self) -> int:
        return sum(spans.holes for spans in self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def dump(self) -> list[Any]:
        return [[node, stream, spans.dump()] for (node, stream), spans in self._streams.items()]

    def load(self, value: Iterable[Any]) -> None:
        for node, stream, spans in value:
            self._streams[(str(node), str(stream))] = Spans([(int(a), int(b)) for a, b in spans])
