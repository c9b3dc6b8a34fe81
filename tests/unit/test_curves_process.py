"""The built archive as omprog runs it, against a small vmagent (C11, L3)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from curves_kit import FakeVmagent, fake_vmagent, named, observed, raw, texts

from services import build
from services.curves import program
from services.curves.fold import Fold, Limits


class Omprog:
    """The half of the protocol that rsyslog speaks."""

    def __init__(self, archive: Path, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(archive), str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.answer() == "OK"

    def answer(self, timeout: float = 10.0) -> str | None:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        return os.read(self.process.stdout.fileno(), 4096).decode().rstrip("\n") if ready else None

    def send(self, line: bytes) -> str | None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=10)
        return self.process.returncode, errors.decode()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    build.build(directory)
    return directory / "curves.pyz"


@pytest.fixture
def vmagent() -> Iterator[FakeVmagent]:
    with fake_vmagent() as one:
        yield one


def written(directory: Path, url: str, **limits: int) -> Path:
    (directory / "state").mkdir(exist_ok=True)
    path = directory / "curves.json"
    value = {"url": url, "state_directory": str(directory / "state"), "limits": limits}
    path.write_text(json.dumps(value))
    return path


def line(step: int, message: str = "", **more: Any) -> bytes:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc) + timedelta(microseconds=step * 400)
    message = message or f"step {step} loss {100 - step / 8}"
    return raw(moment.isoformat(timespec="microseconds"), message, **more)


def wanted(lines: list[bytes]) -> list[str]:
    fold = Fold(Limits())
    return [text.strip() for one in lines for item in observed(one) for text in texts(fold.feed(item))]


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_lines_are_confirmed_one_by_one_and_arrive_with_their_own_time(
    archive: Path, vmagent: FakeVmagent, tmp_path: Path
) -> None:
    omprog = Omprog(archive, written(tmp_path, vmagent.url))
    lines = [line(step) for step in range(200)]
    started = time.monotonic()
    assert [omprog.send(one) for one in lines] == ["OK"] * 200
    confirmed = time.monotonic()
    assert eventually(lambda: len(vmagent.curve()) == 400)
    assert time.monotonic() - confirmed < 2.0
    assert vmagent.curve() == wanted(lines)
    assert vmagent.requests <= 3 + 2 * (confirmed - started)  # in batches
    assert omprog.close() == (0, "")


def test_odd_records_are_confirmed_and_counted(archive: Path, vmagent: FakeVmagent, tmp_path: Path) -> None:
    omprog = Omprog(archive, written(tmp_path, vmagent.url, line_bytes=5000))
    now = datetime.now(timezone.utc)
    odd = [
        b"BEGIN TRANSACTION\n",
        b"[" * 4000 + b"\n",
        raw("Dec 31 23:59:59", "loss=1"),
        raw("0001-01-01T00:00:00Z", "loss=1"),
        raw((now + timedelta(days=2)).isoformat(), "loss=1"),
        raw("2026-01-02T03:04:05Z", "x" * 6000),
        raw("2026-01-02T03:04:05Z", "loss=1", tenant="t" * 200),
        raw("2026-01-02T03:04:05Z", "nothing to see"),
        raw("2026-01-02T03:04:05Z", "loss=1", job=""),
        b"\xff\xfe\n",
    ]
    assert [omprog.send(one) for one in odd] == ["OK"] * len(odd)
    assert omprog.send(line(1)) == "OK"
    code, errors = omprog.close()
    assert code == 0, errors
    assert vmagent.curve() == wanted([line(1)])
    again = Omprog(archive, written(tmp_path, vmagent.url, line_bytes=5000))
    assert [again.send(one) for one in odd] == ["OK"] * len(odd)
    assert eventually(lambda: vmagent.requests >= 2)
    again.close()


def test_what_the_program_drops_is_pushed_by_reason(
    archive: Path, vmagent: FakeVmagent, tmp_path: Path
) -> None:
    config = written(tmp_path, vmagent.url, line_bytes=5000, validation_names=1)
    first = Omprog(archive, config)
    assert first.send(b"no json\n") == "OK"
    assert first.send(b"x" * 9000 + b"\n") == "OK"
    assert first.send(line(1, message="step 1 val_a=1 val_b=2")) == "OK"
    assert first.send(line(1, message="step 1 val_a=1 val_b=2")) == "OK"
    first.close()  # it says its last before it ends
    for reason in ("malformed", "line_too_long", "validation_names"):
        assert vmagent.own(f'sideband_curves_dropped_total{{reason="{reason}"}}') == 1.0
    assert vmagent.own('sideband_curves_skipped_total{reason="replayed"}') == 1.0
    assert vmagent.own("sideband_curves_records_total") == 4.0
    assert vmagent.own("sideband_curves_queue_bytes") == 0.0
    second = Omprog(archive, config)
    assert eventually(lambda: vmagent.own("sideband_curves_records_total") == 0.0)
    assert vmagent.own('sideband_curves_dropped_total{reason="validation_names"}') == 1.0
    second.close()


def test_a_record_of_several_lines(archive: Path, vmagent: FakeVmagent, tmp_path: Path) -> None:
    """Case 77: a traceback in one record, with a curve's line before it."""
    omprog = Omprog(archive, written(tmp_path, vmagent.url))
    message = (
        'step 9 loss nan\nTraceback (most recent call last):\n  File "t.py"\nRuntimeError: ncclSystemError'
    )
    assert omprog.send(raw("2026-01-02T03:04:05Z", message)) == "OK"
    omprog.close()
    assert [value for value, _ in named(vmagent.curve(), "sideband_nccl_events_total")] == [0, 1]
    assert len(named(vmagent.curve(), "sideband_train_loss_nonfinite")) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_loses_nothing_that_was_confirmed(
    archive: Path, vmagent: FakeVmagent, tmp_path: Path, number: signal.Signals
) -> None:
    config = written(tmp_path, vmagent.url)
    lines = [line(step) for step in range(120)]
    sent = 0
    for round_ in range(6):
        vmagent.cut = round_ % 2 == 1
        omprog = Omprog(archive, config)
        for one in lines[max(0, sent - 15) : sent + 20]:  # rsyslog sends some again
            assert omprog.send(one) == "OK"
        sent += 20
        time.sleep(0.3 * (round_ % 3))
        omprog.process.send_signal(number)
        omprog.process.communicate()
    vmagent.cut = False
    last = Omprog(archive, config)
    assert eventually(lambda: set(vmagent.curve()) == set(wanted(lines)))
    last.close()


