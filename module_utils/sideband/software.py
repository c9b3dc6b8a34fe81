"""From what a role asks for ("haproxy", "victoria_metrics") to what one host gets: packages of its own
package manager, or archives from the site's mirror, and where their programs lie. Controller only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from .systems import PROGRAMS, Release, find, refusal

# What can come as an archive, and what its programs are called in there, at the top.
ARCHIVED: Mapping[str, Mapping[str, str]] = {
    "prometheus": {"prometheus": "prometheus", "promtool": "promtool"},
    "victoria_metrics": {
        "victoria_metrics": "victoria-metrics",
        "vmagent": "vmagent",
        "vmalert": "vmalert",
    },
    "node_exporter": {"node_exporter": "node_exporter"},
    "victoria_logs": {"victoria_logs": "victoria-logs"},
    # With its modules and libraries. Never a package: that would be the system's own logger.
    "rsyslog": {"rsyslogd": "sbin/rsyslogd"},
    "alertmanager": {"alertmanager": "alertmanager", "amtool": "amtool"},
    # Python packages in one tree (services/wheels.py): no program, and no system has them at these versions.
    "querygate_packages": {},
}
# Where a Debian package that is unpacked has them: training nodes get programs, never packages.
UNPACKED = {"vmagent": "usr/bin/vmagent", "node_exporter": "usr/bin/prometheus-node-exporter"}
METHODS = ("package", "archive")
# What each role's fragment asks for, so that a host that cannot have it is refused before its first change. A
# training node's programs are unpacked from the mirror and not listed here.
ASKS: Mapping[str, tuple[str, ...]] = {
    "rack": ("haproxy", "victoria_metrics"),
    "region": ("haproxy", "victoria_metrics"),
    "lake": ("haproxy", "prometheus", "victoria_metrics"),
    "logs": ("haproxy", "victoria_logs"),
    "alerts": ("alertmanager", "victoria_metrics", "ca_certificates"),
    "gateway": ("haproxy", "service_python", "querygate_packages"),
}
ROOM = "/opt/sideband"

System = dict[str, Any]


class SoftwareError(Exception):
    """What was asked for cannot be had on this host."""


def read_manifest(path: str) -> dict[str, Any]:
    """What the site's mirror holds: {suite: {package: {version, file, sha256, size}}}; the suite `archives`
    holds what is packed by component."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SoftwareError(f"{path}: missing; hint: build the mirror (lab/lab mirror)") from None
    except ValueError as error:
        raise SoftwareError(f"{path}: no JSON ({error}); hint: build the mirror anew") from None
    return found


def admits(pin: str, version: str) -> bool:
    """Whether a pin ("newest", or leading numbers as in "1.112") admits a version, Debian's included."""
    if pin == "newest":
        return True
    upstream = re.split(r"[-+~]", version.split(":", 1)[-1])[0]
    return upstream == pin or upstream.startswith(pin + ".")


def system(
    releases: Iterable[Release], os_release: Mapping[str, str], methods: Mapping[str, str] | None = None
) -> System:
    """One host's system with everything decided: `methods` is the site's wish, by word."""
    known = list(releases)
    release = find(known, os_release)
    if release is None:
        raise SoftwareError(refusal(known, os_release))
    version = os_release["VERSION_ID"]
    title = f"{release.name} {version}"
    packages = release.part("packages", version)
    chosen = _methods(title, packages, methods or {})
    programs = release.part("programs", version)
    for word, names in ARCHIVED.items():
        if chosen[word] == "archive":
            programs.update({name: f"{ROOM}/{word}/{file}" for name, file in names.items()})
    return {
        "name": title,
        "id": release.id,
        "version": version,
        "package_manager": release.package_manager,
        "service_manager": release.service_manager,
        "suite": release.suites[release.version_of(version)],
        "packages": packages,
        "methods": chosen,
        "wished": dict(methods or {}),
        "programs": programs,
        "units": release.part("units", version),
        "paths": release.part("paths", version),
    }


def _methods(title: str, packages: Mapping[str, str], wished: Mapping[str, str]) -> dict[str, str]:
    where = "sideband_host_install_methods"
    for word, method in wished.items():
        if word not in ARCHIVED:
            raise SoftwareError(f"{where}: {word} has no choice; those that have: {', '.join(ARCHIVED)}")
        if method not in METHODS:
            raise SoftwareError(f"{where}: {word} must be one of {', '.join(METHODS)} (got {method!r})")
        if method == "package" and not packages[word]:
            raise SoftwareError(f"{where}: {title} has no package of {word} that would do; take archive")
    return {
        word: wished.get(word) or ("package" if name or word not in ARCHIVED else "archive")
        for word, name in packages.items()
    }


def lacking(found: System, roles: Iterable[str], holds: Mapping[str, Any]) -> list[str]:
    """What the roles of a host ask for that neither its system packages nor the site's mirror holds."""
    asked = {word for role in roles for word in ASKS.get(role, ())}
    archives = holds.get("archives", {})
    return sorted(word for word in asked if found["methods"][word] == "archive" and word not in archives)


