"""The job process as it runs, against the real /proc, and together with the sample process."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvml_kit import Bed, replace, stop

from services.nodeagent import job as job_process
from services.nodeagent.identity import Membership
from services.nodeagent.job import Jobs
from services.nodeagent.job_table import Job
from services.nodeagent.processes import Process
from services.nodeagent.settings import parse

LOOP = "import sys, time\nwhile True:\n    print('loss=1.0', flush=True)\n    time.sleep(0.05)\n"


def local_types() -> list[str]:
    """Whatever this machine's temporary directory lies on counts as local here."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted({line.partition(" - ")[2].split(" ")[0] for line in lines} - {"proc", "sysfs"})


@pytest.fixture
def bed(tmp_path: Path, nodeagent: Path) -> Iterator[Bed]:
    bed = Bed(tmp_path, nodeagent, word="job")
    bed.value |= {
        "training": [f"sbtrain_{os.getpid()}.py"],  # of this test alone, on a machine that runs others
        "tenants": {"uids": {str(os.getuid()): "alpha"}},
        "file_systems": local_types(),
        "slurm_accounts": str(tmp_path / "accounts"),
        "keep_ended_seconds": 10,
    }
    yield bed
    bed.end()


@pytest.fixture
def training(bed: Bed) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        script = bed.directory / f"sbtrain_{os.getpid()}.py"
        script.write_text(LOOP)
        with (bed.directory / "run.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, script], stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def listed(bed: Bed) -> list[dict[str, Any]]:
    text = bed.text("jobs")
    return list(json.loads(text)["jobs"]) if text else []


def number(found: dict[str, float], name: str) -> list[float]:
    return [value for key, value in found.items() if key.startswith(f"sideband_job_{name}{{")]


def test_a_loop_is_listed_with_owner_tenant_and_log(
    bed: Bed, training: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """C8, L1."""
    process = bed.start()
    bed.until(lambda found: found.get("sideband_jobs_up") == 1)
    loop = training()
    found = bed.until(lambda found: number(found, "workers") == [1])
    (job,) = listed(bed)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert (job["tenant"], job["user"], job["uid"], job["state"]) == ("alpha", user, os.getuid(), "running")
    assert job["name"] == f"sbtrain_{os.getpid()}.py"
    assert abs(job["start"] - time.time()) < 60
    assert [one["pid"] for one in job["processes"] if one["worker"]] == [loop.pid]
    assert [(one["path"], one["source"]) for one in job["files"]] == [(f"{bed.directory}/run.out", "stdout")]
    assert job["files"][0]["inode"] == (bed.directory / "run.out").stat().st_ino
    info = next(name for name in found if name.startswith("sideband_job_info"))
    for label in (f'job="{job["job"]}"', 'tenant="alpha"', f'user="{user}"', f'start="{int(job["start"])}"'):
        assert label in info
    assert number(found, "log_files") == [1]
    stop(process)
    assert not (bed.directory / "output").exists()


def test_a_process_that_is_gone_shows_as_none_then_leaves(
    bed: Bed, training: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """N1: the alert on a training process that is gone reads this."""
    process = bed.start()
    loop = training()
    bed.until(lambda found: number(found, "workers") == [1])
    killed = time.time()
    loop.kill()
    loop.wait()
    found = bed.until(lambda found: number(found, "workers") == [0])
    assert number(found, "processes") == [0]
    assert abs(number(found, "ended_timestamp_seconds")[0] - killed) < 10
    assert found["sideband_jobs_count"] == 0
    assert [one["state"] for one in listed(bed)] == ["ended"]
    bed.until(lambda found: number(found, "processes") == [] and found, seconds=30)
    stop(process)


def test_what_ended_while_nobody_looked_is_seen_and_names_are_kept(
    bed: Bed, training: Callable[[], subprocess.Popen[bytes]]
) -> None:
    loop, other = training(), training()
    assert bed.once().returncode == 0
    names = {one["job"] for one in listed(bed)}
    assert len(names) == 2
    # Another second of boot would give other names, were it taken anew.
    value = json.loads(bed.text("jobs"))
    replace(bed.directory / "jobs", json.dumps({**value, "boot_time": value["boot_time"] + 7}))
    loop.kill()
    loop.wait()
    assert bed.once().returncode == 0
    states = {one["job"]: one["state"] for one in listed(bed)}
    assert set(states) == names
    assert sorted(states.values()) == ["ended", "running"]
    other.kill()


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"boot": 1}', "[" * 100_000])
def test_damage_to_files_stops_nothing(
    bed: Bed, damage: str, training: Callable[[], subprocess.Popen[bytes]]
) -> None:
    training()
    for name in ("jobs", "gpus"):
        replace(bed.directory / name, damage)
    done = bed.once()
    assert done.returncode == 0, done.stderr
    assert [one["state"] for one in listed(bed)] == ["running"]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_another_users_loop_is_that_users_whatever_it_says(bed: Bed) -> None:
    bed.value["tenants"] = {"uids": {"4711": "beta", "0": "alpha"}}
    # Not below pytest's own directories, which are closed to other users.
    directory = Path(tempfile.mkdtemp(prefix="sideband-job-"))
    directory.chmod(0o755)
    script = directory / f"sbtrain_{os.getpid()}.py"
    own = directory / "own"
    own.mkdir()
    os.chown(own, 4711, 4711)
    claims = {"SLURM_JOB_ID": "77", "SLURM_JOB_ACCOUNT": "x", "USER": "root", "LOGNAME": "root"}
    code = f"import os; os.chdir({str(own)!r}); os.open('own.log', os.O_CREAT | os.O_WRONLY, 0o600)\n"
    script.write_text(code + LOOP)
    python = os.path.realpath("/usr/bin/python3")
    try:
        with (directory / "roots.out").open("wb") as out:  # root's file, handed over
            loop = subprocess.Popen(
                [python, str(script)], stdout=out, user=4711, group=4711, env=claims, start_new_session=True
            )
        process = bed.start()
        found = bed.until(lambda found: number(found, "log_files") == [1])
        assert 'tenant="beta",user="4711"' in next(name for name in found if "job_info" in name)
        (job,) = listed(bed)
        assert [one["path"] for one in job["files"]] == [f"{own}/own.log"]
        assert found['sideband_jobs_files_skipped{reason="owner"}'] == 1
        stop(process)
    finally:
        loop.kill()
        loop.wait()
        shutil.rmtree(directory)


def test_gpu_series_carry_the_job_that_computes_there(
    bed: Bed, training: Callable[[], subprocess.Popen[bytes]], fake_nvml: Path
) -> None:
    """Both processes together: NVML's list of processes goes one way, names come back."""
    (bed.directory / "sample").mkdir()
    sample = Bed(bed.directory / "sample", bed.program, fake_nvml)
    bed.value |= {"training": [], "gpus": sample.value["gpus"]}
    sample.value["jobs"] = bed.value["jobs"]
    loop = training()
    sample.script("gpu 0 utilization 97", f"gpu 0 processes {loop.pid}", "gpu 1 utilization 3")
    try:
        processes = [sample.start(), bed.start()]
        found = sample.until(
            lambda found: any("GPU_UTIL" in key and 'tenant="alpha"' in key for key in found)
        )
        (job,) = listed(bed)
        labelled = [key for key in found if f'job="{job["job"]}"' in key]
        assert all('gpu="0"' in key for key in labelled)
        assert job["gpus"] == ["GPU-00000000-0000-0000-0000-000000000000"]
        loop.kill()
        loop.wait()
        sample.until(lambda found: found and not any("tenant=" in key for key in found))
        for process in processes:
            stop(process)
    finally:
        sample.end()


# -- what is known from elsewhere -------------------------------------------------------------------------


@pytest.fixture
def jobs(bed: Bed, tmp_path: Path) -> Jobs:
    return Jobs(parse({**bed.value, "pod_logs": str(tmp_path / "pods")}, job_process.FIELDS))


def test_an_account_is_taken_from_root_alone(jobs: Jobs, tmp_path: Path) -> None:
    directory = tmp_path / "accounts"
    directory.mkdir()
    path = directory / "77"
    path.write_text("physics\n")
    path.chmod(0o644)
    assert jobs._account("77") == "physics"
    path.chmod(0o666)
    assert jobs._account("77") == ""
    path.chmod(0o644)
    (directory / "78").symlink_to(path)
    assert jobs._account("78") == ""
    assert jobs._account("79") == ""


def test_a_pods_namespace_is_the_kubelets_word(jobs: Jobs, tmp_path: Path) -> None:
    uid = "11111111-2222-3333-4444-555555555555"
    (tmp_path / "pods" / f"team-a_worker-0_{uid}").mkdir(parents=True)
    (tmp_path / "pods" / "odd").mkdir()
    assert jobs._pod(uid) == ("team-a", "worker-0")
    assert jobs._pod("other") == ("", "")


def test_a_directory_service_that_hangs_leaves_the_number(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_process.pwd, "getpwuid", lambda uid: time.sleep(1.5))
    started = time.monotonic()
    assert jobs.user(4711) == "4711"
    assert jobs.user(4711) == "4711"
    assert time.monotonic() - started < 1.4


def test_a_process_whose_command_cannot_be_read_holds_nobody_up(
    jobs: Jobs, training: Callable[[], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 49: reading its command line waits for a process that is stuck in a page fault on a hung mount."""
    loops = [training(), training()]
    time.sleep(0.5)
    real = jobs.processes._command
    monkeypatch.setattr(
        jobs.processes,
        "_command",
        lambda pid: time.sleep(3) or real(pid) if pid == loops[0].pid else real(pid),
    )
    started = time.monotonic()
    found = jobs.processes.scan()
    assert time.monotonic() - started < 2.5
    assert found[loops[0].pid].words == ()
    assert found[loops[1].pid].words[-1] == f"sbtrain_{os.getpid()}.py"


@pytest.mark.parametrize(
    ("kind", "mapped", "expected"),
    [
        ("process", False, {4711}),
        ("slurm", False, {4711}),
        ("container", False, {4711, 0}),
        ("process", True, {4711, 0}),
    ],
)
def test_roots_files_are_not_a_users_but_inside_a_container(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, kind: str, mapped: bool, expected: set[int]
) -> None:
    """`sudo program >> /var/log/secret.log` must not show that log to the user's tenant."""
    asked: list[frozenset[int]] = []
    monkeypatch.setattr(jobs.files, "of", lambda pid, uids, most: asked.append(uids) or [])
    one = Process(4242, 1, 1, 1, 0, mapped, Membership(), ("x",))
    jobs._log_files([Job("u4711-1-1", kind, "alpha", 4711, "x", 1.0, members=[one])])
    assert asked == [frozenset(expected)]


def test_an_unchanged_list_is_written_again_only_now_and_then(jobs: Jobs, bed: Bed) -> None:
    jobs.step()
    path = bed.directory / "jobs"
    first = path.stat().st_mtime_ns
    jobs.step()
    assert path.stat().st_mtime_ns == first
    jobs._last = (jobs._last[0], time.time() - 30)
    jobs.step()
    assert path.stat().st_mtime_ns > first


def test_a_bad_configuration_names_every_problem(bed: Bed) -> None:
    bed.value |= {"tennants": {}, "most_jobs": 0}
    done = bed.once()
    assert done.returncode == 2
    assert "tennants: unknown; hint: tenants" in done.stderr
    assert "most_jobs: a whole number from 1 to 1024 is needed (got 0)" in done.stderr
    del bed.value["tennants"], bed.value["most_jobs"]
    bed.value["tenants"] = {"uids": {"alice": "alpha"}}
    done = bed.once()
    assert done.returncode == 2
    assert f"{bed.directory}/job.json: tenants.uids" in done.stderr
    assert (
        subprocess.run([*bed.command()[:4], "--check", "/nonexistent"], capture_output=True).returncode == 2
    )
    bed.value["tenants"] = {}
    assert subprocess.run([*bed.command()[:4], "--check", str(bed.configure())]).returncode == 0


def test_who_becomes_a_training_while_he_is_looked_at_is_not_taken_for_another(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child has its parent's uid and group until just before its program runs; a name given stays."""
    order: list[str] = []
    real = jobs.processes._read

    def read(name: str) -> str:
        if name.startswith(f"{os.getpid()}/"):
            order.append(name.partition("/")[2])
        return real(name)

    monkeypatch.setattr(jobs.processes, "_read", read)
    jobs.processes.scan()
    assert order[0] == "cmdline"
    assert {"stat", "status", "cgroup"} <= set(order[1:])


def test_a_list_stays_readable_whatever_a_user_starts(jobs: Jobs) -> None:
    """Workers first: a restart recognises a training by them."""
    members = [Process(pid, 1, 1, pid, 4711, False, Membership(), ("x",)) for pid in range(2, 5000)]
    job = Job("u4711-1-1", "process", "alpha", 4711, "x", 1.0, members=members, workers=[members[-1]])
    listed = jobs._listed(job, [])["processes"]
    assert len(listed) == 512
    assert listed[0] == {"pid": 4999, "start": 1, "worker": True}
    assert sum(one["worker"] for one in listed) == 1


def test_looking_costs_its_share_and_no_more(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: with 0.3 s of work for a look and 3 % of a CPU, the next look is 10 s away."""
    spent = iter((1.0, 1.3, 9.0, 9.001))
    waited: list[float] = []

    class Stop:
        def is_set(self) -> bool:
            return len(waited) == 2

        def wait(self, seconds: float) -> None:
            waited.append(seconds)

    monkeypatch.setattr(jobs, "step", lambda: None)
    monkeypatch.setattr(job_process.time, "process_time", lambda: next(spent))
    jobs._config["period_seconds"] = 2
    jobs.run(Stop())  # type: ignore[arg-type]
    assert waited == [pytest.approx(10), 2.0]


def test_other_users_cannot_read_the_list(bed: Bed) -> None:
    assert bed.once().returncode == 0
    assert (bed.directory / "jobs").stat().st_mode & 0o777 == 0o640
