"""The index of one of rsyslog's disk queues (`NAME.qi`), made anew from the queue's own files.

rsyslog writes the index now and then (`queue.checkpointInterval`), the records at once. After a kill the
index is
behind the records: started with it, rsyslog would write over what it has confirmed; with a damaged one it
leaves
the whole queue lying (case 79). The records themselves tell where they end. What was handed on already,
after the
index was written, is handed on once more: the store knows it by its place in its source (docs/adr/0010).

Format, as rsyslog 8.2302 and 8.2504 write it: objects of lines `+name:type:length:value:` between
`<Obj:1:KIND:1:` (or `<OPB:…`) and `>End`, `.`.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from services import durable

_END = b">End\n.\n"
_BEGIN = b"<Obj:1:"
_FIELD = re.compile(rb"^\+([A-Za-z.]+):2:\d+:(-?\d+):$", re.MULTILINE)
_INDEX_BYTES = 65536
_CHUNK = 1 << 20
_MODE_WRITE, _MODE_READ = 2, 1  # of rsyslog's streams
_OPEN_MODE = 0o600


@dataclass(frozen=True)
class Found:
    """What was done to one queue. `state`: `empty`, `clean`, `mended` (its index was behind), `damaged` (it
    had none that could be read, or its last record was cut)."""

    name: str
    state: str
    records: int
    lost_bytes: int


def mend(directory: str, name: str) -> Found:
    segments = _segments(directory, name)
    path = os.path.join(directory, f"{name}.qi")
    raw = durable.read(path, _INDEX_BYTES)
    index = _parse(raw)
    if not segments:
        if raw is not None:
            os.unlink(path)
        return Found(name, "empty" if raw is None or index is not None else "damaged", 0, 0)
    numbers = sorted(segments)
    read = numbers[0], 0
    if index is not None and index[2] in segments and index[3] <= os.path.getsize(segments[index[2]]):
        read = index[2], index[3]
    last = segments[numbers[-1]]
    whole = _whole(last)
    cut = os.path.getsize(last) - whole
    if cut:
        _keep(directory, name, last, whole)
        os.truncate(last, whole)
    write = numbers[-1], whole
    for number in numbers:
        if number < read[0]:
            os.unlink(segments[number])  # rsyslog had passed it and was killed before it went
            del segments[number]
    if index == (*write, *read) and not cut:
        return Found(name, "clean", _records(segments, read), 0)
    size = sum(os.path.getsize(one) for one in segments.values()) - read[1]
    records = _records(segments, read)
    if raw is not None and index is None:
        durable.write(f"{path}.damaged", raw, 0o600)
    durable.write(path, _index(name, records, size, write, read), 0o600)
    return Found(name, "damaged" if index is None or cut else "mended", records, cut)


def _segments(directory: str, name: str) -> dict[int, str]:
    pattern = re.compile(re.escape(name) + r"\.(\d{8})")
    found = {}
    for entry in os.listdir(directory):
        match = pattern.fullmatch(entry)
        if match:
            found[int(match.group(1))] = os.path.join(directory, entry)
    return found


def _parse(raw: bytes | None) -> tuple[int, int, int, int] | None:
    """Where it is written and where it is read: a file's number and an offset each."""
    if not raw or raw.count(_END) != 3 or not raw.startswith(b"<OPB:1:qqueue:1:\n"):
        return None
    parts = [dict(_FIELD.findall(part)) for part in raw.split(_END)[1:3]]
    try:
        write, read = [(int(part[b"iCurrFNum"]), int(part[b"iCurrOffs"])) for part in parts]
    except KeyError:
        return None
    if min(*write, *read) < 0:
        return None
    return (*write, *read)


def _whole(path: str) -> int:
    """Up to where the file holds whole records."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        at = size
        while at > 0:
            start = max(0, at - _CHUNK)
            file.seek(start)
            block = file.read(at - start + len(_END))
            found = block.rfind(_END)
            if found >= 0:
                return start + found + len(_END)
            at = start
    return 0


def _records(segments: dict[int, str], read: tuple[int, int]) -> int:
    count = 0
    for number, path in segments.items():
        with open(path, "rb") as file:
            file.seek(read[1] if number == read[0] else 0)
            rest = b""
            while block := file.read(_CHUNK):
                block = rest + block
                count += block.count(_END)
                rest = block[-len(_END) + 1 :] if not block.endswith(_END) else b""
    return count


def _keep(directory: str, name: str, path: str, whole: int) -> None:
    """For a person: the record that was cut, which nobody had confirmed."""
    with open(path, "rb") as file:
        file.seek(whole)
        durable.write(os.path.join(directory, f"{name}.cut-{int(time.time())}"), file.read(_CHUNK), 0o600)


def _number(name: str, value: int) -> str:
    return f"+{name}:2:{len(str(value))}:{value}:\n"


def _index(name: str, records: int, size: int, write: tuple[int, int], read: tuple[int, int]) -> bytes:
    text = "<OPB:1:qqueue:1:\n" + _number("iQueueSize", records) + _number("tVars.disk.sizeOnDisk", size)
    text += ">End\n.\n"
    for (number, offset), mode in ((write, _MODE_WRITE), (read, _MODE_READ)):
        text += "<Obj:1:strm:1:\n" + _number("iCurrFNum", number)
        text += f"+pszFName:1:{len(name)}:{name}:\n" + _number("iMaxFiles", 10_000_000)
        text += _number("bDeleteOnClose", int(mode == _MODE_READ)) + _number("sType", 1)
        text += _number("tOperationsMode", mode) + _number("tOpenMode", _OPEN_MODE)
        text += _number("iCurrOffs", offset) + ">End\n.\n"
    return text.encode()
