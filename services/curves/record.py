"""One line of rsyslog's, and what a person would have seen of it on a terminal."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

TEXT_BYTES = 8192  # of one line of a log; a curve is said in less
LABEL_BYTES = 128
LINES = 512  # in one record; a node joins no more

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):?(\d\d))"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# [rank3]: of torchrun, [default3]: of Megatron's launchers, [1,3]<stdout>: of mpirun
_RANK = re.compile(r"\s*(?:\[(?:rank|default)[ _]?(\d{1,6})\]|\[\d+,(\d{1,6})\]<std(?:out|err)>):?")


class Malformed(ValueError):
    """No record; the text is the reason that it is counted under."""


@dataclass(frozen=True)
class Record:
    microseconds: int
    node: str
    job: str
    tenant: str
    source: str  # the file, container or unit that the line is of
    stream: str  # with the offset, the record's place: the same whenever it comes again
    offset: int
    cuts: tuple[int, ...]  # the lengths of its lines there
    message: str


@dataclass(frozen=True)
class Line:
    """One line of a record."""

    key: str  # of its place: the same whenever the same line comes again, and no other's
    text: str
    before: tuple[str, ...]  # what a progress bar showed on that line before it
    rank: int | None


def microseconds(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise Malformed("time")
    year, month, day, hour, minute, second = (int(found.group(index)) for index in range(1, 7))
    try:
        moment = datetime.datetime(
            year, month, day, hour, minute, min(second, 59), tzinfo=datetime.timezone.utc
        )
    except ValueError:
        raise Malformed("time") from None
    value = (moment - _EPOCH) // _MICROSECOND + int((found.group(7) or "0").ljust(6, "0")[:6])
    if found.group(9):
        shift = (int(found.group(10)) * 60 + int(found.group(11))) * 60_000_000
        value += shift if found.group(9) == "-" else -shift
    return value


def parse(raw: bytes) -> Record | None:
    """The record of one line of rsyslog's: the node, a blank, and what the node sent. None for one that
    belongs to no job."""
    head, _, rest = raw.partition(b" ")
    try:
        node = head.decode("ascii")
        value = json.loads(rest.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise Malformed("malformed") from None
    if not isinstance(value, dict) or not node or head.startswith(b"{"):
        raise Malformed("malformed")

    def text(*names: str) -> str:
        for name in names:
            entry = value.get(name)
            if isinstance(entry, str) and entry:
                return entry
        return ""

    job, message = text("job"), text("message")
    if not job or not message:
        return None
    tenant, stream, offset, cuts = text("tenant"), text("stream"), value.get("offset"), value.get("cuts", [])
    if not stream or not isinstance(offset, int) or not isinstance(cuts, list):
        raise Malformed("malformed")
    if not all(type(one) is int for one in [offset, *cuts]):
        raise Malformed("malformed")
    if any(len(entry.encode("utf-8", "replace")) > LABEL_BYTES for entry in (job, node, tenant)):
        raise Malformed("label")
    moment = microseconds(text("time"))
    source = text("file", "container", "unit")
    return Record(moment, node, job, tenant, source, stream, offset, tuple(cuts), message)


def lines(record: Record) -> Iterator[Line]:
    """The lines of a record, as a terminal would have shown them: no colours, the last state of a bar."""
    texts = record.message.split("\n")[:LINES]
    # A line that was cut for its length and joined again has more places than lines.
    cuts = record.cuts if len(record.cuts) == len(texts) else (1,) * len(texts)
    at = record.offset
    for whole, cut in zip(texts, cuts):
        place, at = at, at + cut
        segments = [piece.strip() for piece in whole.split("\r")]
        segments = [piece for piece in segments if piece]
        if not segments:
            continue
        # A bar redraws itself all the time between two lines of a log; the newest states are at the end.
        shown = [_ANSI.sub("", piece[-TEXT_BYTES:]).strip() for piece in segments[-4:]]
        joined = f"{record.node}\x00{record.stream}\x00{place}".encode("utf-8", "replace")
        key = hashlib.blake2b(joined, digest_size=8).hexdigest()
        found = _RANK.match(shown[-1])
        rank = int(found.group(1) or found.group(2)) if found else None
        yield Line(key, shown[-1], tuple(shown[:-1]), rank)
