"""From what a rack's relay hands over to a row of the store."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.keeper.seen import Span

STREAM_FIELDS = ("tenant", "rack", "node", "source", "job", "unit", "container", "pod", "namespace", "file")
_TEXTS = (
    "source", "unit", "program", "container", "pod", "namespace", "file", "owner", "job", "severity",
    "clock", "part",
)  # fmt: skip
_HEAD = re.compile(rb"<\d{1,3}>1 \S+ (\S+) \S+ \S+ \S+ - ?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_STREAM = re.compile(r"[A-Za-z0-9-]{1,64}")
_VALUE_BYTES = 1024
_PLACE_MOST = 2**62
NOBODY = "unassigned"


class Refused(ValueError):
    """No record that could be stored; the text is the reason that it is counted under."""


@dataclass(frozen=True)
class Record:
    node: str
    stream: str
    start: int
    end: int
    places: list[Span]  # of its lines
    value: dict[str, Any]


def parse(payload: bytes) -> Record:
    found = _HEAD.match(payload)
    if found is None:
        raise Refused("malformed")
    try:
        node = found.group(1).decode("ascii")
        value = json.loads(payload[found.end() :].decode("utf-8", "replace"))
        stream, start, end = value["stream"], value["from"], value["to"]
        at, cuts = value["offset"], value.get("cuts", [])
        message = value["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("malformed") from None
    numbers = [start, end, at, *cuts] if isinstance(cuts, list) else [None]
    if (
        not _NAME.fullmatch(node)
        or not isinstance(stream, str)
        or not _STREAM.fullmatch(stream)
        or not isinstance(message, str)
        or not all(type(one) is int and 0 <= one < _PLACE_MOST for one in numbers)
        or not start <= at < end
    ):
        raise Refused("malformed")
    places: list[Span] = []
    for cut in cuts or [end - at]:
        places.append((at, at + cut))
        at += cut
    if at != end:
        raise Refused("malformed")
    return Record(node, stream, start, end, places, value)


def row(
    record: Record, fresh: Sequence[int], rack: str, site: str, tenants: Sequence[str], now: float,
    oldest: float,
) -> dict[str, Any]:  # fmt: skip
    """What is stored of it: its lines that are new. What the node says of its own place counts for
    nothing."""
    value = record.value
    message = str(value["message"])
    if len(fresh) < len(record.places):
        pieces = message.split("\n")
        if len(pieces) == len(
            record.places
        ):  # where parts of long lines are joined they cannot be told apart
            message = "\n".join(pieces[at] for at in fresh)
    found: dict[str, Any] = {
        key: str(value[key])[:_VALUE_BYTES]
        for key in _TEXTS
        if isinstance(value.get(key), str) and value[key]
    }
    stamp, moved = _time(str(value.get("time", "")), now, oldest)
    tenant = str(value.get("tenant") or "")
    if tenant and tenant not in tenants:
        tenant = NOBODY
    found.update(
        _time=stamp,
        _msg=message,
        node=record.node,
        rack=rack,
        site=site,
        stream=record.stream,
        offset=record.places[fresh[0]][0],
    )
    if moved:
        found["clock"] = "store"
    if tenant:
        found["tenant"] = tenant
    return found


def _time(text: str, now: float, oldest: float) -> tuple[str, bool]:
    """The record's own time; a wrong clock's record is stored all the same, at the time of its coming."""
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        moment = 0.0
    believed = oldest < moment < now + 3600
    at = datetime.datetime.fromtimestamp(moment if believed else now, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), not believed


@dataclass(frozen=True)
class Places:
    """Which nodes a relay may speak for, in which rack each stands, and which tenants are at home there."""

    receivers: Mapping[str, Mapping[str, str]]
    tenants: Mapping[str, Sequence[str]]

    def rack(self, receiver: str, node: str) -> str:
        rack = self.receivers.get(receiver, {}).get(node)
        if rack is None:
            raise Refused("foreign_node")
        return rack