def test_without_vmagent_no_more_is_confirmed_than_the_queue_holds(
    archive: Path, vmagent: FakeVmagent, tmp_path: Path
) -> None:
    vmagent.status = 503
    config = written(tmp_path, vmagent.url, queue_bytes=3000)
    omprog = Omprog(archive, config)
    lines = [line(step) for step in range(60)]
    answers: list[str | None] = []
    for one in lines:
        answers.append(omprog.send(one))
        if answers[-1] != "OK":
            break
    assert answers[-1] == "queue full: vmagent takes nothing"
    confirmed = len(answers) - 1
    assert 10 < confirmed < 40
    vmagent.status = 204
    assert eventually(lambda: set(vmagent.curve()) == set(wanted(lines[:confirmed])), 20)
    assert [omprog.send(one) for one in lines[confirmed:]] == ["OK"] * (60 - confirmed)
    code, errors = omprog.close()
    assert code == 0
    assert "samples wait here" in errors
    assert vmagent.curve() == wanted(lines)


def test_a_second_program_waits_for_the_first(archive: Path, vmagent: FakeVmagent, tmp_path: Path) -> None:
    config = written(tmp_path, vmagent.url)
    first = Omprog(archive, config)
    second = subprocess.Popen(
        [sys.executable, "-I", str(archive), str(config)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert second.stdout is not None
    assert not select.select([second.stdout], [], [], 1.0)[0]
    first.close()
    assert second.stdout.readline() == b"OK\n"
    second.communicate()


def test_a_disk_that_takes_nothing_confirms_nothing(
    archive: Path, vmagent: FakeVmagent, tmp_path: Path
) -> None:
    config = written(tmp_path, vmagent.url)
    (tmp_path / "state" / "journal.jsonl").symlink_to("/dev/full")
    omprog = Omprog(archive, config)
    assert omprog.send(line(1)) in ("", None)  # it ended without an answer
    code, errors = omprog.close()
    assert code == 1
    assert "No space left" in errors


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"url": "https://a:1"}, "url: http://ADDRESS:PORT/PATH?QUERY is needed"),
        ({"url": "http://127.0.0.1"}, "url: http://ADDRESS:PORT/PATH?QUERY is needed"),
        ({"state_directory": ""}, "state_directory: a path is needed"),
        ({"limits": {"jobs": "many"}}, "limits.jobs: a number"),
        ({"limits": {"job": 1}}, "limits.job: a number for one of jobs"),
        ({"limits": {"jobs": 0}}, "limits.jobs: 1 to 2"),
        ({"limits": []}, "limits.: a number"),
        ({"rack": "r"}, "rack: not known"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], reason: str
) -> None:
    path = written(tmp_path, "http://127.0.0.1:8429")
    assert program.main(["--check", str(path)]) == 0
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert program.main(["--check", str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_the_same_sources_give_the_same_bytes_and_no_yaml_on_the_host(archive: Path) -> None:
    assert build.archive("curves") == archive.read_bytes()
    assert not [name for name in build.members("curves") if name.endswith(".yml") or "rulebook" in name]
