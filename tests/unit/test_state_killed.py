"""host_state killed before each of its writes and commands in turn, as SIGKILL or a power cut does it:
nothing of ours runs any more, not even a `finally`. No half state, no lock, no armed switch stays (B2)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sideband.state import recovery, run, units
from state_kit import FakeHost, tree

WRITES = (
    "chmod", "chown", "fchmod", "fchown", "fsync", "makedirs", "mkdir", "open", "rename", "rmdir", "symlink",
    "unlink",
)  # fmt: skip
# Every moment takes 20 s; `STRIDE=1 pytest tests/unit/test_state_killed.py` after work on host_state.
STRIDE = int(os.environ.get("STRIDE", "4"))
SWITCH = "sideband-guard-rack"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A played unit does not die in its first second, a played host loses no power, and one
    recovery program is enough."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(run, "build", lambda: b"the recovery program")
    monkeypatch.setattr(units, "settle", lambda system, names: None)


class Killed(BaseException):
    """The process is no more."""


@contextmanager
def killed_at(host: FakeHost, number: int) -> Iterator[list[str]]:
    """The operation of that number is not done, and none after it. Yields what was done until then."""
    done: list[str] = []

    def mortal(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            if len(done) >= number:
                raise Killed
            done.append(name)
            return real(*words, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(os, name, mortal(name, getattr(os, name)))
        patch.setattr(host, "run", mortal("run", host.run))
        yield done


def fragment(text: str, guarded: bool, more: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "directories": [{"path": "/etc/sideband/rack"}],
        "files": [
            {"path": "/etc/sideband/rack/a.cfg", "content": text},
            {"path": "/etc/systemd/system/a.service", "content": "[Service]\nExecStart=/bin/true\n"},
        ],
        "units": [{"name": "a.service", "running": True, "restart_on": ["/etc/sideband/rack/a.cfg"]}],
    }
    if more:
        found["links"] = [{"path": "/usr/local/bin/tool", "target": "/opt/tool"}]
        found["directories"].append({"path": "/opt/sideband/more/deep"})
    return {**found, "guarded": True, "guard_seconds": 25} if guarded else found


def finish(host: FakeHost, wanted: dict[str, Any]) -> None:
    """The same play once more: applied, and confirmed over a new connection where it is guarded."""
    host.present(wanted)
    old, host.session = host.session, "10.90.0.1 1009 10.90.0.31 22"
    host.perform("confirmed")
    host.session = old


def whole(host: FakeHost) -> dict[str, Any]:
    """All that is on the host, without the books: those say when and how often."""
    return {path: what for path, what in tree(host.base).items() if not path.endswith("record.json")}


def make(place: Path, guarded: bool) -> FakeHost:
    shutil.rmtree(place, ignore_errors=True)
    host = FakeHost(place, systemd=True)
    finish(host, fragment("one", guarded))
    return host


def every_moment(
    place: Path, guarded: bool, deed: Callable[[FakeHost], Any]
) -> Iterator[tuple[int, FakeHost]]:
    """A host for each operation of `deed`, which was killed before it. STRIDE > 1 leaves some out, other ones
    for a guarded change than for a plain one."""
    number = int(guarded)
    while True:
        host = make(place, guarded)
        with killed_at(host, number) as done:
            try:
                deed(host)
                return
            except Killed:
                assert len(done) == number
        host.session = "10.90.0.1 1010 10.90.0.31 22"  # whoever comes next
        yield number, host
        number += STRIDE


@pytest.mark.parametrize("guarded", [False, True])
def test_the_next_run_finishes_whatever_moment_it_was(tmp_path: Path, guarded: bool) -> None:
    new = fragment("two", guarded, more=True)
    reference = make(tmp_path / "host", guarded)
    finish(reference, new)
    wanted, moments = whole(reference), 0
    for moment, host in every_moment(tmp_path / "host", guarded, lambda host: finish(host, new)):
        finish(host, new)
        assert whole(host) == wanted, f"killed before operation {moment}"
        assert not host.present(new)["changed"], f"killed before operation {moment}"
        moments = moment
    assert moments > 40  # there are many


@pytest.mark.parametrize("then", ["at its time", "after a reboot"])
def test_the_switch_alone_brings_the_earlier_or_leaves_the_new_generation(tmp_path: Path, then: str) -> None:
    """Nobody comes back: one whole generation stands, and no switch is left."""
    new = fragment("two", True, more=True)
    old, reference = whole(make(tmp_path / "host", True)), make(tmp_path / "host", True)
    finish(reference, new)
    whole_ones = (old, whole(reference))
    for moment, host in every_moment(tmp_path / "host", True, lambda host: finish(host, new)):
        service = f"etc/systemd/system/{SWITCH}.service"
        fires = (host.base / service).exists() if then == "after a reboot" else bool(host.did("systemd-run"))
        if then == "after a reboot":
            host.reboot("boot-2")
        if fires:
            recovery.fire(host, "rack")
        left = {path: what for path, what in whole(host).items() if not path.endswith(".sideband")}
        if service in left:
            continue  # killed while the switch itself was being set: the next run takes it away, see above
        left.pop("var/lib/sideband/generations/rack/.state.pyz.sideband", None)
        same = [each for each in whole_ones if _but_books(each) == _but_books(left)]
        assert same, f"killed before operation {moment}"


def _but_books(found: dict[str, Any]) -> dict[str, Any]:
    skipped = ("var/lib/sideband/generations", "etc/systemd/system/sysinit.target.wants", "proc/")
    return {path: what for path, what in found.items() if not path.startswith(skipped)}


@pytest.mark.parametrize("guarded", [False, True])
def test_removal_after_any_moment_leaves_nothing(tmp_path: Path, guarded: bool) -> None:
    bare = FakeHost(tmp_path / "bare", systemd=True)
    before = tree(bare.base)
    for moment, host in every_moment(
        tmp_path / "host", guarded, lambda host: finish(host, fragment("two", guarded, more=True))
    ):
        host.perform("absent")
        assert tree(host.base) == before, f"killed before operation {moment}"


@pytest.mark.parametrize("guarded", [False, True])
def test_a_killed_removal_is_finished_by_the_next(tmp_path: Path, guarded: bool) -> None:
    before = tree(FakeHost(tmp_path / "bare", systemd=True).base)
    for moment, host in every_moment(tmp_path / "host", guarded, lambda host: host.perform("absent")):
        host.perform("absent")
        assert tree(host.base) == before, f"killed before operation {moment}"
