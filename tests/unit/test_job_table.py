"""Processes put together to jobs, and jobs that vanish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.nodeagent.identity import Membership, tenants
from services.nodeagent.job import IGNORE as IGNORE_LIST
from services.nodeagent.job import TRAINING as TRAINING_LIST
from services.nodeagent.job_table import Dictionary, Job, JobTable, plain
from services.nodeagent.processes import Process, command_words, matches

IGNORE, TRAINING = tuple(IGNORE_LIST), tuple(TRAINING_LIST)
HEX = "0123456789abcdef" * 4
SLURM = Membership("slurm", "77", 1001)
POD = Membership("pod", "11111111-2222-3333-4444-555555555555")
BOX = Membership("container", HEX)


def process(pid: int, *words: str, parent: int = 1, uid: int = 1001, **more: Any) -> Process:
    values = {"start": pid * 10, "group": pid, "mapped": False, "member": Membership(), **more}
    return Process(pid, parent=parent, uid=uid, words=words, **values)


TENANTS = {"uids": {"1001": "alpha"}, "slurm_accounts": {"lab": "beta"}, "namespaces": {"ns": "gamma"}}


class Bench:
    def __init__(self, keep: float = 100, most: int = 64) -> None:
        words = Dictionary(
            TRAINING, IGNORE,
            tenants(TENANTS),
            lambda job: "lab" if job == "78" else "",
            lambda uid: ("ns", "worker-0") if uid == POD.id else ("", ""),
        )  # fmt: skip
        self.table = JobTable(words, keep, most)
        self.now = 5000.0

    def look(self, *found: Process, gpus: dict[str, list[int]] | None = None, after: float = 2) -> list[Job]:
        self.now += after
        return self.table.update({one.pid: one for one in found}, gpus or {}, self.now, 1000.0)

    def one(self, *found: Process, gpus: dict[str, list[int]] | None = None) -> Job:
        jobs = self.look(*found, gpus=gpus)
        assert len(jobs) == 1, jobs
        return jobs[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python3 train.py --lr 1", ("python3", "train.py")),
        ("/usr/bin/python3.11 -u -X dev -W error /home/a/pretrain_gpt.py", ("python3.11", "pretrain_gpt.py")),
        ("python -m torch.distributed.run --nproc 8 x.py", ("python", "torch.distributed.run")),
        ("/usr/bin/python3 /usr/local/bin/torchrun train.py", ("python3", "torchrun")),
        ("python -c import_train.py", ("python",)),
        ("bash -e run_train.sh", ("bash", "run_train.sh")),
        ("vim train.py", ("vim",)),
        ("grep loss train.py", ("grep",)),
        ("tail -f train.py", ("tail",)),
        ("", ()),
    ],
)
def test_what_a_command_runs(line: str, words: tuple[str, ...]) -> None:
    assert command_words(line.split(" ")) == words


def test_who_only_names_a_training_is_none() -> None:
    for line in ("vim train.py", "grep x train.py", "python -c train.py", "bash train.sh"):
        assert not matches(command_words(line.split(" ")), TRAINING), line
    for line in (
        "python train.py",
        "python3 /usr/bin/torchrun x",
        "python -m torch.distributed.run",
        "deepspeed x",
    ):
        assert matches(command_words(line.split(" ")), TRAINING), line


def test_a_loop_without_gpu_is_found_by_the_dictionary() -> None:
    """C8."""
    job = Bench().one(process(1, "systemd", uid=0), process(50, "python3", "train.py"), process(60, "bash"))
    assert (job.name, job.tenant, job.uid, job.kind, job.title) == (
        "u1001-1005-50",
        "alpha",
        1001,
        "process",
        "train.py",
    )
    assert [one.pid for one in job.workers] == [50]


def test_a_process_on_a_gpu_needs_no_name() -> None:
    job = Bench().one(process(50, "a.out"), process(51, "b.out"), gpus={"GPU-1": [50], "GPU-0": [50, 999]})
    assert (job.gpus, job.title) == (["GPU-0", "GPU-1"], "a.out")


def test_the_drivers_own_programs_are_no_jobs() -> None:
    assert Bench().look(process(50, "nvidia-persistenced", uid=0), gpus={"GPU-0": [50]}) == []


def test_a_launcher_and_its_ranks_are_one_job() -> None:
    ranks = [process(60 + n, "python3", "train.py", parent=50) for n in range(4)]
    shell = process(40, "bash", "run.sh", group=40)
    launcher = process(50, "python3", "torchrun", parent=40, group=40)
    tee = process(51, "tee", parent=40, group=40)
    foreign = process(52, "tee", parent=40, group=40, uid=1002)
    bench = Bench()
    job = bench.one(shell, launcher, tee, foreign, *ranks, gpus={f"GPU-{n}": [60 + n] for n in range(4)})
    assert job.name == "u1001-1005-50"
    assert [one.pid for one in job.members] == [40, 50, 51, 60, 61, 62, 63]
    assert [one.pid for one in job.workers] == [50, 60, 61, 62, 63]
    # The launcher dies, its ranks go to init: the same job, one worker fewer.
    orphans = [replace(one, parent=1) for one in ranks]
    job = bench.one(*orphans, gpus={f"GPU-{n}": [60 + n] for n in range(4)})
    assert (job.name, len(job.workers)) == ("u1001-1005-50", 4)


def test_an_orphan_that_another_job_adopts_stays_what_it_was() -> None:
    bench = Bench()
    bench.one(process(60, "python", "train.py", parent=55))
    jobs = bench.look(process(50, "torchrun"), process(60, "python", "train.py", parent=50))
    assert [(job.name, job.ended) for job in jobs] == [("u1001-1005-50", None), ("u1001-1006-60", None)]


def test_two_users_are_two_jobs_also_where_one_starts_the_other() -> None:
    jobs = Bench().look(
        process(50, "python", "train.py"), process(60, "python", "train.py", parent=50, uid=1002)
    )
    assert [(job.uid, job.tenant) for job in jobs] == [(1001, "alpha"), (1002, None)]


def test_slurm_jobs_are_jobs_whatever_they_run() -> None:
    helper = process(49, "slurmstepd", uid=0, member=Membership("slurm", "77"))
    job = Bench().one(helper, process(50, "bash", "slurm_script", member=Membership("slurm", "77")))
    assert (job.name, job.uid, job.tenant, job.workers) == ("slurm-77", 1001, "alpha", [])
    assert Bench().one(process(50, "x", member=Membership("slurm", "78"))).tenant == "beta"


def test_pods_and_containers_are_jobs_if_they_train() -> None:
    own = [process(49, "pause", uid=65535, member=POD), process(50, "sidecar", member=BOX)]
    bench = Bench()
    assert bench.look(*own) == []
    jobs = bench.look(*own, process(51, "a.out", uid=0, member=POD), gpus={"GPU-0": [51]})
    assert [(job.name, job.tenant, job.title, len(job.members)) for job in jobs] == [
        (f"pod-{POD.id}", "gamma", "worker-0", 2)
    ]


def test_a_vanished_job_is_there_for_a_while_with_nobody_in_it() -> None:
    bench = Bench(keep=100)
    bench.one(process(50, "python", "train.py"))
    job = bench.one()
    assert (job.members, job.workers, job.ended) == ([], [], bench.now)
    first = job.ended
    assert bench.one().ended == first
    assert len(bench.look(after=90)) == 1
    assert bench.look(after=90) == []
    # A clock that jumps back keeps it no longer.
    bench.one(process(50, "python", "train.py"))
    bench.one()
    assert bench.look(after=-4000) == []


def test_a_pid_that_is_used_again_is_another_process() -> None:
    bench = Bench()
    bench.one(process(50, "python", "train.py"))
    jobs = bench.look(process(50, "python", "train.py", start=9000))
    assert [(job.name, job.ended is None) for job in jobs] == [
        ("u1001-1090-50", True),
        ("u1001-1005-50", False),
    ]


def test_a_slurm_job_between_two_steps_runs_on() -> None:
    bench = Bench()
    bench.one(process(50, "a", member=SLURM))
    assert bench.one().ended is not None
    job = bench.one(process(60, "b", member=SLURM))
    assert (job.ended, job.start) == (None, 1005.0)


def test_an_nvml_that_is_down_for_a_moment_ends_no_job() -> None:
    bench = Bench()
    bench.one(process(50, "a.out"), gpus={"GPU-0": [50]})
    job = bench.one(process(50, "a.out"))
    assert (job.ended, [one.pid for one in job.workers], job.gpus) == (None, [50], [])


def test_too_many_jobs_are_counted_and_those_that_run_come_first() -> None:
    bench = Bench(most=2)
    bench.look(process(40, "python", "train.py"))
    jobs = bench.look(*(process(pid, "python", "train.py") for pid in (50, 60, 70)))
    assert [job.name for job in jobs] == ["u1001-1005-50", "u1001-1006-60"]
    assert bench.table.over == 2


def test_what_a_process_calls_itself_is_tamed() -> None:
    assert plain('a"b\n{}/x.py') == "a_b____x.py"
    assert len(plain("x" * 900)) == 64


def test_nobody_takes_all_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(most=4)
    crowd = [process(pid, "python", "train.py", uid=1001) for pid in range(100, 110)]
    late = process(900, "python", "train.py", uid=1002)
    jobs = bench.look(*crowd, late)
    assert len(jobs) == 4
    assert [job.uid for job in jobs].count(1002) == 1
    assert bench.table.over == 7
    assert [job.start for job in jobs] == sorted(job.start for job in jobs)


def test_however_many_a_user_starts_and_ends_no_more_are_remembered() -> None:
    bench = Bench(keep=10_000, most=4)
    for first in range(0, 1000, 50):
        bench.look(*(process(pid, "python", "train.py") for pid in range(first + 2, first + 52)))
    bench.look()
    assert len(bench.table.jobs) <= 4
