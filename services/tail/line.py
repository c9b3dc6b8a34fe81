"""Bytes of a file, or an entry of the journal, as lines that know their place."""

from __future__ import annotations

from dataclasses import dataclass, field

LINE_BYTES = 32_768  # a longer one is cut into parts; all hops take eight times as much


@dataclass(frozen=True)
class Line:
    """One line. `at` and `end` are its place in its stream: bytes of a file, numbers of the journal's
    entries."""

    at: int
    end: int
    text: str
    time: int = 0  # microseconds since 1970, where something beside the text tells it; else 0
    severity: str = ""
    channel: str = ""  # lines of another channel are never joined: stdout and stderr, units, processes
    part: bool = False  # it goes on with the next one: cut for its length, or read before its end was written
    labels: dict[str, str] = field(default_factory=dict)


def decode(raw: bytes) -> str:
    """What is no UTF-8 becomes a replacement sign; NULs are holes that a truncation left."""
    return raw.rstrip(b"\r\n").replace(b"\0", b"").decode("utf-8", "replace")


def split_point(raw: bytes, most: int) -> int:
    """Where to cut so that no character is cut in two."""
    cut = min(most, len(raw))
    if cut == len(raw):
        return cut
    for back in range(4):
        if raw[cut - back] & 0xC0 != 0x80:
            return cut - back
    return cut


class Splitter:
    """Whole lines out of bytes as they come. What has no end yet is kept."""

    def __init__(self, at: int, most: int = LINE_BYTES) -> None:
        self.at = at  # of the first byte that is kept
        self._most = most
        self._rest = b""
        self._inside = False

    @property
    def kept(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[Line]:
        buffer = self._rest + data
        found, start = [], 0
        while True:
            end = buffer.find(b"\n", start)
            stop = len(buffer) if end < 0 else end
            while stop - start > self._most:
                cut = split_point(buffer[start : start + self._most + 4], self._most)
                found.append(self._made(buffer[start : start + cut], part=True))
                start += cut
            if end < 0:
                break
            found.append(self._made(buffer[start : end + 1], part=False))
            start = end + 1
        self._rest = buffer[start:]
        return found

    def flush(self) -> list[Line]:
        """The line that has no end yet, as it stands."""
        raw, self._rest = self._rest, b""
        return [self._made(raw, part=True)] if raw else []

    def _made(self, raw: bytes, part: bool) -> Line:
        line = Line(self.at, self.at + len(raw), decode(raw), part=part)
        self.at += len(raw)
        return line
