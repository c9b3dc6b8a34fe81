"""Which operating systems hosts may run, and what differs: data in roles/host/files/systems/, one
file per system, read on the controller. A new system is a new file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANAGERS = ("apt", "dnf")
# What our roles call things; every system says how it calls them. "" is what it does not package: that comes
# from the site's mirror as an archive.
PACKAGES = (
    "nftables",
    "iproute",
    "haproxy",
    "nginx",
    "prometheus",
    "victoria_metrics",
    "node_exporter",
    "openssh_client",
)
PATHS = ("python", "nologin", "package_sources")


class SystemsError(Exception):
    """A data file that cannot be used."""


@dataclass(frozen=True)
class Release:
    """One supported system: an id and the versions of it, as /etc/os-release spells them."""

    name: str
    id: str
    versions: tuple[str, ...]
    package_manager: str
    packages: Mapping[str, str]
    paths: Mapping[str, str]

    def matches(self, identity: str, version: str) -> bool:
        return identity == self.id and any(
            version == each or version.startswith(f"{each}.") for each in self.versions
        )


def parse(data: Mapping[str, Any], source: str) -> Release:
    """One data file. Every name that our roles use must be there, so a gap shows here and not on a host."""
    problems = []
    for key, wanted in (("packages", PACKAGES), ("paths", PATHS)):
        have = data.get(key) or {}
        problems += [f"{key}.{name} is missing" for name in wanted if name not in have]
        problems += [f"{key}.{name} is unknown" for name in have if name not in wanted]
    for key in ("name", "id", "versions", "package_manager"):
        if not data.get(key):
            problems.append(f"{key} is missing")
    if data.get("package_manager") not in MANAGERS:
        problems.append(f"package_manager must be one of {', '.join(MANAGERS)}")
    if not all(isinstance(version, str) for version in data.get("versions") or ()):
        problems.append("versions must be text in quotes: YAML reads 22.04 as a number")
    if problems:
        raise SystemsError(f"{source}: " + "; ".join(problems))
    return Release(
        name=data["name"],
        id=data["id"],
        versions=tuple(data["versions"]),
        package_manager=data["package_manager"],
        packages=dict(data["packages"]),
        paths=dict(data["paths"]),
    )


def load(directory: str) -> list[Release]:
    import yaml  # the controller has it; hosts never come here

    files = sorted(Path(directory).glob("*.yml"))
    if not files:
        raise SystemsError(f"{directory}: no data file of any system")
    return [parse(yaml.safe_load(file.read_text(encoding="utf-8")), file.name) for file in files]


def parse_os_release(text: str) -> dict[str, str]:
    """/etc/os-release, with or without quotes."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*([A-Z0-9_]+)=(.*?)\s*", line)
        if match:
            found[match.group(1)] = match.group(2).strip("\"'")
    return found


def find(releases: Iterable[Release], os_release: Mapping[str, str]) -> Release | None:
    identity, version = os_release.get("ID", ""), os_release.get("VERSION_ID", "")
    return next((release for release in releases if release.matches(identity, version)), None)


def refusal(releases: Iterable[Release], os_release: Mapping[str, str]) -> str:
    """What an unsupported system is told: its own name and version, and what would do."""
    name = os_release.get("NAME") or os_release.get("ID") or "unknown system"
    version = os_release.get("VERSION_ID") or "without a version"
    supported = ", ".join(f"{release.name} {'/'.join(release.versions)}" for release in releases)
    return f"{name} {version} is not supported; supported: {supported}"
