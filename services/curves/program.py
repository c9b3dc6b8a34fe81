"""curves: what a rack's rsyslog runs by omprog, to turn log lines into training curves.

    curves.pyz [CONFIG]            # /etc/sideband/rack/curves.json
    curves.pyz --check CONFIG      # says what is wrong with it, and nothing else

roles/rack/templates/relay.conf.j2 is how rsyslog calls it: confirmMessages, a queue of type Disk, one
instance. A queue in memory, disk-assisted or not, loses what it holds when rsyslog is killed.

A record is a line: the node's name, as its certificate says it, a blank, and what the node's reader sent
(services/tail/stream.py), a JSON object. Read are

    time                     RFC 3339 with microseconds and zone: the line's own, or when it was read
    job, tenant              the job that it is of, by cgroup and uid; a record without a job is skipped
    file, container, unit    its source
    stream, offset, cuts     its place: the same whenever it comes again, and no other's
    message                  the line, or several lines with line feeds between them

Records may come in any order, and again.

It answers "OK" when it is ready, and for each record once what follows from it is on disk, or nothing
follows. Any other answer means "not now": rsyslog keeps the record and sends it again. Transactions are not
understood: rsyslog's manual names a known issue with them under confirmMessages. SIGTERM and SIGKILL are the
same to it: whatever was confirmed is on disk.

The step goes into `sideband_train_step` at the same timestamp. Lines of one job on one node that fall into
the same millisecond are spread over the following ones in the order in which they come.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from services import configuration
from services.configuration import ConfigError
from services.curves import record
from services.curves.fold import Limits
from services.curves.push import Pusher, Sender
from services.curves.record import Line, Malformed, Record
from services.curves.rules import Rules, built_in
from services.curves.samples import Observation
from services.curves.store import Store

_CONFIG = "/etc/sideband/rack/curves.json"
_PATIENCE_SECONDS = 4.0  # for room in the queue; omprog's own patience is 10 s
_DRAIN_SECONDS = 3.0  # omprog kills after 5
_PAST = 946_684_800_000_000  # 2000: before it, a time was never set
_AHEAD = 3_600_000_000
_COUNTERS = ("malformed", "time", "label", "line_too_long", "error")


@dataclass(frozen=True)
class Config:
    url: str
    state_directory: str
    limits: Limits


def parse(value: Any) -> Config:
    if not isinstance(value, dict):
        raise ConfigError("no object")
    problems = []
    for unknown in sorted(set(value) - {"url", "state_directory", "limits"}):
        problems.append(f"{unknown}: not known")
    url, directory, given = value.get("url"), value.get("state_directory"), value.get("limits", {})
    if not isinstance(url, str) or not _sound(url):
        # Its query is a secret: what it was is not said.
        problems.append("url: http://ADDRESS:PORT/PATH?QUERY is needed (PATH and QUERY may be left out)")
    if not isinstance(directory, str) or not directory:
        problems.append(f"state_directory: a path is needed (got {directory!r})")
    known = {name: type(number) for name, number in dataclasses.asdict(Limits()).items()}
    limits: dict[str, Any] = {}
    for name, number in given.items() if isinstance(given, dict) else [("", given)]:
        if name not in known or isinstance(number, bool) or not isinstance(number, (int, float)):
            problems.append(
                f"limits.{name}: a number for one of {', '.join(known)} is needed (got {number!r})"
            )
        elif not 1 <= number <= 2**40:
            problems.append(f"limits.{name}: 1 to 2^40 (got {number!r})")
        else:
            limits[name] = known[name](number)
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(str(url), str(directory), Limits(**limits))


def _sound(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and bool(parts.port) and not parts.fragment
    except ValueError:
        return False


def observe(found: Record, line: Line, rules: Rules) -> Observation | None:
    reading = rules.read(line)
    if not reading:
        return None
    source = found.source if line.rank is None else f"{found.source}#{line.rank}"
    return Observation(
        time=found.microseconds,
        key=line.key,
        job=found.job,
        tenant=found.tenant,
        node=found.node,
        source=source,
        rank=line.rank,
        step=reading.step,
        values=reading.values,
        shown=reading.shown,
        events=reading.events,
    )


class Curves:
    """One record in, one answer out."""

    def __init__(self, store: Store, rules: Rules, patience: float = _PATIENCE_SECONDS) -> None:
        self._store = store
        self._rules = rules
        self._patience = patience
        self._said_error = False
        self.records = 0
        self.dropped: collections.Counter[str] = collections.Counter(dict.fromkeys(_COUNTERS, 0))

    def answer(self, raw: bytes | None) -> str:
        """For a record, or for one that was too long to be read."""
        self.records += 1
        try:
            observations = [] if raw is None else self._observations(raw)
            if raw is None:
                self.dropped["line_too_long"] += 1
        except Malformed as reason:
            self.dropped[str(reason)] += 1
            return "OK"
        except Exception as error:  # a record that trips a mistake of ours must not block all that come after
            self.dropped["error"] += 1
            if not self._said_error:
                self._said_error = True
                say(f"a record is passed over: {type(error).__name__}: {error}")
            return "OK"
        for observation in observations:
            if not self._room():
                return "queue full: vmagent takes nothing"
            self._store.add(observation)
        return "OK"

    def _observations(self, raw: bytes) -> list[Observation]:
        found = record.parse(raw)
        if found is None:
            return []
        if not _PAST <= found.microseconds <= time.time_ns() // 1000 + _AHEAD:
            raise Malformed("time")
        observed = (observe(found, line, self._rules) for line in record.lines(found))
        return [one for one in observed if one is not None]

    def _room(self) -> bool:
        with self._store.changed:
            return self._store.changed.wait_for(lambda: not self._store.full, self._patience)

    def own(self) -> dict[str, dict[str, int]]:
        """What the program says of itself."""
        fold = self._store.fold
        with self._store.changed:
            dropped = {**fold.dropped, **self.dropped}
            skipped = dict(fold.skipped)
            waiting = self._store.pending_bytes
        return {
            "dropped_total": dropped,
            "skipped_total": skipped,
            "records_total": {"": self.records},
            "samples_total": {"": self._store.samples},
            "jobs": {"": len(fold.jobs)},
            "queue_bytes": {"": waiting},
        }


def say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def read_lines(stream: BinaryIO, limit: int) -> Iterator[bytes | None]:
    """Whole lines, None for each that is longer than the limit. What has no end yet is no line."""
    while True:
        raw = stream.readline(limit + 1)
        if raw.endswith(b"\n"):
            yield raw[:-1]
        elif len(raw) <= limit:
            return
        else:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(limit)
            if not raw:
                return
            yield None


def serve(config: Config, source: BinaryIO, target: BinaryIO) -> int:
    try:
        lock = open(os.path.join(config.state_directory, "lock"), "w", encoding="ascii")  # noqa: SIM115  # held until the end
        _lock(lock.fileno())
        store = Store(config.state_directory, config.limits, say)
        curves = Curves(store, built_in())
    except OSError as error:
        say(f"error: {error}")
        return 1
    pusher = Pusher(store, Sender(config.url), curves.own, say)
    pusher.start()
    try:
        _write(target, "OK")
        for raw in read_lines(source, config.limits.line_bytes):
            _write(target, curves.answer(raw))
    except OSError as error:
        # What is on disk is all that is known now: rsyslog starts the program anew and sends the rest again.
        say(f"error: {error}")
        return 1
    pusher.finish(_DRAIN_SECONDS)
    return 0


def _lock(descriptor: int) -> None:
    """Alone in the directory. The one before may still be sending what it has."""
    deadline = time.monotonic() + _DRAIN_SECONDS + 2
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BlockingIOError("the state directory is in use by another process") from None
            time.sleep(0.1)


def _write(target: BinaryIO, text: str) -> None:
    target.write(text.encode() + b"\n")
    target.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="curves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", default=_CONFIG)
    parser.add_argument("--check", action="store_true", help="check the configuration, and nothing else")
    options = parser.parse_args(arguments)
    try:
        config = configuration.load(options.config, parse)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        return 0
    return serve(config, sys.stdin.buffer, sys.stdout.buffer)
