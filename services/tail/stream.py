"""From lines to records. A record tells its place in its stream, so that whoever gets it twice knows.

`from` and `to` of a stream's records follow on each other without a gap, what was left out on purpose
included: a
store that has seen [0, 80) and [120, 200) knows what it lacks. `cuts` are the lengths of a record's lines.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.tail import moment
from services.tail.join import Joiner
from services.tail.line import LINE_BYTES, Line

RECORD_BYTES = 2 * LINE_BYTES
RECORD_LINES = 500
HOLD_SECONDS = 1.0  # a line may go on with the next one
_HEAD = "<134>1 {time} {node} sideband - - - "


@dataclass(frozen=True)
class Record:
    text: bytes
    commit: int  # what lies before it in its stream need not be read again, once the record is taken


@dataclass(frozen=True)
class Rule:
    """Volume control: of what it fits, only `least` and graver is kept, and of that one in `one_of`."""

    source: str = ""
    unit: str = ""
    path: str = ""
    least: str = "debug"
    one_of: int = 1

    def keeps(self, severity: str, stream: str, at: int) -> bool:
        if moment.SEVERITIES.index(severity) > moment.SEVERITIES.index(self.least):
            return False
        # By its place: a line that is read again is judged as it was.
        return self.one_of <= 1 or zlib.crc32(f"{stream}/{at}".encode()) % self.one_of == 0


@dataclass
class Stream:
    name: str
    labels: dict[str, str]
    node: str
    covered: int = 0  # up to here records have been made
    done: int = 0  # up to here lines have been made into records, or left out
    own_times: bool = True  # whether a line's text is asked for its time
    joins: bool = True
    choose: Callable[[dict[str, str]], Rule] = lambda labels: Rule()
    held: list[Line] = field(default_factory=list)
    held_bytes: int = 0
    held_since: float = 0.0
    left_out: int = 0
    records: int = 0
    _joiner: Joiner = field(default_factory=Joiner)

    @property
    def commit(self) -> int:
        """What lies before it need not be read again, once all records that were made are taken."""
        return self.held[0].at if self.held else self.done

    def feed(self, lines: Sequence[Line], clock: float) -> list[Record]:
        made: list[Record] = []
        for line in lines:
            if self.held and not self._goes_on(line):
                made += self._emit()
            if not self.held:
                self._joiner.reset()
                self._joiner.continues(line.text)
            self.held.append(line)
            self.held_bytes += len(line.text)
            self.held_since = clock
        return made

    def _goes_on(self, line: Line) -> bool:
        last = self.held[-1]
        if (
            not self.joins
            or line.channel != last.channel
            or line.labels != last.labels
            or self.held_bytes + len(line.text) > RECORD_BYTES
            or len(self.held) >= RECORD_LINES
        ):
            return False
        return last.part or self._joiner.continues(line.text)

    def flush(self, clock: float, patience: float = HOLD_SECONDS) -> list[Record]:
        return self._emit() if self.held and clock - self.held_since >= patience else []

    def _emit(self) -> list[Record]:
        lines, self.held, self.held_bytes = self.held, [], 0
        text = _joined(lines)
        start, end = self.covered, lines[-1].end
        self.done = end
        read = moment.now()
        severity = lines[0].severity or moment.severity(text)
        labels = {**self.labels, **lines[0].labels}
        if not text.strip() or not self.choose(labels).keeps(severity, self.name, lines[0].at):
            self.left_out += bool(text.strip())
            return []  # the next record covers it
        own = lines[0].time or (moment.own_time(text, read) if self.own_times else 0)
        value: dict[str, Any] = {
            "stream": self.name,
            "from": start,
            "to": end,
            "offset": lines[0].at,
            "time": moment_text(own or read),
            "clock": "line" if own else "read",
            "severity": severity,
            **labels,
            "message": text,
        }
        if len(lines) > 1:
            value["cuts"] = [line.end - line.at for line in lines]
        if lines[-1].part:
            value["part"] = "more"
        self.covered = end
        self.records += 1
        head = _HEAD.format(time=moment_text(read), node=self.node)
        return [Record((head + json.dumps(value, ensure_ascii=False)).encode("utf-8", "replace"), end)]


def _joined(lines: list[Line]) -> str:
    text = lines[0].text
    for before, line in zip(lines, lines[1:]):
        text += line.text if before.part else "\n" + line.text
    return text


def moment_text(microseconds: int) -> str:
    """RFC 3339, UTC."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:06d}Z"
