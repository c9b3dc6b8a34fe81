"""Which files are to be read now, and whose lines they are: jobs' open files, containers' output, listed
paths."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services import durable
from services.nodeagent.identity import Tenants

_LIST_BYTES = 8 << 20
_FILES_OF_A_JOB = 64
_DOCKER = "/var/lib/docker/containers/*/*-json.log"
_PODMAN = "/var/lib/containers/storage/overlay-containers/*/userdata/ctr.log"
_PODS = "/var/log/pods/*/*/*.log"
_POD = re.compile(r"/pods/([^/_]+)_([^/_]+)_([^/_]+)/([^/]+)/[^/]+$")
_HEX = re.compile(r"/([0-9a-f]{64})(?:-json\.log|/userdata/ctr\.log)$")
_ROTATED = re.compile(r"[.-](?:\d{1,3}|\d{8}(?:[-T]\d{1,10})?)$")
_PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".swp", ".tmp")


@dataclass(frozen=True)
class Wanted:
    path: str
    read_path: str
    labels: dict[str, str] = field(default_factory=dict)
    form: str = "plain"
    device: int | None = None  # of a job's file, which is this one and no other
    inode: int | None = None
    user_owned: bool = False  # its name is a user's to change


@dataclass(frozen=True)
class Owner:
    job: str
    tenant: str
    user: str

    def labels(self) -> dict[str, str]:
        found = {"job": self.job, "tenant": self.tenant, "owner": self.user}
        return {key: value for key, value in found.items() if value}


class Jobs:
    """The list that the job process writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int] = (0, 0)
        self.by_name: dict[str, Owner] = {}
        self.by_pid: dict[int, Owner] = {}
        self.files: list[Wanted] = []
        self._seen: dict[str, dict[str, Wanted]] = {}  # by job and path

    def refresh(self) -> None:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            return
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._read(json.loads(durable.read(self._path, _LIST_BYTES) or b"{}"))
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
            return  # what was known stays true until a list can be read again

    def _read(self, value: Mapping[str, Any]) -> None:
        by_name: dict[str, Owner] = {}
        by_pid: dict[int, Owner] = {}
        files: list[Wanted] = []
        for job in value.get("jobs", ()):
            owner = Owner(str(job["job"]), str(job["tenant"] or ""), str(job["user"]))
            by_name[owner.job] = owner
            for process in job["processes"]:
                by_pid[int(process["pid"])] = owner
            # Whoever opens a file for each of its lines is rarely caught at it: once seen, it stays its
            # job's.
            seen = self._seen.setdefault(owner.job, {})
            for one in job["files"]:
                seen[str(one["path"])] = Wanted(
                    str(one["path"]),
                    str(one["read_path"]),
                    {"source": "file", "file": str(one["path"]), **owner.labels()},
                    device=int(one["device"]),
                    inode=int(one["inode"]),
                    user_owned=True,
                )
            for path in list(seen)[:-_FILES_OF_A_JOB]:
                del seen[path]
            files += seen.values()
        self._seen = {name: seen for name, seen in self._seen.items() if name in by_name}
        self.by_name, self.by_pid, self.files = by_name, by_pid, files


def containers(
    jobs: Jobs, tenants: Tenants, roots: Sequence[str] = (_DOCKER, _PODMAN, _PODS)
) -> Iterator[Wanted]:
    docker, podman, pods = roots
    for pattern, form in ((docker, "docker"), (podman, "cri")):
        for path in glob.iglob(pattern):
            found = _HEX.search(path)
            if found:
                short = found.group(1)[:12]
                owner = jobs.by_name.get(f"container-{short}")
                labels = {"source": "container", "container": short, **(owner.labels() if owner else {})}
                yield Wanted(path, path, labels, form)
    for path in glob.iglob(pods):
        found = _POD.search(path)
        if found:
            namespace, pod, uid, container = found.groups()
            owner = jobs.by_name.get(f"pod-{uid}")
            tenant = tenants.find("pod", 0, namespace=namespace) or ""
            labels = {"source": "container", "container": container, "pod": pod, "namespace": namespace}
            labels.update(owner.labels() if owner else {"tenant": tenant} if tenant else {})
            yield Wanted(path, path, labels, "cri")


def listed(patterns: Sequence[Mapping[str, str]]) -> Iterator[Wanted]:
    """The contract's own paths. Rotated names that a pattern fits stand for their path, which may lead
    nowhere for the moment."""
    for one in patterns:
        found = glob.glob(one["path"])
        for path in [*found, *glob.glob(one["path"] + "?*")]:
            stem = _ROTATED.sub("", path)
            if stem != path and (path not in found or os.path.lexists(stem)):
                path = stem
            if path.endswith(_PACKED) or not fnmatch.fnmatchcase(path, one["path"]):
                continue
            labels = {"source": "file", "file": path}
            if one.get("tenant"):
                labels["tenant"] = one["tenant"]
            yield Wanted(path, path, labels)


def siblings(path: str) -> list[str]:
    """The names under which a path's earlier files may lie, the eldest first by their last write."""
    folder, name = os.path.split(path)
    found = []
    try:
        with os.scandir(folder or ".") as entries:
            for entry in entries:
                rest = entry.name[len(name) :]
                if not entry.name.startswith(name) or not rest or rest[0] not in ".-_~":
                    continue
                if entry.name.endswith(_PACKED) or not entry.is_file(follow_symlinks=False):
                    continue
                found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    except OSError:
        return []
    return [one for _, one in sorted(found)]
