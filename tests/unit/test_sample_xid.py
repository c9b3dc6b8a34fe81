"""Xid errors are counted, each one, also through rotation, restart and forgery (case 43)."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from services.nodeagent import kernel_log
from services.nodeagent.gpus import pci_address
from services.nodeagent.kernel_log import Xids, find

PCI = "00000000:3B:00.0"
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
PREEMPTED = "NVRM: Xid (PCI:0000:3b:00): 45, pid=4242, name=train\n"


def xids(directory: Path, log: Path | None = None) -> Xids:
    return Xids(str(log or directory / "log"), str(directory / "state"))


def test_several_within_one_interval_all_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    counted = xids(tmp_path)
    counted.poll()
    log.write_text(FALLEN + "something else\n" + PREEMPTED + FALLEN)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 2, (PCI, "45"): 1}
    counted.poll()
    assert counted.counts == {(PCI, "79"): 2, (PCI, "45"): 1}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (FALLEN, (PCI, "79")),
        ("NVRM: Xid (PCI:0000:3b:00): 045, x", (PCI, "45")),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=1, name=python", (PCI, "43")),  # of a MIG part
        ("NVRM: Xid (0000:3b:00): 13, Graphics Exception", (PCI, "13")),
        ("NVRM: Xid (PCI:0000:3b:00.0): 63", (PCI, "63")),
        ("NVRM: Xid (PCI:0000:3b:00): many", None),
        ("NVRM: Xid (PCI:nowhere): 79", None),
        ("NVRM: Xid (PCI:0000:3b:00): 79999999", None),
        ("SXid (PCI:0000:3b:00): 79", None),
    ],
)
def test_lines_are_understood(line: str, expected: tuple[str, str] | None) -> None:
    assert find(line) == expected


@pytest.mark.parametrize(
    "head", ["Jan  1 00:00:01 n kernel: [1.2] ", "Jan  1 00:00:01 n kernel: ", "[    1.25] ", ""]
)
def test_a_log_daemons_head_is_stepped_over(head: str) -> None:
    assert find(head + FALLEN, headed=True) == (PCI, "79")


@pytest.mark.parametrize("headed", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        'overlayfs: unrecognized mount option "{}" or missing value',
        'n kernel: overlayfs: unrecognized mount option " kernel: {}" or missing value',
        "traps: x kernel: [1.2] y kernel: {}",
    ],
)
def test_words_that_a_user_gave_the_kernel_are_no_xid(line: str, headed: bool) -> None:
    """Any user may mount in a name space of his own, and the kernel logs options that it does not know."""
    assert find(line.format(FALLEN.strip()), headed) is None


@given(some.text())
def test_no_text_upsets_it(text: str) -> None:
    find(text)
    find("NVRM: Xid (PCI:" + text + "): 79")
    pci_address(text)


@settings(max_examples=40)
@given(some.lists(some.sampled_from([FALLEN, PREEMPTED, "noise\n", "NVRM: Xid (cut\n"])), some.data())
def test_however_it_arrives_each_counts_once(lines: list[str], data: some.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "log").write_text("")
        counted = xids(directory)
        counted.poll()
        text = "".join(lines)
        while text:
            size = data.draw(some.integers(1, len(text)))
            with (directory / "log").open("a") as file:
                file.write(text[:size])
            text = text[size:]
            counted.poll()
            if data.draw(some.booleans()):  # restarted
                counted.close()
                counted = xids(directory)
            elif data.draw(some.booleans()) and not text:
                (directory / "log").replace(directory / "log.1")
                (directory / "log").write_text("")
                counted.poll()
        assert counted.counts[(PCI, "79")] == lines.count(FALLEN)
        assert counted.counts[(PCI, "45")] == lines.count(PREEMPTED)
        counted.close()


def test_rotation_and_truncation_lose_nothing_that_was_read_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(FALLEN)
    counted = xids(tmp_path)
    counted.poll()
    with log.open("a") as file:
        file.write(FALLEN)
    log.replace(tmp_path / "log.1")  # renamed with a line that nobody has read yet
    log.write_text(PREEMPTED)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 2, (PCI, "45"): 1}
    log.write_text("")
    counted.poll()
    log.write_text(PREEMPTED)
    counted.poll()
    assert counted.counts[(PCI, "45")] == 2


def test_a_log_that_is_not_there_is_said_and_taken_up_later(tmp_path: Path) -> None:
    counted = xids(tmp_path)
    counted.poll()
    assert "No such file" in counted.problem
    (tmp_path / "log").write_text(FALLEN)
    counted.poll()
    assert (counted.problem, counted.counts) == ("", {(PCI, "79"): 1})


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"counts": [[1]]}', '{"counts": [["a", "b", "c"]]}', "\x00"]
)
def test_damaged_state_begins_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "state").write_text(damage)
    (tmp_path / "log").write_text(FALLEN)
    counted = xids(tmp_path)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 1}


def test_no_log_makes_series_without_end(tmp_path: Path) -> None:
    lines = [f"NVRM: Xid (PCI:0000:{bus:02x}:00): {number}\n" for bus in range(4) for number in range(400)]
    (tmp_path / "log").write_text("".join(lines))
    counted = xids(tmp_path)
    counted.poll()
    assert len(counted.counts) == 257
    assert sum(counted.counts.values()) == 1600


class Ring:
    """/dev/kmsg, as os.read sees it."""

    def __init__(self, *records: bytes | int) -> None:
        self.records = list(records)
        self.at = 0

    def read(self, handle: int, size: int) -> bytes:
        if self.at == len(self.records):
            raise BlockingIOError
        self.at += 1
        one = self.records[self.at - 1]
        if isinstance(one, int):
            raise OSError(one, os.strerror(one))
        return one


def record(sequence: int, text: str, priority: int = 4) -> bytes:
    return f"{priority},{sequence},100,-;{text}".encode()


def ring(monkeypatch: pytest.MonkeyPatch, *records: bytes | int) -> Ring:
    made = Ring(*records)
    monkeypatch.setattr(kernel_log.os, "read", made.read)
    monkeypatch.setattr(kernel_log.stat, "S_ISCHR", lambda mode: True)
    return made


def test_the_kernels_ring_counts_once_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").touch()
    records = (record(0, FALLEN), record(1, "else"), record(2, PREEMPTED))
    ring(monkeypatch, *records)
    counted = xids(tmp_path)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 1, (PCI, "45"): 1}
    ring(monkeypatch, *records, record(3, FALLEN))  # a new process reads from the oldest on
    counted = xids(tmp_path)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 2, (PCI, "45"): 1}


def test_after_a_boot_numbers_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").touch()
    ring(monkeypatch, record(500, FALLEN))
    xids(tmp_path).poll()
    state = json.loads((tmp_path / "state").read_text())
    (tmp_path / "state").write_text(json.dumps({**state, "boot": "another"}))
    ring(monkeypatch, record(3, FALLEN))
    counted = xids(tmp_path)
    counted.poll()
    assert counted.counts == {(PCI, "79"): 2}


def test_an_overwritten_record_is_counted_as_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").touch()
    ring(monkeypatch, record(1, FALLEN), errno.EPIPE, record(9, FALLEN))
    counted = xids(tmp_path)
    counted.poll()
    assert (counted.counts[(PCI, "79")], counted.lost) == (2, 1)


def test_a_program_that_writes_to_the_ring_is_not_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").touch()
    ring(monkeypatch, record(1, FALLEN, priority=12), b"junk", b"4;x", record(2, PREEMPTED))
    counted = xids(tmp_path)
    counted.poll()
    assert counted.counts == {(PCI, "45"): 1}
