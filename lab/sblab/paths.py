"""Where the lab keeps what. One lab runs per machine, so its runtime state has one fixed place."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LAB = CHECKOUT / "lab"

# Of this checkout: downloads and built roots (kept by clean), and the lab's own disks and keys.
CACHE = CHECKOUT / ".cache"
STATE = CHECKOUT / ".lab"
SSH = STATE / "ssh"
LOGS = STATE / "log"
IMAGES = STATE / "images"

# Of this machine: found by name alone, so that a lab of a folder that is gone can be taken down.
RUN = Path("/run/sideband-lab")
ROOTS = RUN / "roots"
NETNS = Path("/run/netns")
CGROUPS = Path("/sys/fs/cgroup")
CGROUP = "sideband-lab"
