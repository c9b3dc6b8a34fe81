"""Open log files are found without touching what might hang (case 49), and nobody's but the owner's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.nodeagent import log_files
from services.nodeagent.job import LOGS
from services.nodeagent.log_files import LOCAL, LogFiles

CODE = """
import os, sys
modes = {"w": os.O_WRONLY, "a": os.O_WRONLY | os.O_APPEND, "r": os.O_RDONLY, "+": os.O_RDWR}
for word in sys.argv[1:]:
    mode, path = word.split(":", 1)
    os.open(path, modes[mode] | os.O_CREAT)
with os.fdopen(int(os.environ["READY"]), "w") as ready:
    ready.write("ready\\n")
sys.stdin.read()
"""
ME = frozenset({os.getuid()})


@contextmanager
def holder(*opened: str, stdout: Any = subprocess.DEVNULL, stderr: Any = subprocess.DEVNULL) -> Iterator[int]:
    """A process that has files open."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *opened],
        stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, pass_fds=[writer],
        env={**os.environ, "READY": str(writer)},
    )  # fmt: skip
    os.close(writer)
    with os.fdopen(reader) as ready:
        assert ready.readline() == "ready\n"
    try:
        yield process.pid
    finally:
        process.communicate(timeout=20)


def types(directory: Path) -> list[str]:
    """What this machine's own temporary directory lies on counts as local here."""
    own = os.stat(directory).st_dev
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = {line.split(" ")[2]: line.partition(" - ")[2].split(" ")[0] for line in lines}
    return [found.get(f"{os.major(own)}:{os.minor(own)}", "ext4")]


def finder(directory: Path, names: list[str] | None = None) -> LogFiles:
    return LogFiles(LOGS if names is None else names, types(directory))


def test_outputs_and_logs_are_found_other_files_are_not(tmp_path: Path) -> None:
    names = {"a": tmp_path / "train.log", "+": tmp_path / "run.jsonl", "w": tmp_path / "model.bin"}
    with (tmp_path / "out.txt").open("w") as out:
        opened = [f"{mode}:{path}" for mode, path in names.items()]
        with holder(*opened, f"r:{tmp_path}/data.log", stdout=out, stderr=out) as pid:
            found = finder(tmp_path).of(pid, ME, 32)
    assert [(Path(one.path).name, one.source) for one in found] == [
        ("out.txt", "stdout"),  # once, though two descriptors lead there
        ("train.log", "log"),
        ("run.jsonl", "log"),
    ]
    status = (tmp_path / "train.log").stat()
    assert (found[1].device, found[1].inode) == (status.st_dev, status.st_ino)
    assert found[1].read_path == found[1].path


