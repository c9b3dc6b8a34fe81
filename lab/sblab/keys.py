"""SSH: one key of the controller's, one host key per host, and a known_hosts that trusts exactly these."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from .paths import SSH
from .say import run
from .topology import Host


def _pair(path: Path, comment: str) -> None:
    if not path.is_file() or not path.with_suffix(".pub").is_file():
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def ensure(hosts: Iterable[Host], directory: Path = SSH) -> None:
    keys = directory / "hosts"
    keys.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    _pair(directory / "id_ed25519", "sideband-lab")
    lines = []
    for host in hosts:
        _pair(keys / host.name, host.name)
        if host.address:
            kind, key = (keys / f"{host.name}.pub").read_text().split()[:2]
            lines.append(f"{host.name},{host.address} {kind} {key}")
    text = "\n".join(sorted(lines)) + "\n"
    known = directory / "known_hosts"
    if not known.is_file() or known.read_text() != text:
        known.write_text(text)


def install(host: Host, root: Path, directory: Path = SSH) -> None:
    """Puts a host's own key and the controller's public key into its root."""
    for suffix in ("", ".pub"):
        target = root / f"etc/ssh/ssh_host_ed25519_key{suffix}"
        shutil.copyfile(directory / "hosts" / f"{host.name}{suffix}", target)
        target.chmod(0o644 if suffix else 0o600)
    home = root / "root/.ssh"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(directory / "id_ed25519.pub", home / "authorized_keys")


def client(address: str, directory: Path = SSH) -> list[str]:
    """An SSH command line as the inventory's, without a shared connection."""
    return [
        "ssh",
        "-i",
        str(directory / "id_ed25519"),
        "-o",
        f"UserKnownHostsFile={directory / 'known_hosts'}",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=3",
        "-o",
        "ControlPath=none",
        "-o",
        "LogLevel=ERROR",
        f"root@{address}",
    ]
