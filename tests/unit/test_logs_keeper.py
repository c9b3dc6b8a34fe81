"""What is taken once and for all: places, records, the book, rsyslog's queues (L2; cases 76, 79)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services import relp
from services.keeper import record
from services.keeper.book import Book
from services.keeper.record import Places, Refused
from services.keeper.seen import Seen, Spans
from services.logexport import program as logexport
from services.spool.queue import mend

NOW = 1_796_000_000.0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_spans_know_exactly_what_was_taken(taken: list[tuple[int, int]]) -> None:
    spans, places = Spans(), set()
    for start, length in taken:
        assert spans.covers(start, start + length) == (set(range(start, start + length)) <= places)
        spans.add(start, start + length)
        places |= set(range(start, start + length))
    listed = spans.dump()
    assert {at for start, end in listed for at in range(start, end)} == places
    assert all(left[1] < right[0] for left, right in zip(listed, listed[1:]))


def test_a_stream_s_holes_are_told_and_forgotten_streams_are_the_eldest() -> None:
    seen = Seen(2)
    for stream, start, end in (("a", 0, 5), ("a", 8, 9), ("b", 0, 1), ("a", 9, 10), ("c", 0, 1)):
        seen.take("n", stream, start, end)
    assert (seen.holes, len(seen)) == (1, 2)
    assert seen.fresh("n", "a", [(0, 5), (5, 8), (8, 10)]) == [1]
    assert seen.fresh("n", "b", [(0, 1)]) == [0]


def payload(node: str = "n1", **more: Any) -> bytes:
    value = {
        "stream": "s",
        "from": 0,
        "to": 9,
        "offset": 0,
        "time": "2026-11-30T00:53:20Z",
        "message": "m",
        **more,
    }
    return f"<134>1 - {node} sideband - - - {json.dumps(value)}".encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{}", b"<134>1 - n1 sideband - - - []", payload("n 1"), payload("-n"), payload(stream="s/../x"),
        payload(to=0), payload(offset=9), payload(cuts=[4]), payload(cuts=[4, 6]), payload(cuts="x"),
        payload(message=1), payload(offset=True), payload(to=2**70),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused, match="malformed"):
        record.parse(raw)


def test_of_a_record_that_was_joined_anew_only_the_new_lines_are_stored() -> None:
    found = record.parse(payload(message="a\nb\nc", cuts=[3, 3, 3]))
    assert found.places == [(0, 3), (3, 6), (6, 9)]
    row = record.row(found, [2], "rack1", "lab", ["alpha"], NOW, NOW - 9)
    assert (row["_msg"], row["offset"], row["rack"]) == ("c", 6, "rack1")


@pytest.mark.parametrize(
    ("tenant", "stored"), [("alpha", "alpha"), ("beta", "unassigned"), ("", None), (None, None)]
)
def test_a_tenant_counts_in_its_own_racks_alone(tenant: str | None, stored: str | None) -> None:
    row = record.row(record.parse(payload(tenant=tenant)), [0], "rack1", "lab", ["alpha"], NOW, NOW - 9)
    assert row.get("tenant") == stored


@pytest.mark.parametrize("text", ["", "0001-01-01T00:00:00Z", "2036-01-01T00:00:00Z", "x"])
def test_a_wrong_clock_s_line_is_stored_at_the_time_of_its_coming(text: str) -> None:
    row = record.row(record.parse(payload(time=text)), [0], "rack1", "lab", [], NOW, NOW - 9)
    assert (row["_time"], row["clock"]) == ("2026-11-30T00:53:20.000000Z", "store")


def test_a_relay_speaks_for_its_own_nodes() -> None:
    places = Places({"rack1": {"n1": "r1"}}, {})
    assert places.rack("rack1", "n1") == "r1"
    for receiver, node in (("rack1", "n2"), ("rack2", "n1")):
        with pytest.raises(Refused, match="foreign_node"):
            places.rack(receiver, node)


def test_the_book_is_the_same_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    said: list[str] = []
    book = Book(str(tmp_path), said.append, segment_bytes=300)
    for at in range(30):
        book.put("n", "s", at, at + 1, {"_time": "t", "_msg": str(at)})
    book.sync()
    numbers = [row.number for row in book.rows]
    assert numbers == sorted(set(numbers))
    again = Book(str(tmp_path), said.append)
    assert [row.value for row in again.rows] == [row.value for row in book.rows]
    for row in list(again.rows)[:20]:
        row.sent = 1.0
    assert again.settle(2.0) == 20
    with open(sorted(tmp_path.glob("*.rows"))[-1], "ab") as file:
        file.write(b'[1, "n", "s", 90, 91')  # cut: nobody had a confirmation
    last = Book(str(tmp_path), said.append)
    assert [row.value["_msg"] for row in last.rows] == [str(at) for at in range(20, 30)]
    assert last.seen.fresh("n", "s", [(0, 30), (90, 91)]) == [1]
    assert said == []


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_frames_are_read_however_they_come(texts: list[bytes], size: int) -> None:
    data = b"".join(relp.frame(number, b"syslog", text) for number, text in enumerate(texts, 1))
    reader = relp.Reader(64)
    found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
    assert [one.data for one in found] == texts


@pytest.mark.parametrize("data", [b"x" * 99, b"1 syslog 99999 ", b"1 syslog 2 abX", b"1 syslog x\n"])
def test_what_is_no_relp_ends_the_connection(data: bytes) -> None:
    with pytest.raises(relp.Broken):
        list(relp.Reader(1000).feed(data))


ENTRY = b"<Obj:1:msg:1:\n+pszRawMsg:1:4:text:\n>End\n.\n"


def test_a_queue_is_mended_from_its_own_records(tmp_path: Path) -> None:
    """Case 79."""
    assert mend(str(tmp_path), "ship").state == "empty"
    (tmp_path / "ship.00000003").write_bytes(ENTRY * 3)
    (tmp_path / "ship.00000004").write_bytes(ENTRY * 2 + ENTRY[:20])
    found = mend(str(tmp_path), "ship")
    assert (found.state, found.records, found.lost_bytes) == ("damaged", 5, 20)
    assert (tmp_path / "ship.00000004").read_bytes() == ENTRY * 2
    assert mend(str(tmp_path), "ship").state == "clean"
    index = (tmp_path / "ship.qi").read_bytes()
    with (tmp_path / "ship.00000004").open("ab") as file:
        file.write(ENTRY)
    assert (mend(str(tmp_path), "ship").state, mend(str(tmp_path), "ship").records) == ("mended", 6)
    (tmp_path / "ship.qi").write_bytes(index[:1])
    assert mend(str(tmp_path), "ship").state == "damaged"
    (tmp_path / "ship.00000003").unlink()
    (tmp_path / "ship.00000004").unlink()
    assert (mend(str(tmp_path), "ship").state, (tmp_path / "ship.qi").exists()) == ("empty", False)


def test_finished_days_are_those_that_the_store_still_has_whole() -> None:
    import datetime

    now = datetime.datetime(2026, 3, 8, 0, 30, tzinfo=datetime.timezone.utc)
    assert [str(day) for day in logexport.days(now, 3 * 86400)] == ["2026-03-06"]
    assert [str(day) for day in logexport.days(now.replace(hour=2), 3 * 86400)] == [
        "2026-03-06",
        "2026-03-07",
    ]
