"""A cgroup per host in every hierarchy of the machine, version 1, hybrid or 2.

Without one of their own all containers would share the caller's group, and nobody could tell or kill their
processes apart.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from .paths import CGROUP, CGROUPS


def hierarchies(mounts: str | None = None) -> list[Path]:
    text = Path("/proc/self/mounts").read_text(encoding="utf-8") if mounts is None else mounts
    rows = [row.split() for row in text.splitlines()]
    found = {Path(row[1]) for row in rows if row[2] in ("cgroup", "cgroup2")}
    return sorted(path for path in found if path.is_relative_to(CGROUPS))


def _make(path: Path) -> None:
    if path.is_dir():
        return
    path.mkdir()
    for name in ("cpuset.cpus", "cpuset.mems"):
        # Version 1 refuses processes in a cpuset without CPUs and memory nodes.
        mine, above = path / name, path.parent / name
        if mine.is_file() and above.is_file() and not mine.read_text().strip():
            mine.write_text(above.read_text())


def create(name: str) -> list[Path]:
    """The host's cgroup directories, made where they are missing."""
    made = []
    for hierarchy in hierarchies():
        _make(hierarchy / CGROUP)
        _make(hierarchy / CGROUP / name)
        made.append(hierarchy / CGROUP / name)
    return made


def join(groups: Iterable[Path]) -> None:
    for group in groups:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _directories(name: str = "") -> list[Path]:
    """Depth first: children before their parents."""
    found: list[Path] = []
    for hierarchy in hierarchies():
        top = hierarchy / CGROUP / name if name else hierarchy / CGROUP
        if top.is_dir():
            found += [Path(path) for path, _, _ in os.walk(top, topdown=False)]
    return found


def processes(name: str = "") -> set[int]:
    """Processes of one host, or of the whole lab."""
    found: set[int] = set()
    for directory in _directories(name):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (directory / "cgroup.procs").read_text().split() if pid != "0"}
    return found


def kill(name: str = "", seconds: float = 10.0) -> None:
    """Like pulling the plug: everything in the group, again until nothing is left."""
    end = time.monotonic() + seconds
    while (pids := processes(name)) and time.monotonic() < end:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(name: str = "") -> list[str]:
    """Removes the directories; names those that would not go (a process is still in them)."""
    left = []
    for directory in _directories(name):
        for _ in range(40):
            try:
                directory.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.05)
        else:
            left.append(str(directory))
    return left
