"""Find a second owner of a device: two managers on one link undo each other at the next boot (case 29)."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence

from .system import System


def find(system: System, devices: Sequence[str], ours: set[str], accepted: Sequence[str]) -> list[str]:
    """One line per (file, device) that another owner configures."""
    found: list[str] = []
    for path, text in _candidates(system):
        if path in ours or path in accepted:
            continue
        for device in devices:
            if _claims(path, text, device):
                found.append(
                    f"{path} configures {device} too; remove it there, or list the file in "
                    "`accept_rivals` to keep both"
                )
    return found


def _candidates(system: System) -> Iterator[tuple[str, str]]:
    places = (
        ("/etc/netplan", (".yaml", ".yml")),
        ("/run/netplan", (".yaml",)),
        ("/lib/netplan", (".yaml",)),
        ("/etc/NetworkManager/system-connections", ("",)),
        ("/etc/sysconfig/network-scripts", ("",)),
        ("/etc/network/interfaces.d", ("",)),
        ("/etc/systemd/network", (".network",)),
        ("/run/systemd/network", (".network",)),
    )
    for directory, endings in places:
        place = system.at(directory)
        if os.path.isdir(place):
            for name in sorted(os.listdir(place)):
                if name.endswith(endings) and not name.startswith("."):
                    yield from _read(system, f"{directory}/{name}")
    yield from _read(system, "/etc/network/interfaces")


def _read(system: System, path: str) -> Iterator[tuple[str, str]]:
    data = system.content(path)
    if data is not None:
        yield path, data.decode("utf-8", "replace")


def _claims(path: str, text: str, device: str) -> bool:
    name = re.escape(device)
    if "/netplan/" in path:
        # The file's keys are device names; a `match: {name: glob}` and `set-name` count too.
        globs = re.findall(r"\bname:\s*[\"']?([^\s\"',}]+)", text)
        return bool(
            re.search(rf"(^|[\s{{,])[\"']?{name}[\"']?\s*:", text, re.MULTILINE)
            or any(fnmatch.fnmatch(device, glob) for glob in globs)
        )
    if "/NetworkManager/" in path:
        return bool(re.search(rf"^interface-name\s*=\s*{name}\s*$", text, re.MULTILINE))
    if "/network-scripts/" in path:
        return bool(re.search(rf"^DEVICE\s*=\s*[\"']?{name}[\"']?\s*$", text, re.MULTILINE))
    if path.endswith(".network"):
        match = re.search(r"^\[Match\](.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
        names = re.findall(r"^Name\s*=\s*(.+)$", match.group(1), re.MULTILINE) if match else []
        return any(fnmatch.fnmatch(device, glob) for line in names for glob in line.split())
    return bool(re.search(rf"^\s*(iface|auto|allow-\S+)\s+{name}(\s|$)", text, re.MULTILINE))
