"""What host_state only reports: packages, users and groups. The role brings them with ansible.builtin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .system import System


def missing_packages(system: System, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    dpkg = system.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *names])
    if dpkg.rc != 127:
        # Status "ii" or a held "hi": installed and configured. dpkg-query ends with 1 when one is unknown.
        installed = {
            line.split()[0] for line in dpkg.out.splitlines() if line.split()[1:2] in (["ii"], ["hi"])
        }
        return [name for name in names if name not in installed]
    rpm = system.run(["rpm", "-q", "--queryformat", "%{NAME}\n", *names])
    installed = set(rpm.out.split())
    return [name for name in names if name not in installed]


def missing_groups(system: System, names: Sequence[str]) -> list[str]:
    return [name for name in names if system.gid(name) is None]


def missing_users(system: System, users: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A user without one of its groups counts as missing: the role adds it."""
    return [
        user
        for user in users
        if system.uid(user["name"]) is None
        or any(user["name"] not in system.members(group) for group in user["groups"])
    ]
