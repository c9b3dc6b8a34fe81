"""Filters of role mirror: where an archive lies, what it must hash to, and where the mirror listens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible.errors import AnsibleFilterError


def manifest(path: str) -> dict[str, Any]:
    """The mirror's manifest: {suite: {package: {version, file, sha256, size}}}."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AnsibleFilterError(f"{path}: missing; hint: build the mirror (lab/lab mirror)") from None
    except ValueError as error:
        raise AnsibleFilterError(f"{path}: no JSON ({error}); hint: build the mirror anew") from None
    return found


def archive(
    holds: dict[str, Any], package: str, *, suite: str, url: str, path: str, version: str = "newest"
) -> dict[str, str]:
    """The archive entry of a fragment: unpacked under `path`, never installed as a package."""
    found = holds.get(suite, {}).get(package)
    if found is None:
        raise AnsibleFilterError(f"mirror: {suite} holds no {package}; hint: add it to the mirror's list")
    if not admits(version, found["version"]):
        raise AnsibleFilterError(
            f"mirror: {package} does not fit sideband_versions (got {found['version']}, pinned {version}); "
            f"hint: mirror that version or move the pin"
        )
    return {
        "path": path,
        # A Debian file name may hold a literal %3a, which a server would take for a colon.
        "url": f"{url.rstrip('/')}/{suite}/{quote(found['file'])}",
        "sha256": found["sha256"],
        "format": "deb",
    }


def admits(pin: str, version: str) -> bool:
    """Whether a pin ("newest", or leading numbers as in "1.112") admits a Debian version."""
    if pin == "newest":
        return True
    upstream = re.split(r"[-+~]", version.split(":", 1)[-1])[0]
    return upstream == pin or upstream.startswith(pin + ".")


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
