"""What preflight reads on a host, in one visit."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Any

from .state import rivals
from .state.record import load, owners
from .state.system import System
from .systems import parse_os_release


def collect(system: System, devices: Sequence[str]) -> dict[str, Any]:
    ours: set[str] = set()
    for owner in owners(system):
        ours.update(load(system, owner).originals)
    nft = re.search(r"v(\d+(?:\.\d+)+)", system.run(["nft", "--version"]).out)
    status = os.statvfs(system.at("/var/lib"))
    return {
        "kernel": platform.release(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "nft": nft.group(1) if nft else "",
        "interfaces": interfaces(system),
        "disk_free_bytes": status.f_bavail * status.f_frsize,
        "service_manager": "systemd" if system.is_directory("/run/systemd/system") else "",
        "os_release": parse_os_release((system.content("/etc/os-release") or b"").decode("utf-8", "replace")),
        "rivals": rivals.find(system, devices, ours, []),
    }


def interfaces(system: System) -> list[str]:
    place = system.at("/sys/class/net")
    return sorted(os.listdir(place)) if os.path.isdir(place) else []
