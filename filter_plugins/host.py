"""Filters of role host: what system a host runs, and what the software that a role asks for is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

# Every process that Ansible forks for a task reads this file: what is heavy is imported where it is needed.


def known_system(look: Any, host: str, methods: Any = None) -> dict[str, Any]:
    """What the first look found, as a system that we support: `__host_look | sideband_host_system(host)`."""
    from sideband import preflight, software
    from sideband.systems import load

    text = look.get("stdout") if isinstance(look, Mapping) else ""
    if not text:
        said = str((look or {}).get("msg") or (look or {}).get("stderr") or "no answer").strip()
        raise AnsibleFilterError(f"{host}: system: could not be read ({said}); hint: ssh to it by hand")
    answer = preflight.parse_first_look(str(text))
    try:
        releases = load(str(ROOT / "roles/host/files/systems"))
        return software.system(releases, answer["os_release"], dict(methods or {}))
    except software.SoftwareError as error:
        raise AnsibleFilterError(f"{host}: system: {error}; nothing was changed") from None


def resolved(fragment: Any, system: Any, host: str, mirror: Any) -> Any:
    """A fragment's `software` as packages, archives and masks. `mirror`: {manifest, url,
    versions, wait_seconds}; the manifest is read only where something comes from it."""
    from sideband import software

    words = fragment.get("software") or []
    archived = any(system["methods"].get(word) == "archive" for word in words)
    try:
        holds = software.read_manifest(str(mirror["manifest"])) if archived else {}
        made = software.resolve(fragment, system, holds, str(mirror["url"]), mirror["versions"])
    except software.SoftwareError as error:
        raise AnsibleFilterError(f"{host}: {error}") from None
    if not mirror["wait_seconds"]:
        made.pop("needs", None)
    return made


def program(system: Any, name: str, host: str = "") -> str:
    """Where a program lies on this host: `sideband_host_system | sideband_host_program('vmagent')`."""
    from sideband import software

    try:
        return software.program(system, name)
    except software.SoftwareError as error:
        raise AnsibleFilterError(f"{host}: {error}" if host else str(error)) from None


def unpacked(system: Any, word: str, name: str, link: str, holds: Any, **where: Any) -> dict[str, Any]:
    """{archive, program} of what a training node gets: an unpacked package or the component's archive."""
    from sideband import software

    try:
        return software.unpacked(system, word, name, link, holds, **where)
    except software.SoftwareError as error:
        raise AnsibleFilterError(str(error)) from None


def next_hop(part: Any, flow: str) -> list[dict[str, Any]]:
    """What a host needs to be up before it changes: `sideband_self | sideband_host_next_hop('relay')`."""
    from sideband import software

    return software.next_hop(part, flow)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_host_system": known_system,
            "sideband_host_resolved": resolved,
            "sideband_host_program": program,
            "sideband_host_unpacked": unpacked,
            "sideband_host_next_hop": next_hop,
        }
