"""The logs process of a training node: reads, and hands over to the private rsyslog beside it.

    nodeagent logs [--config FILE] [--check [FILE]]

It may read any file and opens no connection but that to rsyslog on loopback; rsyslog may read no user's file
and speaks to the rack. A place in a file is forgotten only when rsyslog has the record on disk: when rsyslog
takes nothing, nothing is read, and the files themselves are the queue.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from services import configuration, durable, relp
from services.configuration import ConfigError
from services.nodeagent import exposition, identity, settings, supervisor
from services.nodeagent.exposition import Family
from services.nodeagent.settings import Field
from services.tail import moment, wanted
from services.tail.files import Files
from services.tail.follow import Follower
from services.tail.journal import Journal
from services.tail.stream import Record, Rule

_RULE = {"source", "unit", "path", "least", "one_of"}
_STATE_BYTES = 64 << 20
_WINDOW = 256
_WINDOW_BYTES = 4 << 20
_ROUND_SECONDS = 0.25
_OLD_SECONDS = 60.0


def _rules(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and not set(one) - _RULE
        and one.get("least", "debug") in moment.SEVERITIES
        and isinstance(one.get("one_of", 1), int)
        for one in value
    )


def _paths(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and str(one.get("path", "")).startswith("/")
        and not set(one) - {"path", "tenant"}
        for one in value
    )


FIELDS = {
    "node": Field(settings.Kind("a name", lambda value: isinstance(value, str) and bool(value)), "node"),
    "address": Field(settings.Kind("an address", lambda value: isinstance(value, str)), "127.0.0.1"),
    "port": Field(settings.count(1, 65535), 8535),
    "ca": Field(settings.PATH_OR_NONE, "/etc/sideband/node/ca.crt"),
    "certificate": Field(settings.PATH_OR_NONE, "/etc/sideband/node/host.crt"),
    "key": Field(settings.PATH_OR_NONE, "/etc/sideband/node/host.key"),
    "state_directory": Field(settings.PATH, "/var/lib/sideband/logs/state"),
    "spool_directory": Field(settings.PATH_OR_NONE, "/var/lib/sideband/logs/spool"),
    "output": Field(settings.PATH_OR_NONE, "/run/sideband/textfile/logs/logs.prom"),
    "jobs": Field(settings.PATH, "/run/sideband/job/jobs.json"),
    "journal": Field(settings.Kind("true or false", lambda value: isinstance(value, bool)), True),
    "containers": Field(settings.Kind("true or false", lambda value: isinstance(value, bool)), True),
    "paths": Field(settings.Kind("a list of {path, tenant}", _paths), []),
    "rules": Field(settings.Kind("a list of {source, unit, path, least, one_of}", _rules), []),
    "tenants": Field(settings.Kind("an object", lambda value: isinstance(value, dict)), {}),
    "bytes_per_second": Field(settings.count(1024, 1 << 30), 2_097_152),
}


class Choice:
    """The first rule that fits a record's labels; whole names, with * at the end for any ending."""

    def __init__(self, rules: Sequence[dict[str, Any]]) -> None:
        self._rules = [Rule(**one) for one in rules]

    def __call__(self, labels: dict[str, str]) -> Rule:
        for rule in self._rules:
            if (
                (not rule.source or rule.source == labels.get("source"))
                and _fits(rule.unit, labels.get("unit", ""))
                and _fits(rule.path, labels.get("file", ""))
            ):
                return rule
        return Rule()


def _fits(pattern: str, text: str) -> bool:
    if not pattern:
        return True
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


