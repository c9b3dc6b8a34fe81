"""What the tests of curves share: records, observations, and a vmagent that keeps what it is given."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from services import rulebook
from services.curves import record
from services.curves.program import observe
from services.curves.rules import Rules
from services.curves.samples import Observation, Sample

START = 1_780_000_000_000_000  # microseconds
SECOND = 1_000_000
RULES = Rules(json.loads(json.dumps(rulebook.compiled())))

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+) (\d+)")


def observation(
    time: int, step: int | None = None, source: str = "a.log", node: str = "node1", **more: Any
) -> Observation:
    values = more.pop("values", {"loss": 100.0 - (step or 0)})
    key = more.pop(
        "key", f"{more.get('job')}-{node}-{source}-{time}-{step}-{sorted(values)}-{more.get('events')}"
    )
    return Observation(
        time=time,
        key=key,
        job=more.pop("job", "7"),
        tenant="alpha",
        node=node,
        source=source,
        rank=more.pop("rank", None),
        step=step,
        values=values,
        shown=more.pop("shown", ()),
        events=more.pop("events", ()),
    )


def raw(time: str, message: str, **more: Any) -> bytes:
    node = more.pop("node", "node1")
    # A place of its own for each line of each moment, as long as a test says nothing else.
    place = zlib.crc32(f"{time}{message}".encode())
    value = {
        "time": time, "job": "7", "tenant": "alpha", "file": "/home/a/train.log", "stream": "s1",
        "offset": place, "message": message, **more,
    }  # fmt: skip
    return f"{node} {json.dumps(value)}\n".encode()


def observed(line: bytes) -> list[Observation]:
    found = record.parse(line)
    assert found is not None
    return [one for one in (observe(found, text, RULES) for text in record.lines(found)) if one is not None]


def texts(samples: Iterable[Sample]) -> list[str]:
    return [sample.text() for sample in samples]


def named(lines: Iterable[str], name: str) -> list[tuple[float, int]]:
    """The values and times of one name among lines of the text format."""
    found = []
    for line in lines:
        match = _SAMPLE.fullmatch(line.strip())
        assert match is not None, line
        if match.group(1) == name:
            found.append((float(match.group(3)), int(match.group(4))))
    return found


@dataclass
class FakeVmagent:
    url: str
    lines: list[str] = field(default_factory=list)  # all that were taken, own series too
    status: int = 204
    cut: bool = False  # take the body and hang up without an answer
    requests: int = 0

    def curve(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("sideband_curves_")]

    def own(self, series: str) -> float | None:
        found = [line.split()[1] for line in self.lines if line.startswith(series + " ")]
        return float(found[-1]) if found else None


@contextlib.contextmanager
def fake_vmagent() -> Iterator[FakeVmagent]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            vmagent.requests += 1
            if vmagent.cut or vmagent.status // 100 == 2:
                vmagent.lines += body.splitlines() if self.path == "/api/v1/import/prometheus" else []
            if vmagent.cut:
                self.close_connection = True
                return
            self.send_response(vmagent.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    vmagent = FakeVmagent(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield vmagent
    finally:
        server.shutdown()
        server.server_close()
