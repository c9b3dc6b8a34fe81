"""What a node reads: lines, joining, times, envelopes, rotation (L1, L2, L6; cases 76, 77, 80)."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.configuration import ConfigError
from services.nodeagent.identity import tenants
from services.tail import formats, moment, program, wanted
from services.tail.files import Files
from services.tail.follow import Swapped, open_file
from services.tail.line import Line, Splitter
from services.tail.stream import Record, Rule, Stream
from services.tail.wanted import Wanted

NOW = 1_796_000_000_000_000


def value(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.text.split(b" - - - ", 1)[1])
    return found


def messages(records: list[Record]) -> list[str]:
    return [value(one)["message"] for one in records]


def fed(text: str, **more: Any) -> list[Record]:
    stream = Stream("s", {}, "n1", **more)
    lines = Splitter(0).feed(text.encode())
    return stream.feed(lines, 0.0) + stream.flush(9.0)


# -- lines --------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), max_size=20), st.integers(1, 70), st.integers(8, 40))
@settings(max_examples=200, deadline=None)
def test_however_bytes_come_the_lines_cover_them_without_gap_or_overlap(
    pieces: list[bytes], size: int, most: int
) -> None:
    data = b"".join(pieces)
    splitter = Splitter(5, most)
    lines: list[Line] = []
    for at in range(0, len(data), size):
        lines += splitter.feed(data[at : at + size])
    lines += splitter.flush()
    places = [(line.at, line.end) for line in lines]
    assert [start for start, _ in places] == ([5] + [end for _, end in places])[: len(places)]
    assert (places[-1][1] if places else 5) == 5 + len(data)
    assert all(end - start <= most + 1 for start, end in places)


def test_a_cut_takes_no_character_apart() -> None:
    lines = Splitter(0, 10).feed(("ä" * 12 + "\n").encode())
    assert "".join(line.text for line in lines) == "ä" * 12
    assert [line.part for line in lines] == [True, True, False]


TRACE = (
    'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    main()\nRuntimeError: NCCL'
)


@pytest.mark.parametrize(
    "records",
    [
        ["a", "b"],
        [f"ERROR step 9\n{TRACE}", "step 10 loss 1"],
        [
            f"{TRACE}\n\nDuring handling of the above exception, another exception occurred:\n\n{TRACE}",
            "next",
        ],
        [f"[rank3]: {TRACE}".replace("\n", "\n[rank3]: "), "step 1"],
        ["java.lang.Oops: x\n\tat a.b(C.java:1)\n\t... 3 more\nCaused by: y\n\tat d", "step 2"],
        [" iteration 1/ 9 | lm loss: 1", " iteration 2/ 9 | lm loss: 1"],
        ["KeyboardInterrupt", "x: 1"],
    ],
)
def test_what_belongs_together_is_one_record(records: list[str]) -> None:
    """Case 77."""
    made = fed("\n".join(records) + "\n")
    assert messages(made) == records
    values = [value(one) for one in made]
    assert [one["from"] for one in values[1:]] == [one["to"] for one in values[:-1]]
    for one in values:
        assert sum(one.get("cuts", [one["to"] - one["offset"]])) == one["to"] - one["offset"]


def test_what_is_left_out_is_covered_by_the_next_record() -> None:
    def choose(labels: dict[str, str]) -> Rule:
        return Rule(least="error")

    made = fed("INFO a\n\nERROR b\nINFO c\nERROR d\n", choose=choose)
    values = [value(one) for one in made]
    assert [(one["from"], one["offset"], one["to"]) for one in values] == [(0, 8, 16), (16, 23, 31)]


def test_sampling_judges_a_line_as_before() -> None:
    rule = Rule(one_of=10)
    kept = [at for at in range(10_000) if rule.keeps("info", "s", at)]
    assert 800 < len(kept) < 1200
    assert kept == [at for at in range(10_000) if rule.keeps("info", "s", at)]


# -- times --------------------------------------------------------------------------------------------------


def utc(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("text", "read", "own"),
    [
        ("2026-01-02T03:04:05.678901Z x", "2026-01-02 03:05:00", "2026-01-02 03:04:05.678901"),
        ("[2026-01-02 03:04:05,678] x", "2026-01-02 03:05:00", "2026-01-02 03:04:05.678"),
        ("2026-01-02T11:04:05+08:00", "2026-01-02 03:05:00", "2026-01-02 03:04:05"),
        ("2026/01/02 03:04:05 x", "2026-01-02 03:05:00", "2026-01-02 03:04:05"),
        ("Dec 31 23:59:59 n1 app: err", "2026-01-01 00:00:01", "2025-12-31 23:59:59"),
        ("Jan  1 00:00:01 n1 app: err", "2026-01-01 00:00:02", "2026-01-01 00:00:01"),
        ("I0102 03:04:05.678901 1 x.cc:1] x", "2026-01-02 03:05:00", "2026-01-02 03:04:05.678901"),
    ],
)
def test_a_line_s_own_time(text: str, read: str, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 80: a year that is not said is the one that makes sense."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert moment.own_time(text, utc(read)) == utc(own)


@pytest.mark.parametrize(
    "text",
    ["step 1", "0001-01-01T00:00:00Z", "2026-13-01 00:00:00", "2027-06-01T00:00:00Z", "Feb 30 00:00:00"],
)
def test_a_time_that_cannot_be_is_none(text: str) -> None:
    assert moment.own_time(text, utc("2026-05-01 00:00:00")) == 0


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("2026 ERROR x", "error"), ("W0102 03:04:05.1 x", "warning"), ("level=warn x", "warning"),
        (TRACE, "error"),
        ("CRITICAL", "critical"), ("an error of mine", "info"),
    ],
)  # fmt: skip
def test_how_grave_a_line_is(text: str, severity: str) -> None:
    assert moment.severity(text) == severity


# -- envelopes ----------------------------------------------------------------------------------------------


def test_containers_envelopes_are_taken_off() -> None:
    """Docker, CRI and Podman; parts are joined again."""
    docker = '{"log":"a\\n","stream":"stdout","time":"2026-01-02T03:04:05.678901234Z"}\n'
    docker += '{"log":"long ","stream":"stderr"}\n{"log":"line\\n","stream":"stderr"}\nnot json\n'
    cri = "2026-01-02T03:04:05.678901234Z stdout F a\n2026-01-02T03:04:06Z stderr P long \n"
    cri += "2026-01-02T03:04:07Z stderr F line\nodd\n"
    for text, form, odd in ((docker, formats.docker, "not json"), (cri, formats.cri, "odd")):
        stream = Stream("s", {}, "n1", own_times=False)
        made = stream.feed([form(line) for line in Splitter(0).feed(text.encode())], 0.0) + stream.flush(9.0)
        assert messages(made) == ["a", "long line", odd]
        assert value(made[0])["time"] == "2026-01-02T03:04:05.678901Z"


def test_containers_are_found_with_whose_they_are(tmp_path: Path) -> None:
    identity = "a" * 64
    docker = tmp_path / f"docker/{identity}/{identity}-json.log"
    pod = tmp_path / "pods/alpha_train-0_0f0f/main/0.log"
    for path in (docker, pod):
        path.parent.mkdir(parents=True)
        path.touch()
    jobs = wanted.Jobs(str(tmp_path / "none.json"))
    jobs.by_name["container-aaaaaaaaaaaa"] = wanted.Owner("container-aaaaaaaaaaaa", "beta", "bob")
    roots = [str(tmp_path / "docker/*/*-json.log"), "/nonexistent", str(tmp_path / "pods/*/*/*.log")]
    found = {
        one.path: one for one in wanted.containers(jobs, tenants({"namespaces": {"alpha": "alpha"}}), roots)
    }
    assert found[str(docker)].labels["tenant"] == "beta"
    assert (found[str(docker)].form, found[str(pod)].form) == ("docker", "cri")
    labels = {
        "source": "container",
        "container": "main",
        "pod": "train-0",
        "namespace": "alpha",
        "tenant": "alpha",
    }
    assert found[str(pod)].labels == labels


# -- files --------------------------------------------------------------------------------------------------


def read(files: Files, clock: float) -> list[str]:
    made = files.read(clock, 10_000, 1 << 20)
    for follower, record in made:
        follower.taken(record)
    return messages([record for _, record in made])


def settled(files: Files, clock: float) -> list[str]:
    return read(files, clock) + read(files, clock + 2) + read(files, clock + 9)


def listed(folder: Path) -> list[Wanted]:
    return list(wanted.listed([{"path": f"{folder}/*.log"}]))


def test_a_rotation_by_renaming_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Case 76, also while nobody looks, and twice."""
    log = tmp_path / "app.log"
    log.write_text("1\n2\n")
    files = Files("n1")
    files.want(listed(tmp_path), 0.0)
    assert settled(files, 1.0) == ["1", "2"]
    with log.open("a") as file:
        file.write("3\n")
    log.rename(tmp_path / "app.log.1")
    log.write_text("4\n")
    log.rename(tmp_path / "app.log.0")
    log.write_text("5\n")
    files.want(listed(tmp_path), 20.0)
    assert sorted(settled(files, 21.0)) == ["3", "4", "5"]
    entries = files.entries()
    (tmp_path / "app.log.1").unlink()
    with log.open("a") as file:
        file.write("6\n")
    log.rename(tmp_path / "app.log.2")
    log.write_text("7\n")
    again = Files("n1")
    again.remember(entries)
    again.finish_old(0.0)
    again.want(listed(tmp_path), 0.0)
    assert sorted(settled(again, 1.0)) == ["6", "7"]