class Program:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self._state = os.path.join(config["state_directory"], "state.json")
        self._old = os.path.join(config["state_directory"], "state.old.json")
        self._boot = (durable.read("/proc/sys/kernel/random/boot_id", 64) or b"").decode().strip()
        tenants = identity.tenants(config["tenants"])
        self._tenants = tenants
        choice = Choice(config["rules"])
        self.jobs = wanted.Jobs(config["jobs"])
        self.files = Files(config["node"], choice)
        self.journal = (
            Journal(config["node"], self.jobs, tenants.of_uid, choice) if config["journal"] else None
        )
        self.sender = relp.Sender(
            (config["address"], config["port"]), self._context(), config["node"], window=_WINDOW
        )
        self._queue: deque[tuple[Follower | Journal, Record]] = deque()
        self._queue_bytes = 0
        self._allowance = float(config["bytes_per_second"])
        self._earned = time.monotonic()
        self._due = dict.fromkeys(("want", "state", "tell"), 0.0)
        self._old_due = time.monotonic() + _OLD_SECONDS
        self._listening: int | None = None
        self._said = ""
        self._last_state = b""
        self.taken = 0
        self.damaged = 0
        self._load()

    def _context(self) -> ssl.SSLContext | None:
        if not self.config["ca"]:
            return None
        context = ssl.create_default_context(cafile=self.config["ca"])
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.config["certificate"], self.config["key"])
        return context

    # -- state --------------------------------------------------------------------------------------------

    def _load(self) -> None:
        for path in (self._state, self._old):
            raw = durable.read(path, _STATE_BYTES)
            if raw is None:
                continue
            try:
                value = json.loads(raw)
                # After a crash of the machine the newest state may be ahead of what rsyslog had on disk.
                if path == self._state and value["boot"] != self._boot and os.path.exists(self._old):
                    continue
                self.files.remember(value["files"])
                if self.journal is not None and value["journal"]:
                    self.journal.resume(value["journal"])
            except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as problem:
                self.damaged += 1
                self.say(f"{path}: damaged ({problem!r}); kept as {path}.damaged")
                durable.write(f"{path}.damaged", raw, 0o600)
                continue
            break
        # What came and was rotated while nobody looked is as new as what comes now.
        with contextlib.suppress(OSError):
            self.files.since = os.stat(self._state).st_mtime_ns
        self.files.finish_old(time.monotonic())
        self.save(time.monotonic())

    def save(self, clock: float) -> None:
        body = {
            "files": self.files.entries(),
            "journal": self.journal.state() if self.journal else None,
            "boot": self._boot,
        }
        data = json.dumps(body, separators=(",", ":")).encode()
        if data == self._last_state:
            return
        self._last_state = data
        # Whole, but not synced every second: a training node's disk has other things to do.
        candidate = self._state + ".new"
        with open(candidate, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(data)
        if clock >= self._old_due:
            self._old_due = clock + _OLD_SECONDS
            with contextlib.suppress(FileNotFoundError):
                durable.write(self._old, durable.read(self._state, _STATE_BYTES) or data, 0o600)
        os.replace(candidate, self._state)

    def say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(text, file=sys.stderr, flush=True)

    # -- one round ----------------------------------------------------------------------------------------

    def step(self, patience: float = _ROUND_SECONDS) -> None:
        clock = time.monotonic()
        if clock >= self._due["want"]:
            self._due["want"] = clock + random.uniform(0.6, 1.2)  # in step with nobody else
            self._want(clock)
        else:
            self.files.look(clock)
        if self.files.unsaved:
            # Killed before this, and read again, its lines would be another stream's, and be stored twice.
            self.files.unsaved = False
            self.save(clock)
        room = self._room() if self._afford(clock) else 0
        self._listen(bool(room))
        busy = bool(room) and self._read(clock, room)
        for _ in range(self.sender.pump(0 if busy else patience)):
            source, record = self._queue.popleft()
            self._queue_bytes -= len(record.text)
            source.taken(record)
            self.taken += 1
        if clock >= self._due["state"]:
            self._due["state"] = clock + 1.0
            self.files.tidy(clock)
            self.save(clock)
        if clock >= self._due["tell"]:
            self._due["tell"] = clock + 10.0
            self._tell()

    def _want(self, clock: float) -> None:
        self.jobs.refresh()
        more = wanted.containers(self.jobs, self._tenants) if self.config["containers"] else ()
        self.files.want(itertools.chain(self.jobs.files, more, wanted.listed(self.config["paths"])), clock)

    def _room(self) -> int:
        return self.sender.room if self._queue_bytes < _WINDOW_BYTES else 0

    def _afford(self, clock: float) -> bool:
        """Flow control: a burst is read as fast as the contract allows, and lost nowhere."""
        rate = float(self.config["bytes_per_second"])
        self._allowance = min(rate, self._allowance + (clock - self._earned) * rate)
        self._earned = clock
        return self._allowance >= 1

    def _listen(self, wanted_now: bool) -> None:
        """The journal ends a wait only while it may be read."""
        descriptor = self.journal.descriptor if self.journal is not None and wanted_now else None
        if descriptor != self._listening:
            if self._listening is not None:
                self.sender.unwatch(self._listening)
            if descriptor is not None:
                self.sender.watch(descriptor)
            self._listening = descriptor

    def _read(self, clock: float, room: int) -> bool:
        """Whether there was anything."""
        made: list[tuple[Follower | Journal, Record]] = []
        if self.journal is not None:
            self.journal.start(clock)
            made += [(self.journal, one) for one in self.journal.read(clock)]
            if self.journal.descriptor is None:
                self._listen(False)
        made += self.files.read(clock, max(1, room - len(made)), int(self._allowance))
        for source, record in made:
            self._allowance -= len(record.text)
            self._queue.append((source, record))
            self._queue_bytes += len(record.text)
            self.sender.send(record.text)
        return bool(made)

    # -- telling ------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self.say(f"rsyslog: {self.sender.problem}" if self.sender.problem else "rsyslog takes records")
        if not self.config["output"]:
            return
        try:
            exposition.publish(self.config["output"], self._families())
        except (OSError, exposition.LintError) as problem:
            self.say(f"{self.config['output']}: {problem}")

    def _families(self) -> list[Family]:
        counts = dict(self.files.counts)
        open_files = list(self.files.open.values())
        counts["truncated"] += sum(one.truncated for one in open_files)
        streams = [one.stream for one in open_files] + list(
            self.journal.streams.values() if self.journal else ()
        )
        simple = (
            ("records_taken_total", "counter", "Records that the private rsyslog has on disk.", self.taken),
            ("left_out_total", "counter", "Records left out by the contract's rules.",
             self.files.left_out + sum(one.left_out for one in streams)),
            ("files", "gauge", "Files that are read.", len(open_files)),
            ("behind_bytes", "gauge", "Bytes of them that are not read yet.",
             sum(one.behind_bytes for one in open_files)),
            ("waiting_records", "gauge", "Records that rsyslog has not confirmed.", len(self._queue)),
            ("spool_bytes", "gauge", "Bytes that wait on this node for the rack.", self._spool_bytes()),
            ("rsyslog_up", "gauge", "1 while rsyslog takes records.", int(self.sender.connected)),
            ("spool_damaged_total", "counter", "Queues that were found damaged and mended.", self._mended()),
            ("up", "gauge", "1 while somebody reads.", 1),
        )  # fmt: skip
        found = []
        for name, kind, text, value in simple:
            family = Family(f"sideband_logs_{name}", kind, text)
            family.add(value)
            found.append(family)
        troubles = Family(
            "sideband_logs_troubles_total", "counter", "What cost or may cost lines, by reason."
        )
        for reason, count in counts.items():
            troubles.add(count, reason=reason)
        return [*found, troubles]

    def _spool_bytes(self) -> int:
        with (
            contextlib.suppress(OSError),
            os.scandir(self.config["spool_directory"] or "/nonexistent") as entries,
        ):
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
        return 0

    def _mended(self) -> int:
        raw = durable.read(
            os.path.join(self.config["spool_directory"] or "/nonexistent", "damaged.count"), 64
        )
        return int(raw) if raw and raw.strip().isdigit() else 0

    def run(self) -> None:
        stopping: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: stopping.append(number))
        supervisor.notify("READY=1")
        while not stopping:
            self.step()
            supervisor.notify("WATCHDOG=1")
        # What has been handed over may still be confirmed; the rest is read again.
        deadline = time.monotonic() + 2.0
        while self._queue and time.monotonic() < deadline and self.sender.connected:
            for _ in range(self.sender.pump(0.1)):
                source, record = self._queue.popleft()
                source.taken(record)
        self.save(time.monotonic())
        if self.journal is not None:
            self.journal.stop()


def load(path: str) -> dict[str, Any]:
    def parse(value: Any) -> dict[str, Any]:
        config = settings.parse(value, FIELDS)
        identity.tenants(config["tenants"])
        return config

    return configuration.load(path, parse)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nodeagent logs", description=__doc__)
    parser.add_argument("--config", default="/etc/sideband/logs/logs.json", metavar="FILE")
    parser.add_argument("--check", nargs="?", const="", metavar="FILE", help="check the configuration only")
    options = parser.parse_args(arguments)
    try:
        config = load(options.check or options.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check is not None:
        return 0
    Program(config).run()
    return 0
