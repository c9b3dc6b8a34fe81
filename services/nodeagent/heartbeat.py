"""The few series that flow at every level: up, capacity, severe errors, and the level itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence

from services.nodeagent.exposition import quoted


def memory_bytes(meminfo: str = "/proc/meminfo") -> int | None:
    return _kernel_number(meminfo, "MemTotal:", 1024)


def oom_kills(vmstat: str = "/proc/vmstat") -> int | None:
    return _kernel_number(vmstat, "oom_kill", 1)


def _kernel_number(path: str, key: str, factor: int) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words and words[0] == key:
                    return int(words[1]) * factor
    except (OSError, ValueError, IndexError):
        return None
    return None


class Filesystems:
    """Sizes and read-only flags. A mount that hangs is left out; it must not take the others along."""

    def __init__(self, mountpoints: Sequence[str], patience: float = 1.0) -> None:
        self._mountpoints = tuple(mountpoints)
        self._patience = patience
        self._hanging: dict[str, threading.Thread] = {}

    def read(self) -> dict[str, tuple[int, bool]]:
        found: dict[str, tuple[int, bool]] = {}
        for mountpoint in self._mountpoints:
            asked = self._hanging.get(mountpoint)
            if asked is not None and asked.is_alive():
                continue
            answer: list[os.statvfs_result] = []
            asked = threading.Thread(target=self._ask, args=(mountpoint, answer), daemon=True)
            asked.start()
            asked.join(self._patience)
            if asked.is_alive():
                self._hanging[mountpoint] = asked
            elif answer:
                status = answer[0]
                found[mountpoint] = (status.f_blocks * status.f_frsize, bool(status.f_flag & os.ST_RDONLY))
        return found

    @staticmethod
    def _ask(mountpoint: str, answer: list[os.statvfs_result]) -> None:
        try:
            answer.append(os.statvfs(mountpoint))
        except OSError:
            return


def exposition(
    filesystems: Filesystems,
    level: str,
    level_index: int,
    generation: int,
    refused: Mapping[str, int],
    fetch_age_seconds: float | None,
) -> str:
    """The text that is pushed. What cannot be read is missing, never 0 and never a word."""
    lines: list[str] = []

    def add(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            pairs = ",".join(f'{key}="{quoted(text)}"' for key, text in {"job": "policy", **labels}.items())
            lines.append(f"{name}{{{pairs}}} {value}")

    add("up", 1)
    # Stamped by the rack when it comes: the difference is how far this clock is off (ClockOff).
    add("sideband_policy_time_seconds", round(time.time(), 3))
    add("node_cpu_count", os.cpu_count())
    add("node_memory_MemTotal_bytes", memory_bytes())
    add("node_vmstat_oom_kill", oom_kills())
    for mountpoint, (size, read_only) in filesystems.read().items():
        add("node_filesystem_size_bytes", size, mountpoint=mountpoint)
        add("node_filesystem_readonly", int(read_only), mountpoint=mountpoint)
    add("sideband_policy_level", level_index, level=level)
    add("sideband_policy_generation", generation)
    for reason, count in sorted(refused.items()):
        add("sideband_policy_refused_total", count, reason=reason)
    age = None if fetch_age_seconds is None else round(fetch_age_seconds, 1)
    add("sideband_policy_last_fetch_age_seconds", age)
    return "\n".join(lines) + "\n"
