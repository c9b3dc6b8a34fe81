"""What has been confirmed, on disk: a journal of observations and, now and then, a snapshot of what follows.

An observation is written and synced before its line is confirmed, and its samples are computed from it by a
pure fold. So after a kill or a power cut at any moment, reading the snapshot and the journal again gives
the same samples with the same times; those that vmagent may not have are sent again, which changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from services import durable
from services.curves.fold import Fold, Limits
from services.curves.samples import Observation

_JOURNAL_BYTES = 4 << 20
_SNAPSHOT_BYTES = 1 << 30
_DIGITS = 20


@dataclass(frozen=True)
class Parcel:
    number: int  # of the observation; rises, and is sent in this order
    text: str
    samples: int


class Store:
    def __init__(
        self, directory: str, limits: Limits, say: Callable[[str], None], journal_bytes: int = _JOURNAL_BYTES
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._say = say
        self._journal_bytes = journal_bytes
        self.changed = threading.Condition()
        self.fold = Fold(limits)
        self.pending: deque[Parcel] = deque()
        self.pending_bytes = 0
        self.samples = 0
        self._number = 0
        self._sent = self._open("sent", os.O_RDWR)
        self._journal = self._open("journal.jsonl", os.O_RDWR | os.O_APPEND)
        self._load()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _open(self, name: str, flags: int) -> int:
        return os.open(self._path(name), flags | os.O_CREAT | os.O_CLOEXEC, 0o600)

    # -- reading back -------------------------------------------------------------------------------------

    def _load(self) -> None:
        sent = os.pread(self._sent, _DIGITS, 0).strip()
        already = int(sent) if sent.isdigit() else 0
        self._load_snapshot()
        first = self._number
        self._load_journal(first)
        # What has been sent is never numbered again, whatever became of the files.
        self._number = max(self._number, already)
        while self.pending and self.pending[0].number <= already:
            self.pending_bytes -= len(self.pending.popleft().text)

    def _load_snapshot(self) -> None:
        path = self._path("snapshot.json")
        if not os.path.exists(path):
            return
        raw = durable.read(path, _SNAPSHOT_BYTES)
        try:
            value = json.loads(raw or b"")
            parcels = [
                Parcel(int(number), str(text), int(samples)) for number, text, samples in value["pending"]
            ]
            number = int(value["number"])
            self.fold.restore(value["state"])
        except (ValueError, KeyError, TypeError, IndexError, RecursionError, AttributeError) as error:
            self._set_aside("snapshot.json", f"cannot be read ({error})")
            return
        self._number = number
        self._queue(parcels)

    def _load_journal(self, first: int) -> None:
        size = os.fstat(self._journal).st_size
        raw = os.pread(self._journal, size, 0) if size else b""
        good = 0
        for line in raw.splitlines(keepends=True):
            try:
                if not line.endswith(b"\n"):
                    break
                number, value = json.loads(line)
                observation = Observation.load(value)
            except (ValueError, KeyError, TypeError, AttributeError):
                break
            good += len(line)
            if number > first:
                self._number = number
                self._queue(self._feed(observation))
        if good == len(raw):
            return
        if b"\n" in raw[good:]:
            self._set_aside("journal.jsonl", f"is damaged at byte {good}", raw)
        # A last line that was cut is one that nobody confirmed: rsyslog sends it again.
        os.ftruncate(self._journal, good)

    def _set_aside(self, name: str, reason: str, raw: bytes | None = None) -> None:
        """Keep for a person what cannot be read, say so, and go on."""
        self.fold.dropped["state_damaged"] += 1
        path = self._path(name)
        self._say(f"{path}: {reason}; kept as {name}.damaged, what is in it is forgotten")
        if raw is None:
            os.replace(path, f"{path}.damaged")
        else:
            durable.write(f"{path}.damaged", raw, 0o600)

    # -- taking -------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.pending_bytes >= self._limits.queue_bytes

    def add(self, observation: Observation) -> None:
        """On disk when it returns. An error here ends the program: only what is on disk is then known."""
        with self.changed:
            if self.fold.replayed(observation):
                return
        self._number += 1
        data = json.dumps([self._number, observation.dump()], separators=(",", ":")).encode() + b"\n"
        view = memoryview(data)
        while view:
            view = view[os.write(self._journal, view) :]
        with self.changed:
            parcels = self._feed(observation)
        if parcels:  # other lines change nothing that a power cut could take from anybody
            os.fdatasync(self._journal)
            with self.changed:
                self._queue(parcels)
                self.changed.notify_all()
        if os.fstat(self._journal).st_size > self._journal_bytes:
            self._snapshot()

    def _feed(self, observation: Observation) -> list[Parcel]:
        samples = self.fold.feed(observation)
        self.samples += len(samples)
        text = "".join(one.text() for one in samples)
        return [Parcel(self._number, text, len(samples))] if samples else []

    def _queue(self, parcels: list[Parcel]) -> None:
        self.pending.extend(parcels)
        self.pending_bytes += sum(len(parcel.text) for parcel in parcels)

    def _snapshot(self) -> None:
        with self.changed:
            pending = [[parcel.number, parcel.text, parcel.samples] for parcel in self.pending]
            value = {"number": self._number, "state": self.fold.dump(), "pending": pending}
        durable.write(self._path("snapshot.json"), json.dumps(value, separators=(",", ":")).encode(), 0o600)
        # A kill before this leaves entries that the snapshot has already: they are passed over by number.
        os.ftruncate(self._journal, 0)
        os.fsync(self._journal)

    # -- sending ------------------------------------------------------------------------------------------

    def batch(self, most_bytes: int) -> list[Parcel]:
        with self.changed:
            parcels: list[Parcel] = []
            size = 0
            for parcel in self.pending:
                if parcels and size + len(parcel.text) > most_bytes:
                    break
                parcels.append(parcel)
                size += len(parcel.text)
            return parcels

    def done(self, parcels: list[Parcel]) -> None:
        with self.changed:
            for parcel in parcels:
                self.pending_bytes -= len(parcel.text)
                self.pending.popleft()
            self.changed.notify_all()
        # Not synced: at worst these samples go out once more, and are the same.
        with contextlib.suppress(OSError):
            os.pwrite(self._sent, str(parcels[-1].number).rjust(_DIGITS).encode(), 0)

    def close(self) -> None:
        os.close(self._journal)
        os.close(self._sent)
