"""The job process: says which jobs run here, whose they are, and which log files they have open.

It looks at what users shape, and therefore runs under a uid of its own, without network, with the two
capabilities that reading other users' /proc entries takes. Two files tell the rest of the node: a list
(JSON) for the sample process and for the log shipper, and series for node_exporter's textfile collector.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import signal
import stat
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from services import configuration, durable
from services.configuration import ConfigError
from services.nodeagent import exposition, identity, settings, supervisor
from services.nodeagent.bounded import Bounded, Hung
from services.nodeagent.exposition import Family
from services.nodeagent.job_table import Dictionary, Job, JobTable, plain
from services.nodeagent.kernel_log import BOOT_ID
from services.nodeagent.log_files import LogFile, LogFiles
from services.nodeagent.processes import Process, Processes
from services.nodeagent.settings import Field

TRAINING = [
    "torchrun",
    "deepspeed",
    "accelerate",
    "lightning",
    "*train*.py",
    "*finetune*.py",
    "torch.distributed.*",
]
IGNORE = ["nvidia-*", "nv-hostengine", "dcgm-exporter", "Xorg", "Xwayland"]
LOGS = ["*.log", "*.out", "*.err", "*.log.[0-9]*", "*.jsonl", "log.*", "*-log.txt", "*_log.txt", "log.txt"]
FIELDS = {
    "period_seconds": Field(settings.seconds(0.05, 300), 2),
    "output": Field(settings.PATH, "/run/sideband/textfile/job/job.prom"),
    "cpu_percent": Field(settings.seconds(0.1, 100), 3),
    "jobs": Field(settings.PATH, "/run/sideband/job/jobs.json"),
    "gpus": Field(settings.PATH, "/run/sideband/sample/gpus.json"),
    "gpus_max_age_seconds": Field(settings.seconds(1, 3600), 60),
    "tenants": Field(settings.Kind("an object", lambda value: isinstance(value, dict)), {}),
    "training": Field(settings.TEXTS, TRAINING),
    "ignore": Field(settings.TEXTS, IGNORE),
    "logs": Field(settings.TEXTS, LOGS),
    "file_systems": Field(settings.TEXTS, []),
    "keep_ended_seconds": Field(settings.seconds(10, 86400), 600),
    "most_jobs": Field(settings.count(1, 1024), 64),
    "most_files": Field(settings.count(0, 256), 32),
    "pod_logs": Field(settings.PATH, "/var/log/pods"),
    "slurm_accounts": Field(settings.PATH, "/run/sideband/slurm"),
}
_BYTES = 8 << 20
_MOST_LISTED = 512  # of a job's processes, the workers first: the list stays readable whatever a user starts
_STILL_SECONDS = (
    20.0  # an unchanged list is written again after this, so that its readers see that somebody looks
)
_LONGEST_SECONDS = 30.0  # between two looks
_MOST_READ = 64  # of a job's processes, whose files are looked for
_REASONS = ("file_system", "name", "owner", "no_access", "too_many", "shared")


class Jobs:
    def __init__(self, config: dict[str, Any], proc: str = "/proc", boot_id: str = BOOT_ID) -> None:
        self._config = config
        self._bounded = Bounded()
        self._directory = Bounded()  # of users: one that hangs must not keep processes from being looked at
        self._users: dict[int, str] = {}
        self._said: dict[str, str] = {}
        self._last: tuple[str, float] = ("", 0.0)
        self._pods: dict[str, tuple[str, str]] = {}
        self._boot = (durable.read(boot_id, 64) or b"").decode("ascii", "replace").strip()
        self.processes = Processes(self._bounded, proc)
        self.files = LogFiles(config["logs"], config["file_systems"], proc)
        tenants = identity.tenants(config["tenants"])
        words = Dictionary(
            tuple(config["training"]), tuple(config["ignore"]), tenants, self._account, self._pod
        )
        self.table = JobTable(words, float(config["keep_ended_seconds"]), config["most_jobs"])
        self._boot_time = self._remember() or self.processes.boot_time()

    def say(self, topic: str, text: str) -> None:
        """Each thing once, until it changes."""
        if self._said.get(topic, "") != text:
            self._said[topic] = text
            print(f"{topic}: {text or 'well again'}", file=sys.stderr, flush=True)

    # -- what is known from elsewhere ---------------------------------------------------------------------

    def _remember(self) -> float:
        """The list of an earlier process. Its boot time too: computed anew it may differ by a second, and
        jobs' names with it."""
        try:
            value = json.loads(durable.read(self._config["jobs"], _BYTES) or b"{}")
            if self._boot and value.get("boot") == self._boot:
                self.table.remember(value["jobs"])
                return float(value["boot_time"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            self.say("list", f"{self._config['jobs']}: damaged ({problem!r}); looking anew")
        return 0.0

    def _gpus(self, now: float) -> dict[str, list[int]]:
        """Each GPU's processes, as the sample process saw them."""
        try:
            value = json.loads(durable.read(self._config["gpus"], _BYTES) or b"{}")
            if abs(now - float(value.get("written", 0))) > float(self._config["gpus_max_age_seconds"]):
                return {}
            return {str(gpu["uuid"]): [int(pid) for pid in gpu["pids"]] for gpu in value["gpus"]}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def _account(self, job: str) -> str:
        """A Slurm job's account, where the site's Prolog (root) has left it; the job's own word is not
        asked."""
        try:
            way = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(f"{self._config['slurm_accounts']}/{job}", way)
        except OSError:
            return ""
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            ours = status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            return file.read(256).decode("utf-8", "replace").strip() if ours else ""

    def _pod(self, uid: str) -> tuple[str, str]:
        """A pod's namespace and name: the kubelet has named its log directory after them."""
        if uid not in self._pods:
            with contextlib.suppress(OSError):
                for name in os.listdir(self._config["pod_logs"]):
                    parts = name.split("_")
                    if len(parts) == 3:
                        self._pods[parts[2]] = (parts[0], parts[1])
        return self._pods.get(uid, ("", ""))

    def user(self, uid: int) -> str:
        """A uid's name. The directory service behind it may hang; the number serves as well."""
        if uid not in self._users:
            try:
                name = self._directory.ask(("user", uid), lambda: pwd.getpwuid(uid).pw_name, 0.5)
            except (KeyError, Hung):
                return str(uid)
            self._users[uid] = plain(str(name))
        return self._users[uid]

    # -- one round ----------------------------------------------------------------------------------------

    def step(self) -> None:
        begun, now = time.monotonic(), time.time()
        found = self.table.update(self.processes.scan(), self._gpus(now), now, self._boot_time)
        self._pods = {}
        self.files.skipped.clear()
        files = self._log_files(found)
        try:
            self._write_list(found, files, now)
            exposition.publish(self._config["output"], self._families(found, files, time.monotonic() - begun))
            self.say("output", "")
        except exposition.LintError as problem:
            self._withdraw()
            self.say("output", str(problem))
        except OSError as error:
            self._withdraw()
            self.say("output", f"{os.path.dirname(self._config['output'])}: {error.strerror}")

    def _withdraw(self) -> None:
        """Rather no series than what makes the whole scrape fail, or what was true once."""
        with contextlib.suppress(OSError):
            os.unlink(self._config["output"])

    def _log_files(self, jobs: Sequence[Job]) -> dict[str, list[tuple[Process, LogFile]]]:
        """Each job's files. A file that two jobs write is the elder's: its lines are shipped once."""
        taken: set[tuple[int, int]] = set()
        found: dict[str, list[tuple[Process, LogFile]]] = {}
        for job in jobs:
            mine: list[tuple[Process, LogFile]] = []
            own: set[tuple[int, int]] = set()
            first = {one.key: None for one in [*job.workers, *job.members]}
            members = {one.key: one for one in job.members}
            for key in list(first)[:_MOST_READ]:
                process = members[key]
                # Root inside a container owns what its user may see; root outside does not.
                inside = process.mapped or job.kind in ("pod", "container")
                uids = frozenset({job.uid, process.uid} if inside else {job.uid})
                for one in self.files.of(process.pid, uids, self._config["most_files"] + 1):
                    file = (one.device, one.inode)
                    if file in own:
                        continue
                    if file in taken or len(mine) >= self._config["most_files"]:
                        self.files.skipped["shared" if file in taken else "too_many"] += 1
                        continue
                    own.add(file)
                    mine.append((process, one))
            taken |= own
            found[job.name] = mine
        return found

    # -- writing ------------------------------------------------------------------------------------------

    def _write_list(
        self, jobs: Sequence[Job], files: dict[str, list[tuple[Process, LogFile]]], now: float
    ) -> None:
        listed = [self._listed(job, files[job.name]) for job in jobs]
        body = {"version": 1, "boot": self._boot, "boot_time": self._boot_time, "jobs": listed}
        text = json.dumps(body)
        if text == self._last[0] and 0 <= now - self._last[1] < _STILL_SECONDS:
            return
        text_with_time = json.dumps({**body, "written": round(now, 3)})
        durable.write(self._config["jobs"], text_with_time.encode(), 0o640)
        self._last = (text, now)

    def _listed(self, job: Job, files: Sequence[tuple[Process, LogFile]]) -> dict[str, Any]:
        workers = {one.key for one in job.workers}
        members = {one.key: one for one in [*job.workers, *job.members]}
        return {
            "job": job.name,
            "kind": job.kind,
            "tenant": job.tenant,
            "uid": job.uid,
            "user": self.user(job.uid),
            "name": job.title,
            "start": round(job.start, 2),
            "state": "running" if job.ended is None else "ended",
            "ended": None if job.ended is None else round(job.ended, 2),
            "gpus": job.gpus,
            "processes": [
                {"pid": one.pid, "start": one.start, "worker": key in workers}
                for key, one in list(members.items())[:_MOST_LISTED]
            ],
            "files": [
                {
                    "path": file.path,
                    "read_path": file.read_path,
                    "device": file.device,
                    "inode": file.inode,
                    "source": file.source,
                    "pid": process.pid,
                }
                for process, file in files
            ],
        }

    def _families(
        self, jobs: Sequence[Job], files: dict[str, list[tuple[Process, LogFile]]], took: float
    ) -> list[Family]:
        found = {
            name: Family(f"sideband_{name}", "gauge", text)
            for name, text in (
                ("job_info", "A job that runs here or has just ended, and whose it is."),
                ("job_processes", "Processes of the job; 0 for a while after it ended."),
                (
                    "job_workers",
                    "Its processes on a GPU or of a training program; fewer than before: one is gone.",
                ),
                ("job_gpus", "GPUs that it computes on."),
                ("job_log_files", "Log files of it that are followed."),
                ("job_ended_timestamp_seconds", "When its last process was seen to be gone."),
                ("jobs_count", "Jobs that run here."),
                ("jobs_over_limit", "Jobs that are left out, since there are too many."),
                ("jobs_files_skipped", "Open log files that are not followed, by reason."),
                ("jobs_scan_seconds", "What the last look at the processes took."),
                ("jobs_up", "1 while somebody looks."),
            )
        }
        for job in jobs:
            own = {"job": job.name, **({"tenant": job.tenant} if job.tenant else {})}
            start = str(int(job.start))
            found["job_info"].add(
                1, **own, user=self.user(job.uid), name=job.title, kind=job.kind, start=start
            )
            found["job_processes"].add(len(job.members), **own)
            found["job_workers"].add(len(job.workers), **own)
            found["job_gpus"].add(len(job.gpus), **own)
            found["job_log_files"].add(len(files[job.name]), **own)
            found["job_ended_timestamp_seconds"].add(job.ended and round(job.ended, 2), **own)
        found["jobs_count"].add(sum(1 for job in jobs if job.ended is None))
        found["jobs_over_limit"].add(self.table.over)
        for reason in _REASONS:
            found["jobs_files_skipped"].add(self.files.skipped[reason], reason=reason)
        found["jobs_scan_seconds"].add(round(took, 4))
        found["jobs_up"].add(1)
        return list(found.values())

    def run(self, stop: threading.Event) -> None:
        period = float(self._config["period_seconds"])
        share = float(self._config["cpu_percent"]) / 100
        supervisor.notify("READY=1")
        while not stop.is_set():
            spent = time.process_time()
            self.step()
            supervisor.notify("WATCHDOG=1")
            # Users decide how much there is to look at, and not what looking costs.
            stop.wait(min(_LONGEST_SECONDS, max(period, (time.process_time() - spent) / share)))
        # The series go, the list stays: the next process learns from it what has ended meanwhile. Its
        # readers see by its age that nobody looks.
        self._withdraw()


def load(path: str) -> dict[str, Any]:
    def parse(value: Any) -> dict[str, Any]:
        config = settings.parse(value, FIELDS)
        identity.tenants(config["tenants"])
        return config

    return configuration.load(path, parse)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nodeagent job", description=__doc__)
    parser.add_argument("--config", default="/etc/sideband/node/job.json", metavar="FILE")
    parser.add_argument("--once", action="store_true", help="one look, its series on the screen")
    parser.add_argument("--check", nargs="?", const="", metavar="FILE", help="check the configuration only")
    options = parser.parse_args(arguments)
    try:
        config = load(options.check or options.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check is not None:
        return 0
    jobs = Jobs(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    if options.once:
        jobs.step()
        print((durable.read(config["output"], 1 << 24) or b"").decode(), end="")
        return 0
    jobs.run(stop)
    return 0
