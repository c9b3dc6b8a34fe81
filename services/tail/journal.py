"""The journal, through journalctl: its cursor names every entry, by a number that rises by one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from services.tail.line import LINE_BYTES, Line
from services.tail.moment import SEVERITIES
from services.tail.stream import Record, Rule, Stream
from services.tail.wanted import Jobs

_FIELDS = (
    "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_UID,_PID,_COMM,_SYSTEMD_UNIT,_SYSTEMD_USER_UNIT,_TRANSPORT,"
    "CONTAINER_NAME,CONTAINER_ID"
)
_SEQUENCE = re.compile(r"\bs=([0-9a-f]+);i=([0-9a-f]+)")
_READ_BYTES = 262_144
_ENTRY_BYTES = 4 << 20
_PARTS = 1024  # places of one entry: a long message is several lines


class Journal:
    """A child process that follows the journal, and a stream for each of the journal's own numberings."""

    def __init__(
        self, node: str, jobs: Jobs, tenant_of: Callable[[int], str | None],
        choose: Callable[[dict[str, str]], Rule],
        program: str = "journalctl", directory: str = "",
    ) -> None:  # fmt: skip
        self._node, self._jobs, self._tenant_of, self._choose = node, jobs, tenant_of, choose
        self._command = [
            program, "--output=json", f"--output-fields={_FIELDS}", "--all", "--quiet", "--follow",
            "--no-tail",
            *([f"--directory={directory}"] if directory else []),
        ]  # fmt: skip
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self.streams: dict[str, Stream] = {}
        self._sent: deque[tuple[Record, str]] = deque()
        self._marks: dict[str, dict[int, str]] = {}  # the cursor of the entry that ends at a place
        self.cursor = ""  # of the last entry that need not be read again
        self._read_cursor = ""
        self.covered: dict[str, int] = {}
        self.restarts = -1
        self._not_before = 0.0

    # -- across a restart ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "covered": self.covered}

    def resume(self, value: dict[str, Any]) -> None:
        self.cursor = self._read_cursor = str(value["cursor"])
        self.covered = {str(name): int(number) for name, number in value["covered"].items()}

    # -- the child ----------------------------------------------------------------------------------------

    @property
    def descriptor(self) -> int | None:
        return self._child.stdout.fileno() if self._child and self._child.stdout else None

    def start(self, clock: float) -> None:
        """Started where it is not running."""
        if self._child is not None or clock < self._not_before:
            return
        self._not_before = clock + 5.0
        # A first start reads no history: what was logged before sideband came is not its matter.
        where = [f"--after-cursor={self._read_cursor}"] if self._read_cursor else ["--lines=0"]
        command = [word for word in self._command if word != "--no-tail" or self._read_cursor]
        try:
            self._child = subprocess.Popen(
                [*command, *where],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._rest = b""
        self.restarts += 1

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(OSError):
                child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()

    # -- reading ------------------------------------------------------------------------------------------

    def read(self, clock: float) -> list[Record]:
        ended = False
        data = b""
        if self._child is not None and self._child.stdout is not None:
            try:
                data = os.read(self._child.stdout.fileno(), _READ_BYTES)
                ended = not data
            except BlockingIOError:
                pass
        made: list[Record] = []
        if data:
            *whole, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _ENTRY_BYTES:
                self._rest = b""
            for raw in whole:
                made += self._entry(raw, clock)
        for name, stream in self.streams.items():
            made += self._note(stream.flush(clock), name)
        if not self._sent and not any(stream.held for stream in self.streams.values()):
            self.cursor = self._read_cursor
            self.covered = {name: stream.covered for name, stream in self.streams.items()} or self.covered
            self._marks.clear()
        if ended:
            self.stop()
        return made

    def _entry(self, raw: bytes, clock: float) -> list[Record]:
        try:
            value = json.loads(raw)
            cursor = str(value["__CURSOR"])
            found = _SEQUENCE.search(cursor)
            assert found is not None
        except (ValueError, KeyError, TypeError, RecursionError, AssertionError):
            return []
        name, number = f"journal-{found.group(1)}", int(found.group(2), 16) * _PARTS
        self._read_cursor = cursor
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(name, {"source": "journal"}, self._node, own_times=False)
            stream.choose = self._choose
            stream.covered = stream.done = self.covered.get(name, number)
        self._marks.setdefault(name, {})[number + _PARTS] = cursor
        return self._note(stream.feed(self._lines(value, number), clock), name)

    def _note(self, made: Sequence[Record], name: str) -> list[Record]:
        self._sent.extend((record, name) for record in made)
        return list(made)

    def taken(self, record: Record) -> None:
        """In the order in which they were made."""
        _, name = self._sent.popleft()
        marks = self._marks.get(name, {})
        cursor = marks.get(record.commit)
        if cursor:
            self.cursor, self.covered[name] = cursor, record.commit
            for end in [end for end in marks if end <= record.commit]:
                del marks[end]

    def _lines(self, value: dict[str, Any], number: int) -> list[Line]:
        def text(name: str) -> str:
            one = value.get(name)
            if isinstance(one, list):  # bytes that are no UTF-8; or a field that stands there twice
                if one and all(isinstance(each, int) for each in one):
                    return bytes(each & 255 for each in one).decode("utf-8", "replace")
                return str(one[0]) if one and isinstance(one[0], str) else ""
            return one if isinstance(one, str) else ""

        priority, uid, pid = text("PRIORITY"), text("_UID"), text("_PID")
        unit = text("_SYSTEMD_USER_UNIT") or text("_SYSTEMD_UNIT")
        labels = {"unit": unit, "program": text("SYSLOG_IDENTIFIER") or text("_COMM")}
        container = text("CONTAINER_ID")[:12]
        owner = self._jobs.by_pid.get(int(pid)) if pid.isdigit() else None
        if container:
            labels.update(source="container", container=container)
            owner = self._jobs.by_name.get(f"container-{container}") or owner
        if text("_TRANSPORT") == "kernel":
            labels["unit"] = "kernel"
        if owner is not None:
            labels.update(owner.labels())
        elif uid.isdigit():
            labels.update(owner=uid, tenant=self._tenant_of(int(uid)) or "")
        stdout = text("_TRANSPORT") == "stdout"
        stamp = value.get("__REALTIME_TIMESTAMP", "")
        first = Line(
            number,
            number + _PARTS,
            "",
            time=int(stamp) if str(stamp).isdigit() else 0,
            severity=SEVERITIES[int(priority)] if priority.isdigit() and int(priority) < 8 else "info",
            # Only what a program prints line by line is joined; other entries are whole.
            channel=f"{pid}/{unit}" if stdout else f"#{number}",
            labels={key: one for key, one in labels.items() if one},
        )
        message = text("MESSAGE").replace("\0", "")
        pieces = [message[at : at + LINE_BYTES] for at in range(0, len(message), LINE_BYTES)][:_PARTS] or [""]
        last = len(pieces) - 1
        return [
            replace(
                first,
                at=number + at,
                text=piece,
                part=at < last,
                end=number + (at + 1 if at < last else _PARTS),
            )
            for at, piece in enumerate(pieces)
        ]
