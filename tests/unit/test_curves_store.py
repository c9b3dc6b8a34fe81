"""What has been confirmed outlives a kill at any moment, and goes out with the same times (C11, case 79)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from curves_kit import SECOND, START, fake_vmagent, named, observation, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from services.curves import spread
from services.curves.fold import Fold, Limits
from services.curves.push import Pusher, Sender
from services.curves.samples import Observation
from services.curves.store import Store


def opened(directory: Path, journal_bytes: int = 1 << 20, **limits: int) -> Store:
    return Store(str(directory), Limits(**limits), lambda text: None, journal_bytes)


def expected(stream: list[Observation]) -> list[str]:
    fold = Fold(Limits())
    return [text for one in stream for text in texts(fold.feed(one))]


def sent(store: Store) -> list[str]:
    parcels = store.batch(1 << 30)
    if parcels:
        store.done(parcels)
    return "".join(parcel.text for parcel in parcels).splitlines(keepends=True)


STREAM = [observation(START + index * 300, index, key=f"{index:x}") for index in range(40)]


@given(
    st.lists(st.sampled_from(["add", "push", "cut", "kill", "kill in add"]), max_size=60),
    st.integers(0, 200),
    st.sampled_from([300, 2000, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_a_kill_at_any_point_loses_nothing_and_changes_no_time(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str], torn: int, journal_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("state")
    store, stream, taken = opened(directory, journal_bytes), list(STREAM), list[str]()
    done: list[Observation] = []
    for act in [*acts, "kill"]:
        if act == "add" and stream:
            done.append(stream.pop(0))
            store.add(done[-1])
        elif act == "push":
            taken += sent(store)
        elif act == "cut":  # vmagent has them, and we do not know
            taken += [parcel.text for parcel in store.batch(700)]
        else:
            if act == "kill in add" and stream:
                size = os.stat(directory / "journal.jsonl").st_size
                store.add(stream[0])  # not confirmed: it comes again
                after = os.stat(directory / "journal.jsonl").st_size
                if after > size:
                    os.truncate(directory / "journal.jsonl", size + min(torn, after - size))
            store.close()
            store = opened(directory, journal_bytes)
    taken += sent(store)
    lines = {line for text in taken for line in text.splitlines(keepends=True)}
    assert lines >= set(expected(done))
    assert lines <= set(expected(STREAM))
    assert store.fold.dropped["state_damaged"] == 0
    assert store.pending_bytes == 0
    store.close()
    shutil.rmtree(directory)


def test_a_kill_between_the_snapshot_and_the_empty_journal_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "LINES", 5)  # so that only the numbers can tell
    stream = [observation(START + index * SECOND) for index in range(20)]
    store = opened(tmp_path)
    for one in stream:
        store.add(one)
    journal = (tmp_path / "journal.jsonl").read_bytes()
    store._snapshot()
    assert (tmp_path / "journal.jsonl").read_bytes() == b""
    store.close()
    (tmp_path / "journal.jsonl").write_bytes(journal)
    again = opened(tmp_path)
    assert sent(again) == expected(stream)
    again.close()


def test_what_was_sent_is_not_sent_again_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for one in STREAM[:20]:
        store.add(one)
    sent(store)
    store.add(STREAM[20])
    store.close()
    again = opened(tmp_path)
    assert sent(again) == expected(STREAM)[-2 * 20 :][:2]
    again.close()


def test_files_do_not_grow_without_a_bound(tmp_path: Path) -> None:
    store = opened(tmp_path, 20_000)
    for index in range(3000):
        store.add(observation(START + index * SECOND, index))
        if index % 10 == 0:
            sent(store)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["journal.jsonl"] < 21_000
    assert sizes["snapshot.json"] < 400_000
    assert set(sizes) == {"journal.jsonl", "snapshot.json", "sent"}
    store.close()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"number": 1}', b"\x00" * 100, b"[]"])
def test_a_damaged_snapshot_is_set_aside_and_said_and_new_lines_flow(tmp_path: Path, damage: bytes) -> None:
    """Case 79."""
    said: list[str] = []
    store = opened(tmp_path, 500)
    for one in STREAM[:10]:
        store.add(one)
    store.close()
    (tmp_path / "snapshot.json").write_bytes(damage)
    again = Store(str(tmp_path), Limits(), said.append, 500)
    assert (tmp_path / "snapshot.json.damaged").read_bytes() == damage
    assert again.fold.dropped["state_damaged"] == 1
    assert "snapshot.json: cannot be read" in said[0]
    sent(again)
    again.add(STREAM[20])
    assert sent(again)[0].startswith("sideband_train_loss")
    again.close()


def test_a_damaged_journal_is_set_aside_from_the_damage_on(tmp_path: Path) -> None:
    """Case 79."""
    said: list[str] = []
    store = opened(tmp_path)
    for one in STREAM[:10]:
        store.add(one)
    store.close()
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:4], b"\x00\x00garbage\n", *lines[5:]])
    (tmp_path / "journal.jsonl").write_bytes(damaged)
    again = Store(str(tmp_path), Limits(), said.append)
    assert sent(again) == expected(STREAM[:4])
    assert (tmp_path / "journal.jsonl.damaged").read_bytes() == damaged
    assert again.fold.dropped["state_damaged"] == 1
    assert "damaged at byte" in said[0]
    again.add(STREAM[20])
    again.close()
    third = opened(tmp_path)
    assert (
        len(named(sent(third), "sideband_train_loss")) == 1
    )  # also after a restart: its number was not sent
    third.close()


def test_a_store_that_lost_its_files_sends_what_comes_next(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for one in STREAM[:10]:
        store.add(one)
    sent(store)
    store.close()
    (tmp_path / "journal.jsonl").unlink()
    again = opened(tmp_path)
    again.add(STREAM[10])
    again.close()
    third = opened(tmp_path)
    assert len(sent(third)) == 2
    third.close()


# -- pushing ----------------------------------------------------------------------------------------------


def pusher(store: Store, url: str, said: list[str] | None = None) -> Pusher:
    heard: list[str] = [] if said is None else said
    return Pusher(store, Sender(url, timeout=1.0), dict, heard.append, lambda low, high: high)


def test_delays_grow_to_a_bound_and_are_jittered(tmp_path: Path) -> None:
    store, said = opened(tmp_path), list[str]()
    store.add(STREAM[0])
    push = pusher(store, "http://127.0.0.1:9", said)
    delays = []
    for _ in range(12):
        assert not push.once()
        delays.append(push.delay())
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(delays) == 15.0
    assert len(said) == 1  # a night without vmagent fills no journal
    jittered = Pusher(store, Sender("http://127.0.0.1:9"), dict, said.append)
    jittered._failures = 12
    assert len({jittered.delay() for _ in range(20)}) > 10
    assert all(7.5 <= jittered.delay() <= 15.0 for _ in range(20))
    store.close()


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_what_vmagent_does_not_take_stays(tmp_path: Path, status: int) -> None:
    store = opened(tmp_path)
    store.add(STREAM[0])
    with fake_vmagent() as vmagent:
        vmagent.status = status
        push = pusher(store, vmagent.url)
        assert not push.once()
        assert store.pending
        vmagent.status = 204
        assert push.once()
        assert not store.pending
        assert vmagent.curve() == [text.strip() for text in expected(STREAM[:1])]
    store.close()


def test_what_vmagent_refuses_for_good_is_counted_and_holds_up_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(STREAM[0])
    with fake_vmagent() as vmagent:
        vmagent.status = 400
        assert pusher(store, vmagent.url).once()
    assert not store.pending
    assert store.fold.dropped["refused"] == 2
    store.close()


def test_an_answer_that_never_came_sends_the_same_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for one in STREAM[:5]:
        store.add(one)
    with fake_vmagent() as vmagent:
        push = pusher(store, vmagent.url)
        vmagent.cut = True
        assert not push.once()
        vmagent.cut = False
        assert push.once()
        assert vmagent.curve() == 2 * [text.strip() for text in expected(STREAM[:5])]
    store.close()
