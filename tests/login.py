"""A login on a host of the lab, for testinfra: its ansible:// backend does not template the inventory's
connection variables, so the SSH arguments are spelt out here."""

from __future__ import annotations

from pathlib import Path

import testinfra
import yaml
from testinfra.host import Host

ROOT = Path(__file__).resolve().parent.parent
KEYS = ROOT / ".lab" / "ssh"
OPTIONS = f"-o UserKnownHostsFile={KEYS}/known_hosts -o StrictHostKeyChecking=yes -o BatchMode=yes"


def login(name: str) -> Host:
    own = yaml.safe_load((ROOT / "inventories" / "lab" / "host_vars" / f"{name}.yml").read_text())
    return testinfra.get_host(
        f"ssh://root@{own['ansible_host']}?ssh_identity_file={KEYS}/id_ed25519", ssh_extra_args=OPTIONS
    )