def test_what_is_on_a_network_is_not_touched_unless_the_site_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 49: a hung mount would hold whoever asks it for anything."""
    touched: list[str] = []
    real = os.stat

    def stat(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        touched.append(str(path))
        return real(path, *arguments, **named)

    with holder(f"a:{tmp_path}/train.log") as pid:
        for kind in ("nfs4", "lustre", "fuse.sshfs", "cifs", "beegfs", "a-new-one"):
            made = finder(tmp_path)
            monkeypatch.setattr(made, "_mounts", lambda pid, kind=kind: dict.fromkeys(range(100_000), kind))
            monkeypatch.setattr(log_files.os, "stat", stat)
            assert made.of(pid, ME, 32) == []
            assert made.skipped == {"file_system": 1}
            monkeypatch.undo()
        assert touched == []
        made = LogFiles(LOGS, ["lustre"])
        monkeypatch.setattr(made, "_mounts", lambda pid: dict.fromkeys(range(100_000), "lustre"))
        assert len(made.of(pid, ME, 32)) == 1
    assert not {"nfs", "nfs4", "cifs", "fuse", "lustre", "gpfs", "ceph", "9p", "autofs"} & set(LOCAL)


def test_the_type_is_read_from_the_processs_own_mounts(tmp_path: Path) -> None:
    with holder(f"a:{tmp_path}/train.log") as pid:
        mounts = finder(tmp_path)._mounts(pid)
    assert types(tmp_path)[0] in mounts.values()
    made = LogFiles(LOGS, [])
    assert finder(tmp_path)._mounts(999_999_999) == {}
    assert made.of(999_999_999, ME, 32) == []


@pytest.mark.parametrize(
    "name", ["*.log", "a'b.log", 'a"b.log', "a\nb.log", "a\\b.log", "$(x).log", "[a].log", "a\u2028.log"]
)
def test_a_name_that_would_mean_more_elsewhere_is_left_out(tmp_path: Path, name: str) -> None:
    """A wildcard in the shipper's configuration would take other users' files along."""
    with holder(f"a:{tmp_path / name}") as pid:
        made = finder(tmp_path)
        assert made.of(pid, ME, 32) == []
        assert made.skipped == {"name": 1}


def test_ordinary_names_of_all_languages_pass(tmp_path: Path) -> None:
    names = ["训练 1.log", "loss=0.1,lr=2e-4.log", "café@node:7~.log"]
    with holder(*(f"a:{tmp_path / name}" for name in names)) as pid:
        assert [Path(one.path).name for one in finder(tmp_path).of(pid, ME, 32)] == names


def test_another_users_file_is_not_shown_as_this_ones(tmp_path: Path) -> None:
    with holder(f"a:{tmp_path}/train.log") as pid:
        made = finder(tmp_path)
        assert made.of(pid, frozenset({os.getuid() + 1}), 32) == []
        assert made.skipped == {"owner": 1}


def test_deleted_files_pipes_and_devices_are_no_log_files(tmp_path: Path) -> None:
    with holder(f"a:{tmp_path}/gone.log", stdout=subprocess.PIPE) as pid:
        (tmp_path / "gone.log").unlink()
        made = finder(tmp_path, ["*"])
        assert made.of(pid, ME, 32) == []
        assert made.skipped == {}


def test_there_is_a_most(tmp_path: Path) -> None:
    with holder(*(f"a:{tmp_path}/{number}.log" for number in range(10))) as pid:
        made = finder(tmp_path)
        assert len(made.of(pid, ME, 4)) == 4
        assert made.skipped == {"too_many": 1}


def test_a_million_descriptors_cost_no_more_than_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_DESCRIPTORS", 8)
    opened = [f"a:{tmp_path}/{number:03}.log" for number in range(40)]
    with holder(*opened) as pid:
        found = finder(tmp_path).of(pid, ME, 100)
    assert 0 < len(found) < 8
    assert {one.path for one in found} <= {name[2:] for name in opened[:8]}


def test_a_path_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    with holder(f"a:{deep}/x.log", f"a:{tmp_path}/y.log") as pid:
        files = finder(tmp_path)
        assert [one.path for one in files.of(pid, ME, 100)] == [f"{tmp_path}/y.log"]
    assert files.skipped["name"] == 1


def test_a_sandbox_of_our_own_does_not_make_the_host_another_place(tmp_path: Path) -> None:
    """The unit's mounts are its own; what counts is where the first process is."""
    proc = tmp_path / "proc"
    for pid, mounts in (("1", "mnt:[1]"), ("self", "mnt:[2]"), ("7", "mnt:[1]"), ("8", "mnt:[3]")):
        (proc / pid / "ns").mkdir(parents=True)
        (proc / pid / "ns" / "mnt").symlink_to(mounts)
    log = tmp_path / "x.log"
    log.touch()
    for pid in ("7", "8"):
        (proc / pid / "fd").mkdir()
        (proc / pid / "fd" / "3").symlink_to(log)
        (proc / pid / "fdinfo").mkdir()
        (proc / pid / "fdinfo" / "3").write_text("pos:\t0\nflags:\t02\nmnt_id:\t5\n")
        (proc / pid / "mountinfo").write_text("5 1 0:1 / / rw - ext4 x rw\n")
    files = LogFiles(LOGS, [], str(proc))
    assert [one.read_path for one in files.of(7, ME, 9)] == [str(log)]
    assert [one.read_path for one in files.of(8, ME, 9)] == [f"{proc}/8/root{log}"]
