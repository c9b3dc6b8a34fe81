"""Taking a lab down by the names of its things alone, whoever built it and from whichever folder.

Order matters: processes, then mounts, then namespaces (which take their links along), then cgroups.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from . import cgroups, wires
from .paths import CGROUP, NETNS, ROOTS, RUN

NSPAWN = Path("/run/systemd/nspawn")


def _namespace_processes() -> set[int]:
    """Whoever is in one of the lab's network namespaces: probes, shells, captures."""
    inodes = set()
    for name in wires.namespaces():
        with contextlib.suppress(OSError):
            inodes.add((NETNS / name).stat().st_ino)
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if path.stat().st_ino in inodes:
                found.add(int(path.parts[2]))
    return found - {os.getpid()}


def ssh_masters(text: str, prefix: str = "10.90.0.") -> set[int]:
    """Shared SSH connections to lab hosts, from `ss -Htnp`: they would outlive their host for hours."""
    found = set()
    for row in text.splitlines():
        fields = row.split()
        if len(fields) >= 6 and fields[4].startswith(prefix) and fields[4].endswith(":22"):
            found |= {
                int(pid) for name, pid in re.findall(r'\("([^"]+)",pid=(\d+)', fields[5]) if name == "ssh"
            }
    return found


def _kill(pids: set[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def mounts(text: str | None = None) -> list[str]:
    """The lab's mounts, deepest first."""
    rows = (Path("/proc/self/mounts").read_text() if text is None else text).splitlines()
    paths = [row.split()[1].encode().decode("unicode_escape") for row in rows]
    return sorted((p for p in paths if p == str(RUN) or p.startswith(f"{RUN}/")), key=len, reverse=True)


def unmount(root: Path) -> None:
    for path in mounts():
        if path == str(root) or path.startswith(f"{root}/"):
            subprocess.run(["umount", "-l", path], capture_output=True, check=False)


def remains() -> list[str]:
    """What of a lab is on this machine; nothing after a clean."""
    found = [f"process {pid}" for pid in sorted(cgroups.processes())]
    found += [f"mount {path}" for path in mounts()]
    found += [f"namespace {name}" for name in wires.namespaces()]
    found += [f"link {path.name}" for path in Path("/sys/class/net").glob("sbl-*")]
    found += [f"cgroup {path}" for h in cgroups.hierarchies() if (path := h / CGROUP).is_dir()]
    return found


def _tidy_nspawn(names: list[str]) -> None:
    """What nspawn keeps beside its containers, and leaves when it is killed."""
    for name in names:
        for place in ("propagate", "unix-export"):
            shutil.rmtree(NSPAWN / place / name, ignore_errors=True)
    for path in (NSPAWN / "locks").glob("*"):
        with contextlib.suppress(OSError), path.open("r+b") as file:
            # A container of somebody else's holds its lock: then this fails, and the file stays.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def takedown() -> list[str]:
    """Removes a lab, whole or half; returns what would not go."""
    (RUN / "broken").mkdir(parents=True, exist_ok=True)
    _kill(cgroups.processes("keepers"))
    done = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True, check=False)
    _kill(ssh_masters(done.stdout), signal.SIGTERM)
    cgroups.kill()
    _kill(_namespace_processes())
    names = [path.name for path in ROOTS.glob("*")]
    unmount(RUN)
    _tidy_nspawn(names)
    wires.remove()
    cgroups.remove()
    left = remains()
    if not any(item.startswith("mount") for item in left):
        # Never through a mount: it could be somebody's data.
        shutil.rmtree(RUN, ignore_errors=True)
    return left
