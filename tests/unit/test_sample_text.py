"""What is written for node_exporter is whole and sound, or not written (case 47)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from services import durable
from services.nodeagent import exposition
from services.nodeagent.exposition import Family, LintError, lint, publish, render

HEAD = "# HELP job_ok one\n# TYPE job_ok gauge\n"

BAD = {
    "cut": HEAD + 'job_ok{j="c',
    "no end": HEAD + 'job_ok{j="c"} 1',
    "twice": HEAD + 'job_ok{j="b"} 1\njob_ok{j="b"} 1\n',
    "twice in another order": HEAD + 'job_ok{a="1",b="2"} 1\njob_ok{b="2",a="1"} 1\n',
    "two helps": HEAD + "# HELP job_ok two\njob_ok 1\n",
    "two types": HEAD + "# TYPE job_ok gauge\njob_ok 1\n",
    "no type": "# HELP job_ok one\njob_ok 1\n",
    "no help": "# TYPE job_ok gauge\njob_ok 1\n",
    "unknown type": "# HELP job_ok one\n# TYPE job_ok thing\njob_ok 1\n",
    "torn apart": HEAD + "job_ok 1\n# HELP x y\n# TYPE x gauge\nx 1\njob_ok 2\n",
    "a word": HEAD + "job_ok N/A\n",
    "no number": HEAD + "job_ok NaN\n",
    "no end of numbers": HEAD + "job_ok +Inf\n",
    "a time": HEAD + "job_ok 1 1700000000000\n",
    "a label twice": HEAD + 'job_ok{a="1",a="2"} 1\n',
    "a bad name": HEAD + "job-ok 1\n",
    "a bad label": HEAD + 'job_ok{a-b="1"} 1\n',
    "a bare quote": HEAD + 'job_ok{a="x"y"} 1\n',
    "a bare backslash": HEAD + 'job_ok{a="\\d"} 1\n',
    "an empty line": HEAD + "\njob_ok 1\n",
    "a blank comment": "# \n",
}


@pytest.mark.parametrize("kind", BAD)
def test_what_breaks_a_scrape_is_refused(kind: str) -> None:
    with pytest.raises(LintError):
        lint(BAD[kind])


@pytest.mark.parametrize("text", ["", HEAD, HEAD + 'job_ok{j="a"} 1\njob_ok{j="b\\"\\\\\\n"} 1e-05\n'])
def test_what_is_sound_passes(text: str) -> None:
    lint(text)


TEXTS = some.text(some.characters(exclude_categories=["Cs"]), max_size=30)
NUMBERS = some.one_of(some.integers(-(2**70), 2**70), some.floats(allow_nan=False, allow_infinity=False))


@given(some.dictionaries(TEXTS, some.tuples(TEXTS, NUMBERS), max_size=8))
def test_any_texts_as_label_values_make_sound_text(samples: dict[str, tuple[str, float]]) -> None:
    family = Family("x_total", "counter", "Something.")
    for one, (other, value) in samples.items():
        family.add(value, one=one, other=other)
    text = render([family])
    lint(text)
    assert len(text.split("\n")) - 1 == (len(samples) + 2 if samples else 0)


def test_what_has_no_value_is_no_sample() -> None:
    """Case 40."""
    family = Family("x", "gauge", "Something.")
    family.add(None, gpu="0")
    assert render([family]) == ""
    family.add(0, gpu="1")
    assert 'x{gpu="1"} 0\n' in render([family])


def test_a_bad_text_never_replaces_a_good_one(tmp_path: Path) -> None:
    path = tmp_path / "sample.prom"
    good = Family("x", "gauge", "Something.", [({"gpu": "0"}, 1)])
    publish(str(path), [good])
    before = path.read_text()
    good.samples.append(({"gpu": "0"}, 2))
    with pytest.raises(LintError):
        publish(str(path), [good])
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["sample.prom"]


def test_a_full_disk_leaves_the_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sample.prom"
    publish(str(path), [Family("x", "gauge", "Something.", [({}, 1)])])
    before = path.read_text()

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        publish(str(path), [Family("x", "gauge", "Something.", [({}, 2)])])
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["sample.prom"]


def test_the_lint_stands_between_text_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "render", lambda families: BAD["cut"])
    with pytest.raises(LintError):
        publish(str(tmp_path / "x.prom"), [])
    assert not list(tmp_path.iterdir())
