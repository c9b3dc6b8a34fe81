"""An experiment's whole way by real programs: VictoriaMetrics, the gateway's program, Git, and Ceph's radosgw
as the S3 server. For tests and for bench/archive.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import archive_kit as kit
import s3_kit
from querygate.kit import PROJECT, Kit, binary, http

from services.archiver.config import parse
from services.archiver.rooms import Rooms
from services.archiver.s3 import Object, Storage
from services.archiver.store import Store

JOBS = {"run-a": "slurm-1", "run-b": "slurm-2", "run-c": "slurm-3", "run-d": "slurm-4"}


def with_nan(step: int) -> float:
    return float("nan") if step == 7 else kit.falling(step)


@dataclass
class Scene:
    directory: Path
    gateway: str
    endpoint: str  # of the real server
    code: kit.Code
    start: int

    def configure(self, endpoint: str = "", name: str = "state", **changes: Any) -> Path:
        """A host of its own: another state directory is another host."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        value = kit.settings(directory, self.gateway, endpoint or self.endpoint, [("alpha", self.code.url)])
        return kit.write_config(directory, {**value, **changes})

    def begin(self, config: Path, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "services.archiver", "--config", str(config), *words],
            cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def done(self, config: Path, *words: str) -> tuple[int, str, str]:
        process = self.begin(config, *words)
        out, error = process.communicate(timeout=240)
        return process.returncode, out, error

    def record(self, config: Path, name: str, *words: str) -> dict[str, Any]:
        code, out, error = self.done(config, "run", "--experiment", name, "--json", *words)
        assert code == 0, error
        found: dict[str, Any] = json.loads(out)
        return found

    def branches(self) -> dict[str, str]:
        rows = (
            row.split() for row in self.code.git("ls-remote", "origin", "refs/heads/archive/*").splitlines()
        )
        return {name.removeprefix("refs/heads/archive/"): commit for commit, name in rows}

    def storage(self) -> Storage:
        """The real server, past all faults."""
        config = parse(kit.settings(self.directory, self.gateway, self.endpoint, []))
        return Storage(Store(config, Rooms(config.state_directory), print, time.sleep).remote("alpha"))

    def stored(self, record: dict[str, Any]) -> None:
        """The real server has what the record says, byte for byte. Raises where it has not."""
        self.storage().verify(Object(record["md5"], record["size"]))


class NotHere(Exception):
    """What it needs cannot be had on this machine; the text says what."""


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """A store with the series of a few jobs, a repository whose tags name them, and a place to keep files."""
    victoria = binary("victoria-metrics", "victoria-metrics", directory)
    why = s3_kit.missing() or ("" if victoria else "no store to be had: lab/lab mirror brings it")
    if why:
        raise NotHere(why)
    store = Kit(directory)
    try:
        store.ports["logs"] = 1
        store.victoria("minute", victoria)
        start = int(time.time()) // 60 * 60 - 7200
        lines: list[str] = []
        for number, job in enumerate(JOBS.values()):
            outage = range(4, 8) if number == 1 else range(0)
            nodes = (f"node{2 * number + 1}", f"node{2 * number + 2}")
            lines += kit.job_series(
                start=start + number * 60, job=job, nodes=nodes, outage=outage, steps=60,
                loss=with_nan if number == 0 else kit.falling,
            )  # fmt: skip
        lines += kit.job_series(start=start, job="slurm-1", nodes=["node11"], tenant="beta", steps=10)
        now = int(time.time()) // 60 * 60
        lines += kit.job_series(start=now - 600, job="slurm-9", nodes=["node12"], ended=False)
        http(store.ports["minute"], "/api/v1/import/prometheus", "\n".join(lines).encode() + b"\n")
        http(store.ports["minute"], "/internal/force_flush")
        store.gate(store.configure(), jobs=False)
        code = kit.Code(directory)
        for name, job in JOBS.items():
            code.tag(name, f"Sideband-Job: {job}\nSideband-Parameters: 7e9")
        code.tag("running", "Sideband-Job: slurm-9")
        code.tag("nowhere", "Sideband-Job: slurm-404")
        with (
            kit.front(directory / "query.sock", "archive/archiver") as port,
            s3_kit.s3(directory) as endpoint,
        ):
            yield Scene(directory, f"http://127.0.0.1:{port}", endpoint, code, start)
    finally:
        store.stop()
