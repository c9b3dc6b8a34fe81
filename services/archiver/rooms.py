"""Directories of the archive's state: one for each run, one record for each experiment, the cache.

    runs/<ID>-<random>/      one run's; locked while it lives, swept by the next run when it was killed
    locks/<ID>               one run of an experiment at a time
    records/<ID>.json        what is archived, as committed; a note that the code's repository can give again
    cache/                   DVC's: files by their hash
    plots/                   what `compare` drew

Locks are the kernel's: they go with the process that holds them, so none is ever stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services import durable
from services.archiver.s3 import Object


class Rooms:
    def __init__(self, state_directory: str) -> None:
        self.root = Path(state_directory)
        self.cache = self.root / "cache"
        self._runs, self._locks, self._records = (self.root / name for name in ("runs", "locks", "records"))

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Waits for another run of the same experiment."""
        self._locks.mkdir(parents=True, exist_ok=True)
        with open(self._locks / name, "w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(
                    f"archiver: another run of {name} is going on; waiting for it",
                    file=sys.stderr,
                    flush=True,
                )
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[Path]:
        """A directory that goes with the run."""
        self._runs.mkdir(parents=True, exist_ok=True)
        self.sweep()
        directory = self._runs / f"{name}-{secrets.token_hex(6)}"
        directory.mkdir(mode=0o700)
        with open(directory / "lock", "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    def sweep(self) -> list[str]:
        """Takes away what killed runs left. One that has just begun and holds no lock yet is left alone."""
        gone = []
        for directory in sorted(self._runs.iterdir()):
            with contextlib.suppress(OSError), open(directory / "lock", encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
                gone.append(directory.name)
        return gone

    # -- the cache

    def cached(self, found: Object) -> Path:
        return self.cache / found.path

    def has(self, found: Object) -> bool:
        try:
            return self.cached(found).stat().st_size == found.size
        except OSError:
            return False

    def whole(self, found: Object) -> bool:
        """Whether it is at hand and still what its name says."""
        if not self.has(found):
            return False
        digest = hashlib.md5(usedforsecurity=False)
        with open(self.cached(found), "rb") as file:
            for block in iter(lambda: file.read(4 << 20), b""):
                digest.update(block)
        return digest.hexdigest() == found.md5

    def cache_files(self) -> list[tuple[float, Object]]:
        """(last use, file), the longest unused first."""
        seen = []
        for path in self.cache.glob("files/md5/??/*"):
            if len(path.name) == 30 and not path.is_symlink():
                status = path.stat()
                seen.append(
                    (
                        max(status.st_atime, status.st_mtime),
                        Object(path.parent.name + path.name, status.st_size),
                    )
                )
        return sorted(seen, key=lambda pair: (pair[0], pair[1].md5))

    # -- records

    def record(self, name: str) -> dict[str, Any] | None:
        raw = durable.read(str(self._records / f"{name}.json"), 1 << 24)
        try:
            value = json.loads(raw) if raw is not None else None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def write_record(self, name: str, value: dict[str, Any]) -> None:
        self._records.mkdir(parents=True, exist_ok=True)
        text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        durable.write(str(self._records / f"{name}.json"), text.encode())

    def records(self) -> list[dict[str, Any]]:
        names = sorted(path.stem for path in self._records.glob("*.json")) if self._records.is_dir() else []
        return [found for name in names if (found := self.record(name)) is not None]


def remove(path: Path) -> None:
    """DVC protects what is in its cache against writing, not against us."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
