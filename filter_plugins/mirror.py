"""Filters of role mirror: where an archive lies, what it must hash to, and where the mirror listens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))


def manifest(path: str) -> dict[str, Any]:
    """The mirror's manifest: {suite: {package: {version, file, sha256, size}}}; `archives` is
    the suite of what is packed by component."""
    from sideband import software

    try:
        return software.read_manifest(str(path))
    except software.SoftwareError as error:
        raise AnsibleFilterError(str(error)) from None


def archive(
    holds: dict[str, Any], package: str, *, suite: str, url: str, path: str, version: str = "newest"
) -> dict[str, str]:
    """The archive entry of a fragment: unpacked under `path`, never installed as a package."""
    from sideband import software

    try:
        return software.archive(holds, package, suite=suite, url=url, path=path, version=version)
    except software.SoftwareError as error:
        raise AnsibleFilterError(str(error)) from None


def admits(pin: str, version: str) -> bool:
    """Whether a pin ("newest", or leading numbers as in "1.112") admits a Debian version."""
    from sideband import software

    return software.admits(pin, version)


def listens(self: dict[str, Any], port: int) -> list[str]:
    """The management addresses of a host as address:port, IPv6 in brackets (case 4)."""
    found = []
    for interface in self["interfaces"].values():
        if interface["kind"] == "management":
            found += [f"{interface['ipv4']}:{port}"] if interface.get("ipv4") else []
            found += [f"[{interface['ipv6']}]:{port}"] if interface.get("ipv6") else []
    if not found:
        raise AnsibleFilterError(f"{self['name']}: zones: no address on a management plane; hint: add one")
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_mirror_manifest": manifest,
            "sideband_mirror_archive": archive,
            "sideband_mirror_listens": listens,
        }
