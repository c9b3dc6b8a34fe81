"""Whose work a process is, by its cgroup and uid alone: what it says of itself is not asked.

Every pattern begins at the root of the hierarchy. Below its own slice a user may make cgroups of any name,
also `job_77` or `kubepods-pod…`; at the root only root can.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.configuration import ConfigError

_HEX = "[0-9a-f]{64}"
_POD_UID = "[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_SLURM_1 = re.compile(r"/slurm(?:_[^/]+)?/uid_(\d+)/job_(\d+)(?:/|$)")
_SLURM_2 = re.compile(r"/system\.slice/(?:[^/]+_)?slurmstepd\.scope/job_(\d+)(?:/|$)")
_POD = re.compile(
    r"/(?:kubelet(?:\.slice)?/)?(?:kubelet-)?kubepods(?:\.slice)?/"  # where the kubelet's pods begin
    r"(?:(?:kubelet-)?(?:kubepods-)?(?:burstable|besteffort)(?:\.slice)?/)?"  # guaranteed pods have no class
    rf"(?:(?:kubelet-)?kubepods-(?:(?:burstable|besteffort)-)?)?pod({_POD_UID})(?:\.slice)?(?:/|$)"
)
_CONTAINER = re.compile(
    rf"/(?:docker/|libpod_parent/libpod-|system\.slice/(?:docker|nerdctl|cri-containerd)-"
    rf"|machine\.slice/(?:machine-libpod_pod_{_HEX}\.slice/)?libpod-)({_HEX})(?:\.scope)?(?:/|$)"
)
_USER = re.compile(r"/user\.slice/user-(\d+)\.slice(?:/|$)")
_ROOTLESS = re.compile(
    r"/user\.slice/user-(\d+)\.slice/user@\1\.service/(?:[^/]+/)*?"
    rf"(?:libpod|docker|nerdctl)-({_HEX})\.scope(?:/|$)"
)


@dataclass(frozen=True)
class Membership:
    """What a cgroup says. `kind` is empty for a process that no scheduler or container engine has placed."""

    kind: str = ""
    id: str = ""
    uid: int | None = None  # of the owner, where the cgroup names it
    slice_uid: int | None = None  # whose login or service manager it runs below

    @property
    def job(self) -> str:
        """The job's name on series; empty where there is none yet."""
        short = self.id[:12] if self.kind == "container" else self.id
        return f"{self.kind}-{short}" if self.kind else ""


def paths(cgroup: str, roots: Mapping[str, str]) -> list[str]:
    """The paths in /proc/PID/cgroup, each from its hierarchy's own root (`roots`, by `controllers`)."""
    found = []
    for line in cgroup.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            root = roots.get(parts[1], "")
            path = parts[2]
            if root and (path == root or path.startswith(root + "/")):
                path = path[len(root) :] or "/"
            if path not in found:
                found.append(path)
    return found


def roots(cgroup: str) -> dict[str, str]:
    """By /proc/1/cgroup: where this system's own hierarchies begin. In a container of systemd's that is not
    /."""
    found = {}
    for line in cgroup.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found[parts[1]] = re.sub(r"/init\.scope$", "", parts[2]).rstrip("/")
    return found


def membership(found: Sequence[str]) -> Membership:
    slices = [int(match.group(1)) for match in map(_USER.match, found) if match]
    slice_uid = slices[0] if slices else None
    for path in found:
        match = _SLURM_1.match(path)
        if match:
            return Membership("slurm", match.group(2), int(match.group(1)), slice_uid)
    for kind, pattern in (("slurm", _SLURM_2), ("pod", _POD), ("container", _CONTAINER)):
        for match in map(pattern.match, found):
            if match:
                return Membership(kind, match.group(1).replace("_", "-"), None, slice_uid)
    for match in map(_ROOTLESS.match, found):
        if match:
            return Membership("container", match.group(2), int(match.group(1)), slice_uid)
    return Membership(slice_uid=slice_uid)


def owner(member: Membership, uid: int, mapped: bool) -> int:
    """The owner's uid. Root, and the uids of a user's own name space, stand for whoever's slice they run
    in."""
    if member.uid is not None:
        return member.uid
    if (mapped or uid == 0) and member.slice_uid:
        return member.slice_uid
    return uid


class Tenants:
    """The contract's dictionary: uid, Slurm account and Kubernetes namespace to tenant.

    A namespace speaks for a pod and an account for a Slurm job, where they are known; else the owner's uid
    does.
    """

    def __init__(
        self, uids: Mapping[str, str], slurm_accounts: Mapping[str, str], namespaces: Mapping[str, str]
    ) -> None:
        self._uids: dict[int, str] = {}
        self._ranges: list[tuple[int, int, str]] = []
        self._accounts = dict(slurm_accounts)
        self._namespaces = dict(namespaces)
        for text, tenant in uids.items():
            match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text)
            if match is None or int(match.group(2) or match.group(1)) < int(match.group(1)):
                raise ConfigError(f"tenants.uids: a uid, or FIRST-LAST, is needed (got {text!r})")
            if match.group(2) is None:
                self._uids[int(text)] = tenant
            else:
                self._ranges.append((int(match.group(1)), int(match.group(2)), tenant))
        self._ranges.sort(key=lambda one: one[1] - one[0])  # the narrowest that fits holds

    def of_uid(self, uid: int) -> str | None:
        if uid in self._uids:
            return self._uids[uid]
        return next((tenant for first, last, tenant in self._ranges if first <= uid <= last), None)

    def find(self, kind: str, uid: int, account: str = "", namespace: str = "") -> str | None:
        if kind == "pod":
            # Uids inside pods are anybody's: a pod whose namespace is not listed is nobody's, not uid 1000's.
            return self._namespaces.get(namespace)
        if kind == "slurm" and account in self._accounts:
            return self._accounts[account]
        return self.of_uid(uid)


def tenants(value: Any) -> Tenants:
    """From the configuration's `tenants`."""
    names = ("uids", "slurm_accounts", "namespaces")
    if not isinstance(value, dict) or set(value) - set(names):
        raise ConfigError(f"tenants: an object of {', '.join(names)} is needed (got {value!r})")
    tables = [value.get(name, {}) for name in names]
    for name, table in zip(names, tables):
        if not isinstance(table, dict) or not all(
            isinstance(one, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", one)
            for one in table.values()
        ):
            raise ConfigError(f"tenants.{name}: an object of tenants' names is needed (got {table!r})")
    return Tenants(*tables)
