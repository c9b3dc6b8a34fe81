"""What outlives a run and what does not: rooms, locks, the cache, the commit beside the tag (case 83)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import archive_kit as kit
import pytest

from services.archiver import beside, code, dvc, store
from services.archiver.code import Git, Lost
from services.archiver.config import Repository
from services.archiver.problem import Problem
from services.archiver.rooms import Rooms
from services.archiver.s3 import Missing, Object

REMOTE = kit.parse_remote("https://s3.example.org")
ABOUT = {
    "job": "slurm-77",
    "tenant": "alpha",
    "start": "s",
    "end": "e",
    "commit": "c",
    "gaps": [1],
    "levels": [2],
}


def put(rooms: Rooms, data: bytes, used: float = 0.0) -> Object:
    found = Object(hashlib.md5(data).hexdigest(), len(data))
    rooms.cached(found).parent.mkdir(parents=True, exist_ok=True)
    rooms.cached(found).write_bytes(data)
    os.utime(rooms.cached(found), (used, used))
    return found


# -- rooms and locks


def test_a_run_leaves_nothing(tmp_path: Path) -> None:
    rooms = Rooms(str(tmp_path))
    with contextlib.suppress(Problem), rooms.run("x") as directory:
        (directory / "file").write_text("half")
        raise Problem("broken")
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_a_killed_run_left_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from services.archiver.rooms import Rooms\n"
        "rooms = Rooms(sys.argv[1])\n"
        "with rooms.alone('x'), rooms.run('x') as d: print(d, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    killed = Path(process.stdout.readline().strip())
    rooms = Rooms(str(tmp_path))
    assert rooms.sweep() == []
    assert killed.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Its locks went with it: neither the sweep nor the next run waits for anything.
    began = time.monotonic()
    with rooms.alone("x"), rooms.run("x"):
        assert not killed.exists()
    assert time.monotonic() - began < 5


def test_one_run_of_an_experiment_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rooms, order = Rooms(str(tmp_path)), []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with rooms.alone("x"):
            inside.set()
            leave.wait(10)
            order.append("first")

    def second() -> None:
        with Rooms(str(tmp_path)).alone("x"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    while "another run of x is going on" not in capsys.readouterr().err:
        time.sleep(0.01)
    with rooms.alone("y"):
        pass  # another experiment waits for nobody
    leave.set()
    for thread in threads:
        thread.join()
    assert order == ["first", "second"]


def test_a_record_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    rooms = Rooms(str(tmp_path))
    assert rooms.record("x") is None
    rooms.write_record("x", {"md5": "m"})
    assert rooms.record("x") == {"md5": "m"}
    (tmp_path / "records/x.json").write_text("{half")
    assert rooms.record("x") is None
    assert rooms.records() == []


# -- the cache


class FakeStorage:
    def __init__(self, there: set[str]) -> None:
        self.has = there

    def there(self, found: Object) -> bool:
        return found.md5 in self.has


def test_only_what_is_committed_and_stored_is_pruned_the_longest_unused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = Rooms(str(tmp_path))
    names = ("old", "new", "uncommitted", "lost")
    files = {name: put(rooms, name.encode() * 100, number) for number, name in enumerate(names)}
    for name in ("old", "new", "lost"):
        rooms.write_record(name, {"md5": files[name].md5, "tenant": "alpha"})
    remote = {files["old"].md5, files["new"].md5, files["uncommitted"].md5}
    total = sum(one.size for one in files.values())
    keeper = store.Store(kit.config(tmp_path, cache_bytes=total - 1), rooms, print, time.sleep)
    monkeypatch.setattr(keeper, "storage", lambda tenant: FakeStorage(remote))
    assert keeper.prune() == [files["old"]]
    keeper = store.Store(kit.config(tmp_path, cache_bytes=0), rooms, print, time.sleep)
    monkeypatch.setattr(keeper, "storage", lambda tenant: FakeStorage(remote))
    assert keeper.prune() == [files["new"]]
    # What nobody committed, and what the remote has not got, is all that there is of it.
    assert [rooms.has(files[name]) for name in names] == [False, False, True, True]


def test_a_cached_file_that_is_not_what_its_name_says_is_not_whole(tmp_path: Path) -> None:
    rooms = Rooms(str(tmp_path))
    found = put(rooms, b"right")
    assert rooms.whole(found)
    rooms.cached(found).write_bytes(b"wrong")
    assert not rooms.whole(found)
    assert not rooms.whole(Object("0" * 32, 5))


def test_what_the_remote_lost_and_the_cache_has_not_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def verify(self, found: Object) -> None:
            raise Missing("gone")

    said: list[str] = []
    keeper = store.Store(kit.config(tmp_path), Rooms(str(tmp_path)), said.append, time.sleep)
    monkeypatch.setattr(keeper, "storage", lambda tenant: Gone())
    assert not keeper.stands(tmp_path, "alpha", "x.parquet", Object("0" * 32, 5))
    assert said == ["x.parquet: committed, but the remote has not got it (gone)"]


# -- the commit


@pytest.fixture
def tagged(tmp_path: Path) -> tuple[kit.Code, Repository, Git]:
    made = kit.Code(tmp_path)
    made.tag("run-42", "Sideband-Job: slurm-77")
    (tmp_path / "run").mkdir()
    return made, Repository("alpha", made.url), Git(tmp_path / "run", str(kit.git_config(tmp_path)))


def written(git: Git, repository: Repository, **about: Any) -> str:
    found = git.find(repository, "run-42")
    assert found is not None
    return beside.write(git, repository, REMOTE, "run-42", found, Object("a" * 32, 5), {**ABOUT, **about})


def test_a_commit_stands_on_the_tags_and_touches_no_other_file(
    tagged: tuple[kit.Code, Repository, Git],
) -> None:
    made, repository, git = tagged
    before = made.git("rev-parse", "run-42^{commit}")
    commit = written(git, repository)
    made.git("fetch", "--quiet", "origin")
    assert made.git("rev-parse", f"{commit}^") == before
    assert made.git("diff", "--name-status", before, commit).split("\n") == [
        "A\t.dvc/config", "A\tarchive/.gitignore", "A\tarchive/run-42.parquet.dvc",
    ]  # fmt: skip
    assert made.git("rev-parse", "origin/main") == before
    found = beside.read(git, repository, "run-42", commit)
    assert found is not None
    assert found.object == Object("a" * 32, 5)
    assert found.about == {
        "job": "slurm-77",
        "tenant": "alpha",
        "start": "s",
        "end": "e",
        "commit": "c",
        "experiment": "run-42",
    }


def test_whose_it_is_follows_from_the_repository(tagged: tuple[kit.Code, Repository, Git]) -> None:
    _, repository, git = tagged
    commit = written(git, repository, tenant="beta")
    found = beside.read(git, repository, "run-42", commit)
    assert found is not None
    assert found.about["tenant"] == "alpha"


def test_a_second_archive_stands_on_the_first(tagged: tuple[kit.Code, Repository, Git]) -> None:
    made, repository, git = tagged
    first = written(git, repository)
    second = written(git, repository, end="later")
    made.git("fetch", "--quiet", "origin")
    assert made.git("rev-parse", f"{second}^") == first


def test_who_comes_second_overwrites_nothing(
    tagged: tuple[kit.Code, Repository, Git], tmp_path: Path
) -> None:
    _, repository, git = tagged
    found = git.find(repository, "run-42")
    assert found is not None
    first = written(git, repository, end="first")
    mine = git.commit(found.commit, {"x": "y"}, "mine")
    with pytest.raises(Lost):
        git.push(repository, "run-42", mine, "")
    # As found before the first came: it looks again. The same data is the same archive; other comes on top.
    again = (git, repository, REMOTE, "run-42", found)
    assert beside.write(*again, Object("a" * 32, 5), ABOUT) == first
    other = beside.write(*again, Object("b" * 32, 5), ABOUT)
    assert git.run("rev-parse", f"{other}^").strip() == first


def test_a_tag_is_found_once_or_the_reason_is_said(
    tagged: tuple[kit.Code, Repository, Git], tmp_path: Path
) -> None:
    made, repository, git = tagged
    other = kit.Code(tmp_path, "beta")
    both = [repository, Repository("beta", other.url)]
    assert code.search(git, both, "run-42")[0].tenant == "alpha"
    with pytest.raises(
        Problem, match=r"run-7: no repository has a tag of this name \(file:.*; hint: git tag -a run-7"
    ):
        code.search(git, both, "run-7")
    other.tag("run-42", "Sideband-Job: 1")
    with pytest.raises(Problem, match="is a tag of several repositories"):
        code.search(git, both, "run-42")
    made.git("tag", "light")
    made.git("push", "--quiet", "origin", "light")
    with pytest.raises(Problem, match=r"light: its tag in .* has no message"):
        code.search(git, both, "light")
    with pytest.raises(Problem, match=r"git ls-remote failed .* can this host reach the repository"):
        code.search(git, [Repository("alpha", f"file://{tmp_path}/none.git")], "run-42")


def test_settings_of_the_code_stay() -> None:
    ours = dvc.settings(REMOTE)
    assert beside.merged(None, REMOTE) == ours
    theirs = "[core]\n    remote = mine\n['remote \"mine\"']\n    url = /data\n"
    assert beside.merged(theirs, REMOTE) == theirs + ours
    stale = ours.replace("example.org", "old.example.org")
    assert beside.merged(theirs + stale, REMOTE) == theirs + ours
    assert beside.merged(stale + theirs, REMOTE) == theirs + ours
    assert beside.merged(theirs + ours, REMOTE) == theirs + ours


def test_a_pointer_is_read_back_and_nothing_else_is() -> None:
    found = Object("0123456789abcdef" * 2, 12)
    assert dvc.read_pointer(dvc.pointer("x.parquet", found, '{"a": 1}')) == (found, '{"a": 1}')
    assert dvc.read_pointer("outs:\n- md5: 0123\n  size: 1\n") is None
    assert dvc.read_pointer(dvc.pointer("x.parquet", found, "no object")) is None
