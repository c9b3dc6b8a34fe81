"""logexport: each finished day of the log store as one object, verified, before retention takes the day.

    logexport.pyz CONFIG
    logexport.pyz --check CONFIG

This store cannot hand out its partitions, so a day is asked for, line by line, into zstd-compressed JSON
lines.
A day counts as exported when the object has been read back and is the same, and as long as the store's count
of its lines does not change: lines that come late, after an outage, make it be written again.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import hashlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from services import configuration, durable
from services.configuration import ConfigError

_TEXTS = ("store", "site", "endpoint", "bucket", "region", "secret", "state_directory")
_DAY = datetime.timedelta(days=1)
_GRACE = datetime.timedelta(hours=1)  # what is on its way when a day ends


class ExportError(Exception):
    """A day could not be exported; the text says why."""


@dataclass(frozen=True)
class Config:
    store: str
    site: str
    endpoint: str
    bucket: str
    region: str
    secret: str
    state_directory: str
    retention_seconds: int


def parse(value: Any) -> Config:
    if not isinstance(value, dict):
        raise ConfigError("no object")
    problems = [f"{name}: a text is needed" for name in _TEXTS if not isinstance(value.get(name), str)]
    if type(value.get("retention_seconds")) is not int:
        problems.append("retention_seconds: a number is needed")
    problems += [f"{name}: not known" for name in sorted(set(value) - {*_TEXTS, "retention_seconds"})]
    if problems:
        raise ConfigError("; ".join(problems))
    return Config(**value)


def days(now: datetime.datetime, retention_seconds: int) -> Iterator[datetime.date]:
    """Finished days that the store still has whole, the eldest first."""
    first = (now - datetime.timedelta(seconds=retention_seconds)).date() + _DAY
    last = (now - _GRACE).date() - _DAY
    while first <= last:
        yield first
        first += _DAY


class Store:
    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)

    def _ask(self, path: str, day: datetime.date, query: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*self._address, timeout=600)
        span = {"start": f"{day}T00:00:00Z", "end": f"{day}T23:59:59.999999999Z"}
        form = urllib.parse.urlencode({"query": query, **span, "timeout": "600s"})
        connection.request("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ExportError(f"the store answers {answer.status}: {answer.read(300)!r}")
        return answer

    def count(self, day: datetime.date) -> int:
        answer = self._ask("/select/logsql/query", day, "* | stats count() lines")
        found = [json.loads(line) for line in answer.read().splitlines() if line]
        return int(found[0]["lines"]) if found else 0

    def lines(self, day: datetime.date) -> http.client.HTTPResponse:
        return self._ask("/select/logsql/query", day, "*")


class Objects:
    """S3, by curl: it signs, and reads the secret from a file."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def _curl(self, key: str, *more: str) -> bytes:
        config = self._config
        url = f"{config.endpoint.rstrip('/')}/{config.bucket}/{urllib.parse.quote(key)}"
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "3600",
             "--config", config.secret,
             "--aws-sigv4", f"aws:amz:{config.region}:s3", *more, url],
            capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr + done.stdout)[-400:].decode("utf-8", "replace").strip()
            raise ExportError(f"{key}: curl ended with {done.returncode}: {said}")
        return done.stdout

    def put(self, key: str, path: str, sha256: str) -> None:
        self._curl(key, "--upload-file", path, "--header", f"x-amz-content-sha256: {sha256}")

    def digest(self, key: str) -> str:
        with tempfile.NamedTemporaryFile(dir=self._config.state_directory) as file:
            self._curl(key, "--output", file.name)
            return _digest(file.name)


def _digest(path: str) -> str:
    seen = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            seen.update(block)
    return seen.hexdigest()


def export(config: Config, store: Store, objects: Objects, day: datetime.date) -> str:
    """What was done about one day, in a few words."""
    record = os.path.join(config.state_directory, f"{day}.json")
    before = json.loads(durable.read(record, 65536) or b"{}")
    count = store.count(day)
    if before.get("lines") == count:
        return ""
    if count == 0:
        return ""
    with tempfile.TemporaryDirectory(dir=config.state_directory) as room:
        path = os.path.join(room, "day.zst")
        written = _write(store, day, path)
        if written < count:
            raise ExportError(f"{day}: {written} lines came of {count}")
        sha256 = _digest(path)
        key = f"{config.site}/{day:%Y/%m/%d}.jsonl.zst"
        objects.put(key, path, sha256)
        if objects.digest(key) != sha256:
            raise ExportError(f"{key}: what was stored is not what was sent")
        size = os.path.getsize(path)
    body = {"key": key, "lines": written, "sha256": sha256, "bytes": size, "at": round(time.time())}
    durable.write(record, json.dumps(body).encode())
    return f"{key}: {written} lines, {size} bytes"


def _write(store: Store, day: datetime.date, path: str) -> int:
    answer = store.lines(day)
    with subprocess.Popen(["zstd", "-q", "-6", "-o", path], stdin=subprocess.PIPE) as packer:
        assert packer.stdin is not None
        count = 0
        while block := answer.read(1 << 20):
            count += block.count(b"\n")
            packer.stdin.write(block)
        packer.stdin.close()
        if packer.wait():
            raise ExportError(f"zstd ended with {packer.returncode}")
    return count


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="logexport", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config")
    parser.add_argument("--check", action="store_true", help="check the configuration, and nothing else")
    options = parser.parse_args(arguments)
    try:
        config = configuration.load(options.config, parse)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        return 0
    failed = 0
    with open(os.path.join(config.state_directory, "lock"), "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another run is at it
        for day in days(datetime.datetime.now(datetime.timezone.utc), config.retention_seconds):
            try:
                said = export(config, Store(config.store), Objects(config), day)
            except (ExportError, OSError, http.client.HTTPException, ValueError) as problem:
                failed += 1
                said = f"error: {day}: {problem}"
            if said:
                print(said, file=sys.stderr, flush=True)
    return 1 if failed else 0
