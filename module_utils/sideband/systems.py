"""Which operating systems hosts may run, and what differs: data in roles/host/files/systems/, one
file per system, read on the controller. A new system is a new file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANAGERS = ("apt", "dnf")
SERVICE_MANAGERS = ("systemd",)
# What our roles call things; every system says how it calls them. "" is what it does not package: where
# we can bring it as an archive (software.py), it comes from the site's mirror.
PACKAGES = (
    "nftables",
    "iproute",
    "traffic_control",
    "networkd",
    "ifupdown2",
    "haproxy",
    "nginx",
    "prometheus",
    "victoria_metrics",
    "node_exporter",
    "victoria_logs",
    "rsyslog",
    "curl",
    "zstd",
    "alertmanager",
    "ca_certificates",
    "service_python",
    "querygate_packages",
    "git",
    "archiver_packages",
    "openssh_client",
)
# The programs of ours that come with each, by the name that roles call them.
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "haproxy": ("haproxy",),
    "nginx": ("nginx",),
    "prometheus": ("prometheus", "promtool"),
    "victoria_metrics": ("victoria_metrics", "vmagent", "vmalert"),
    "node_exporter": ("node_exporter",),
    "victoria_logs": ("victoria_logs",),
    "rsyslog": ("rsyslogd",),
    "alertmanager": ("alertmanager", "amtool"),
}
# `python` is what Ansible finds on every host, `service_python` what our own services run on.
PATHS = ("python", "service_python", "nologin", "package_source")


class SystemsError(Exception):
    """A data file that cannot be used."""


@dataclass(frozen=True)
class Release:
    """One supported system: an id and the versions of it, as /etc/os-release spells them."""

    name: str
    id: str
    versions: tuple[str, ...]
    package_manager: str
    service_manager: str
    suites: Mapping[str, str]  # version -> the mirror's directory
    packages: Mapping[str, str]
    programs: Mapping[str, str]
    units: Mapping[str, str]
    paths: Mapping[str, str]
    differs: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    def matches(self, identity: str, version: str) -> bool:
        return identity == self.id and self.version_of(version) != ""

    def version_of(self, version: str) -> str:
        """Which of ours `9.4` is: `9`."""
        return next((each for each in self.versions if version == each or version.startswith(f"{each}.")), "")

    def part(self, key: str, version: str) -> dict[str, str]:
        """`packages`, `programs`, `units` or `paths` of one version."""
        return {**getattr(self, key), **self.differs.get(self.version_of(version), {}).get(key, {})}


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
    if data.get("service_manager") not in SERVICE_MANAGERS:
        problems.append(f"service_manager must be one of {', '.join(SERVICE_MANAGERS)}")
    if not all(isinstance(version, str) for version in data.get("versions") or ()):
        problems.append("versions must be text in quotes: YAML reads 22.04 as a number")
    if not problems:
        problems = _gaps(data)
    if problems:
        raise SystemsError(f"{source}: " + "; ".join(problems))
    return Release(
        name=data["name"],
        id=data["id"],
        versions=tuple(data["versions"]),
        package_manager=data["package_manager"],
        service_manager=data["service_manager"],
        suites=dict(data["suites"]),
        packages=dict(data["packages"]),
        programs=dict(data["programs"]),
        units=dict(data["units"]),
        paths=dict(data["paths"]),
        differs=dict(data["differs"]),
    )


def _gaps(data: Mapping[str, Any]) -> list[str]:
    """What one entry makes another one need."""
    problems = []
    for key in ("suites", "programs", "units", "differs"):
        if not isinstance(data.get(key), Mapping):
            problems.append(f"{key} is missing")
    if problems:
        return problems
    problems += [f"suites.{each} is missing" for each in data["versions"] if not data["suites"].get(each)]
    for word, programs in PROGRAMS.items():
        if data["packages"][word]:
            problems += [f"programs.{each} is missing" for each in programs if each not in data["programs"]]
            problems += [f"units.{word} is missing"] if word not in data["units"] else []
    for version, parts in data["differs"].items():
        if version not in data["versions"]:
            problems.append(f"differs.{version} is none of versions")
        for key, entries in parts.items():
            known = data[key] if key in ("packages", "programs", "units", "paths") else {}
            problems += [
                f"differs.{version}.{key}.{name} is unknown" for name in entries if name not in known
            ]
    return problems


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
