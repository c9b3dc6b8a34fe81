"""What host_state only reports: packages, users and groups. The role brings them with ansible.builtin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .system import System


def _dpkg(system: System, names: Sequence[str]) -> list[str] | None:
    """Which of the names (none given: of all) are installed and configured; None where dpkg is not used."""
    dpkg = system.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *names])
    if dpkg.rc == 127:
        return None
    # "ii", or "hi" where the package is held. dpkg-query ends with 1 when a name is unknown.
    return [line.split()[0] for line in dpkg.out.splitlines() if line.split()[1:2] in (["ii"], ["hi"])]


def installed(system: System, names: Sequence[str] = ()) -> list[str]:
    found = _dpkg(system, names)
    if found is None:
        query = ["rpm", "-q", *names] if names else ["rpm", "-qa"]
        found = system.run([*query, "--queryformat", "%{NAME}\n"]).out.split()
    return sorted(set(found))


def manager(system: System) -> str:
    """Whose packages this host has. Asked of the host, so that removal needs no contract."""
    return "apt" if system.run(["dpkg-query", "--version"]).rc != 127 else "dnf"


def missing_packages(system: System, names: Sequence[str]) -> list[str]:
    there = set(installed(system, names)) if names else set()
    return [name for name in names if name not in there]


def removable(system: System, unwanted: Sequence[str], brought: Sequence[str]) -> list[str]:
    """Of what came with us, what may go with `unwanted`: those, and the dependencies that nothing else needs.

    A package of ours that something foreign has come to need stays.
    """
    there = installed(system, unwanted) if unwanted else []
    if not there:
        return []
    if manager(system) == "dnf":
        # rpm keeps no list of what came along: only what a fragment named goes, where nothing needs it.
        return sorted(name for name in there if system.run(["rpm", "-e", "--test", name]).rc == 0)
    for name in list(there):
        if set(_simulate(system, ["purge", name])) - set(brought):
            there.remove(name)
    return sorted(set(_simulate(system, ["--auto-remove", "purge", *there])) & set(brought)) if there else []


def _simulate(system: System, words: Sequence[str]) -> list[str]:
    result = system.run(["apt-get", "-s", "-q", *words])
    return [
        line.split()[1].split(":")[0]
        for line in result.out.splitlines()
        if line.startswith(("Purg ", "Remv "))
    ]


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


SYSTEM_IDS = range(1, 1000)


def accounts(system: System, table: str) -> list[str]:
    """System users or groups of this host's own table, `passwd` or `group`; a directory's are not ours."""
    lines = (system.content(f"/etc/{table}") or b"").decode("utf-8", "replace").splitlines()
    found = [line.split(":") for line in lines]
    return sorted(f[0] for f in found if len(f) > 2 and f[2].isdigit() and int(f[2]) in SYSTEM_IDS)


def census(system: System, users: Sequence[dict[str, Any]], groups: Sequence[str]) -> dict[str, list[str]]:
    """What is there before the role brings anything, so that removal takes exactly what came."""
    wanted_groups = {*groups, *(user["group"] for user in users)}
    return {
        "packages": installed(system),
        "users": sorted(user["name"] for user in users if system.uid(user["name"]) is not None),
        "groups": sorted(name for name in wanted_groups if system.gid(name) is not None),
        "all_users": accounts(system, "passwd"),
        "all_groups": accounts(system, "group"),
    }


def arrivals(
    system: System, before: dict[str, list[str]], users: Sequence[dict[str, Any]], groups: Sequence[str]
) -> dict[str, list[str]]:
    now = census(system, users, groups)
    return {kind: sorted(set(now[kind]) - set(before[kind])) for kind in now if kind in before}