def test_a_truncation_is_told_and_begins_a_new_stream(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one line\nand one\n")
    files = Files("n1")
    files.want(listed(tmp_path), 0.0)
    assert settled(files, 1.0) == ["one line", "and one"]
    follower = next(iter(files.open.values()))
    before = follower.stream.name
    log.write_text("")
    with log.open("a") as file:
        file.write("something longer than what was there before\n")  # grown again before we look
    assert settled(files, 30.0) == ["something longer than what was there before"]
    assert (follower.truncated, follower.stream.name != before) == (1, True)


def test_a_users_path_is_not_followed_to_somebody_else_s_file(tmp_path: Path) -> None:
    secret, mine = tmp_path / "secret", tmp_path / "mine.log"
    secret.write_text("s\n")
    mine.write_text("m\n")
    status = mine.stat()
    os.close(open_file(str(mine), status.st_dev, status.st_ino, None))
    mine.unlink()
    mine.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        open_file(str(mine), status.st_dev, status.st_ino, None)
    with pytest.raises(Swapped, match="another file"):
        open_file(str(secret), status.st_dev, status.st_ino + 1, None)
    with pytest.raises(Swapped, match="another owner"):
        open_file(str(secret), None, None, frozenset({os.getuid() + 1}))
    with pytest.raises(Swapped, match="no regular file"):
        open_file("/dev/null", None, None, None)


def test_a_job_s_file_stays_its_own_when_it_is_closed_between_lines(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    status = log.stat()
    file = {"path": str(log), "read_path": str(log), "device": status.st_dev, "inode": status.st_ino}
    job = {"job": "u1-2-3", "tenant": "alpha", "user": "ann", "processes": [{"pid": 7}], "files": [file]}
    path.write_text(json.dumps({"jobs": [job]}))
    jobs = wanted.Jobs(str(path))
    jobs.refresh()
    assert jobs.by_pid[7].labels() == {"job": "u1-2-3", "tenant": "alpha", "owner": "ann"}
    path.unlink()
    path.write_text(json.dumps({"jobs": [{**job, "files": []}]}))
    jobs.refresh()
    assert [one.path for one in jobs.files] == [str(log)]
    path.unlink()
    path.write_text(json.dumps({"jobs": []}))
    jobs.refresh()
    assert jobs.files == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"port": 0}, "port: a whole number from 1 to 65535 is needed (got 0)"),
        ({"rules": [{"least": "loud"}]}, "rules: a list of {source, unit, path, least, one_of} is needed"),
        ({"paths": [{"path": "x"}]}, "paths: a list of {path, tenant} is needed"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "logs.json"
    path.write_text(json.dumps(change))
    with pytest.raises(ConfigError, match=re.escape(problem)):
        program.load(str(path))
