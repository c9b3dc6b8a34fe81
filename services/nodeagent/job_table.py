"""Which jobs run here: processes put together by cgroup, or by ancestry where nobody has placed them.

A *worker* is a process on a GPU, or one that the dictionary of training programs names. It stays one while
it lives: an NVML that is down for a moment must not look like the end of a training.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.nodeagent.identity import Membership, Tenants, owner
from services.nodeagent.processes import Process, matches, started

Key = tuple[int, int]


@dataclass
class Job:
    name: str
    kind: str
    tenant: str | None
    uid: int
    title: str
    start: float
    gpus: list[str] = field(default_factory=list)
    members: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    ended: float | None = None


@dataclass(frozen=True)
class Dictionary:
    """What the site says about processes."""

    training: tuple[str, ...]
    ignore: tuple[str, ...]
    tenants: Tenants
    account: Callable[[str], str]  # of a Slurm job
    pod: Callable[[str], tuple[str, str]]  # a pod's namespace and name


def plain(text: str) -> str:
    """A text that a process chose, as a label may have it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:64]


class JobTable:
    def __init__(self, dictionary: Dictionary, keep_ended: float, most: int) -> None:
        self._dictionary = dictionary
        self._keep_ended = keep_ended
        self._most = most
        self._workers: set[Key] = set()
        self._names: dict[Key, str] = {}  # of workers that nobody has placed: once given, kept
        self.jobs: dict[str, Job] = {}
        self.over = 0

    def update(
        self,
        processes: Mapping[int, Process],
        gpus: Mapping[str, Sequence[int]],
        now: float,
        boot_time: float,
    ) -> list[Job]:
        """The jobs, those that ended a while ago among them, the oldest first."""
        self._find_workers(processes, {pid for pids in gpus.values() for pid in pids})
        groups = self._groups(processes, boot_time)
        for name, members in groups.items():
            job = self.jobs.get(name) or self._new(name, members, boot_time)
            job.members = sorted(members, key=lambda one: one.key)
            job.workers = [one for one in job.members if one.key in self._workers]
            pids = {one.pid for one in members}
            job.gpus = sorted(uuid for uuid, users in gpus.items() if pids & set(users))
            job.ended = None
            if not job.title or (job.workers and job.kind not in ("pod", "")):
                job.title = job.title or self._title(job.workers or job.members)
            self.jobs[name] = job
        for name, job in list(self.jobs.items()):
            if name not in groups:
                job.members, job.workers, job.gpus = [], [], []
                job.ended = now if job.ended is None else job.ended
                # A clock that jumps may not keep a job for ever.
                if not 0 <= now - job.ended <= self._keep_ended:
                    del self.jobs[name]
        ordered = self._fair()
        self.over = max(0, len(ordered) - self._most)
        for job in ordered[self._most :]:
            if job.ended is not None:  # however many a user starts and ends, no more are remembered
                del self.jobs[job.name]
        return sorted(ordered[: self._most], key=lambda job: (job.ended is not None, job.start, job.name))

    def _fair(self) -> list[Job]:
        """Everybody's first job before anybody's second, those that run before those that ended: a user who
        starts a hundred takes no other's place."""
        seen: collections.Counter[tuple[bool, int]] = collections.Counter()
        placed = []
        for job in sorted(self.jobs.values(), key=lambda job: (job.start, job.name)):
            rank = (job.ended is not None, job.uid)
            placed.append(((rank[0], seen[rank], job.start, job.name), job))
            seen[rank] += 1
        return [job for _, job in sorted(placed, key=lambda pair: pair[0])]

    # -- putting together ---------------------------------------------------------------------------------

    def _find_workers(self, processes: Mapping[int, Process], on_gpu: set[int]) -> None:
        living = {one.key for one in processes.values()}
        self._workers &= living
        self._names = {key: name for key, name in self._names.items() if key in living}
        for one in processes.values():
            likely = one.pid in on_gpu or matches(one.words, self._dictionary.training)
            if likely and not matches(one.words, self._dictionary.ignore):
                self._workers.add(one.key)

    def _groups(self, processes: Mapping[int, Process], boot_time: float) -> dict[str, list[Process]]:
        groups: dict[str, list[Process]] = {}
        companions: dict[tuple[int, int], str] = {}
        for one in processes.values():
            if one.key in self._workers and not one.member.kind:
                name = self._name(one, processes, boot_time)
                groups.setdefault(name, []).append(one)
                companions.setdefault((one.group, _owner(one)), name)
        # What runs in one pipeline with a worker is of its job: `train.py | tee train.log`.
        for one in processes.values():
            if one.key not in self._workers and not one.member.kind:
                name = companions.get((one.group, _owner(one)), "")
                if name:
                    groups[name].append(one)
        placed: dict[str, list[Process]] = {}
        for one in processes.values():
            if one.member.kind:
                placed.setdefault(one.member.job, []).append(one)
        for name, members in placed.items():
            # Slurm runs nothing but jobs; pods and containers are also the machine's own services.
            if members[0].member.kind == "slurm" or any(one.key in self._workers for one in members):
                groups[name] = members
        return groups

    def _name(self, one: Process, processes: Mapping[int, Process], boot_time: float) -> str:
        """After the worker that started the others, so that a launcher and its ranks are one job."""
        if one.key in self._names:
            return self._names[one.key]
        first, seen = one, {one.pid}
        while first.key not in self._names:
            parent = processes.get(first.parent)
            if parent is None or parent.pid in seen or parent.member.kind or parent.key not in self._workers:
                break
            if _owner(parent) != _owner(one):
                break
            seen.add(parent.pid)
            first = parent
        otherwise = f"u{_owner(first)}-{int(started(first.start, boot_time))}-{first.pid}"
        name = self._names.setdefault(first.key, otherwise)
        self._names[one.key] = name
        return name

    def _new(self, name: str, members: Sequence[Process], boot_time: float) -> Job:
        eldest = sorted(members, key=lambda one: (one.start, one.pid))
        member: Membership = eldest[0].member
        owners = [_owner(one) for one in eldest if one.key in self._workers] + [_owner(one) for one in eldest]
        uid = next((one for one in owners if one != 0), 0)  # a scheduler's or an engine's own helper is root
        namespace, title = self._dictionary.pod(member.id) if member.kind == "pod" else ("", "")
        account = self._dictionary.account(member.id) if member.kind == "slurm" else ""
        tenant = self._dictionary.tenants.find(member.kind, uid, account, namespace)
        start = started(eldest[0].start, boot_time)
        return Job(name, member.kind or "process", tenant, uid, plain(title), start)

    def _title(self, members: Sequence[Process]) -> str:
        eldest = min(members, key=lambda one: (one.start, one.pid))
        return plain(eldest.words[-1]) if eldest.words else ""

    # -- across a restart ---------------------------------------------------------------------------------

    def remember(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Take up what an earlier process of the same boot knew, so that what vanished meanwhile is
        noticed."""
        for one in jobs:
            job = Job(
                name=str(one["job"]),
                kind=str(one["kind"]),
                tenant=None if one["tenant"] is None else str(one["tenant"]),
                uid=int(one["uid"]),
                title=str(one["name"]),
                start=float(one["start"]),
                ended=None if one["ended"] is None else float(one["ended"]),
            )
            self.jobs[job.name] = job
            for process in one["processes"]:
                if process["worker"]:
                    key = (int(process["pid"]), int(process["start"]))
                    self._workers.add(key)
                    if job.kind == "process":
                        self._names[key] = job.name


def _owner(one: Process) -> int:
    return owner(one.member, one.uid, one.mapped)
