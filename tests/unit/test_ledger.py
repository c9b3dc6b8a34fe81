"""The book of a rollout: whole or not at all, and resumed where it stopped (cases 13, 14)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sideband import ledger as book

STEPS = {"canary": ["n1"], "early": ["n2"], "fleet_1": ["n3", "n4"]}


def fresh(release: str = "a", old: book.Ledger | None = None) -> book.Ledger:
    return book.begin(old, "lab", release, STEPS, now=1.0)


def test_steps_come_one_after_the_other() -> None:
    ledger = fresh()
    assert book.following(ledger) is ledger.entry("canary")
    ledger.move("canary", book.APPLYING)
    assert book.following(ledger) is ledger.entry("canary")
    ledger.move("canary", book.PASSED)
    assert book.following(ledger) is ledger.entry("early")


def test_a_failed_step_stands_in_the_way_of_later_ones() -> None:
    ledger = fresh()
    for state in (book.APPLYING, book.REVERTING, book.FAILED):
        ledger.move("canary", state)
    assert book.following(ledger) is None


def test_a_step_cannot_pass_that_was_not_begun_or_was_judged_bad() -> None:
    ledger = fresh()
    with pytest.raises(book.LedgerError, match="cannot go from waiting to passed"):
        ledger.move("canary", book.PASSED)
    ledger.move("canary", book.APPLYING)
    ledger.move("canary", book.REVERTING)
    with pytest.raises(book.LedgerError, match="cannot go from reverting to passed"):
        ledger.move("canary", book.PASSED)


def test_the_same_release_goes_on_where_it_stopped_and_keeps_what_was_before() -> None:
    ledger = fresh()
    ledger.move("canary", book.APPLYING)
    ledger.move("canary", book.PASSED)
    ledger.move("early", book.APPLYING).before = {"n2": {"generations": {"node": {"number": 3}}}}
    again = fresh("a", ledger)
    assert book.following(again) is again.entry("early")
    early = again.entry("early")
    assert early is not None
    assert early.before == {"n2": {"generations": {"node": {"number": 3}}}}
    assert book.to_take_back(ledger, "a") == {}


def test_another_release_takes_back_what_was_left_between_first() -> None:
    ledger = fresh()
    ledger.move("canary", book.APPLYING).before = {"n1": {"boot": "x"}}
    assert book.to_take_back(ledger, "b") == {"n1": {"boot": "x"}}
    assert book.following(fresh("b", ledger)).name == "canary"  # type: ignore[union-attr]


def test_a_step_that_was_being_taken_back_is_taken_back_first_by_any_release() -> None:
    ledger = fresh()
    ledger.move("canary", book.APPLYING).before = {"n1": {"boot": "x"}}
    ledger.move("canary", book.REVERTING)
    assert book.to_take_back(ledger, "a") == {"n1": {"boot": "x"}}


def test_a_passed_step_with_other_hosts_is_done_again() -> None:
    ledger = fresh()
    ledger.move("canary", book.APPLYING)
    ledger.move("canary", book.PASSED)
    other = book.begin(ledger, "lab", "a", {**STEPS, "canary": ["n1", "n9"]})
    assert other.entry("canary").state == book.WAITING  # type: ignore[union-attr]


def test_what_an_interruption_kept_is_not_overwritten_by_a_second_look(tmp_path: Path) -> None:
    ledger = fresh()
    ledger.move("canary", book.APPLYING).before = {"n1": {"boot": "first"}}
    again = fresh("a", ledger)
    given = {"step": "canary", "before": {"n1": {"boot": "second"}}, "cause": "", "failed": {}}
    answer, _, dirty = book.act("applying", given, again, False)
    assert dirty
    assert answer["before"] == {"n1": {"boot": "first"}}


def test_the_file_is_private_whole_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "rollout.json"
    book.save(str(path), fresh())
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert os.listdir(path.parent) == ["rollout.json"]
    assert book.load(str(path)) == fresh()


def test_a_failed_write_leaves_the_old_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rollout.json"
    book.save(str(path), fresh("old"))

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(book.os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        book.save(str(path), fresh("new"))
    monkeypatch.undo()
    assert book.load(str(path)) == fresh("old")
    assert os.listdir(tmp_path) == ["rollout.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"form": 99}', '{"form": 1, "steps": [{"x": 1}]}', "{"])
def test_a_damaged_book_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(book.LedgerError, match="move the file away"):
        book.from_text(text, "rollout.json")


def test_a_dry_run_has_no_book_and_sees_every_step() -> None:
    answer, _, dirty = book.act("enter", {"step": "fleet_1"}, None, True)
    assert answer["run"] is True
    assert dirty is False
    with pytest.raises(book.LedgerError, match="begin one first"):
        book.act("enter", {"step": "fleet_1"}, None, False)


@given(st.lists(st.tuples(st.sampled_from(list(STEPS)), st.sampled_from(book.STATES)), max_size=12))
def test_whatever_happens_the_text_comes_back_and_no_later_step_starts_before(
    moves: list[tuple[str, str]],
) -> None:
    ledger = fresh()
    for name, state in moves:
        try:
            ledger.move(name, state, now=2.0)
        except book.LedgerError:
            continue
    assert book.from_text(book.to_text(ledger)) == ledger
    again = fresh("a", book.from_text(book.to_text(ledger)))
    step = book.following(again)
    names = list(STEPS)
    if step is not None:
        earlier = [again.entry(name) for name in names[: names.index(step.name)]]
        assert all(entry is not None and entry.state == book.PASSED for entry in earlier)
    assert json.loads(book.to_text(again))["form"] == book.FORM