def program(found: System, name: str) -> str:
    """Where a program lies on this host."""
    path = found["programs"].get(name)
    if not path:
        word = next((word for word, names in PROGRAMS.items() if name in names), name)
        raise SoftwareError(f"{found['name']} has no {word}, and sideband brings no archive of it")
    return str(path)


def archive(
    holds: Mapping[str, Any], package: str, *, suite: str, url: str, path: str, version: str = "newest"
) -> dict[str, str]:
    """The archive entry of a fragment: unpacked under `path`, never installed as a package."""
    found = holds.get(suite, {}).get(package)
    if found is None:
        raise SoftwareError(f"mirror: {suite} holds no {package}; hint: add it to the mirror's list")
    if not admits(version, found["version"]):
        raise SoftwareError(
            f"mirror: {package} does not fit sideband_versions (got {found['version']}, pinned {version}); "
            f"hint: mirror that version or move the pin"
        )
    return {
        "path": path,
        # A Debian file name may hold a literal %3a, which a server would take for a colon.
        "url": f"{url.rstrip('/')}/{suite}/{quote(found['file'])}",
        "sha256": found["sha256"],
        "format": "tar" if suite == "archives" else "deb",
    }


def resolve(
    fragment: Mapping[str, Any],
    found: System,
    holds: Mapping[str, Any],
    url: str,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """A fragment whose `software` has become packages, archives and masks of vendor units. What comes from
    the mirror needs the mirror."""
    made = {key: value for key, value in fragment.items() if key != "software"}
    packages, archives, masked = [], [], []
    for word in fragment.get("software") or ():
        if word not in found["packages"]:
            raise SoftwareError(f"software: {word} is unknown; known are {', '.join(found['packages'])}")
        if found["methods"][word] == "archive":
            pin = versions.get(word, "newest")
            archives.append(
                archive(holds, word, suite="archives", url=url, path=f"{ROOM}/{word}", version=pin)
            )
        elif not found["packages"][word]:
            raise SoftwareError(f"{found['name']} has no {word}, and sideband brings no archive of it")
        else:
            packages.append(found["packages"][word])
            masked += [found["units"][word]] if word in found["units"] else []
    for key, more in (("packages", packages), ("archives", archives), ("masked", masked)):
        whole = [*(made.get(key) or ()), *more]
        if whole:
            made[key] = [entry for at, entry in enumerate(whole) if entry not in whole[:at]]
    if made.get("users"):
        made["users"] = [{"shell": found["paths"]["nologin"], **user} for user in made["users"]]
    _restart_with(made, archives)
    needs = [*(made.get("needs") or ()), *_mirror(url, "packages" if made.get("packages") else "")]
    needs += _mirror(url, "archives" if made.get("archives") else "")
    return {**made, "needs": needs} if needs else made


def next_hop(part: Mapping[str, Any], flow: str) -> list[dict[str, Any]]:
    """What a host needs to be up before it changes: the first server of a flow that it opens."""
    for server in part["reaches"].get(flow, ())[:1]:
        place = urlsplit(f"//{server['authority'] or server['authority6']}")
        return [{"name": f"{flow} of {server['host']}", "address": place.hostname, "port": place.port}]
    return []


def _mirror(url: str, thing: str) -> list[dict[str, Any]]:
    place = urlsplit(url)
    if not thing or not place.hostname:
        return []
    port = place.port or (443 if place.scheme == "https" else 80)
    return [
        {"name": f"the site's mirror of {thing}", "address": place.hostname, "port": port, "only_for": thing}
    ]


def _restart_with(fragment: dict[str, Any], archives: Iterable[Mapping[str, str]]) -> None:
    """A unit whose file names a program of an archive starts anew when the archive is another one."""
    texts = {item["path"]: str(item.get("content", "")) for item in fragment.get("files") or ()}
    units = []
    for unit in fragment.get("units") or ():
        # One of several (judge@near.service) is described by the file of all (judge@.service).
        text = texts.get(f"/etc/systemd/system/{re.sub('@[^.]*', '@', unit['name'])}", "")
        mine = [entry["path"] for entry in archives if f"{entry['path']}/" in text]
        units.append({**unit, "restart_on": [*(unit.get("restart_on") or ()), *mine]} if mine else unit)
    if units:
        fragment["units"] = units


def unpacked(
    found: System, word: str, name: str, link: str, holds: Mapping[str, Any], suite: str, **where: str
) -> dict[str, Any]:
    """{"archive", "program"} of a program that a training node gets: a Debian package unpacked where that is
    possible, else the component's archive."""
    if found["package_manager"] == "apt" and found["wished"].get(word) != "archive":
        package = {"victoria_metrics": "victoria-metrics", "node_exporter": "prometheus-node-exporter"}[word]
        return {
            "archive": archive(holds, package, suite=suite, path=link, **where),
            "program": f"{link}/{UNPACKED[name]}",
        }
    return {
        "archive": archive(holds, word, suite="archives", path=link, **where),
        "program": f"{link}/{ARCHIVED[word][name]}",
    }
