"""Two tenants' series and lines, and how to see that one of them shows where it should not."""

from __future__ import annotations

import datetime
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from front.client import Answer, Series

MARK = "k7q2wz"  # on everything of beta, in no attempt
MADE_BY = "tenancy"  # on every series, so that they can be taken away again
FOREIGN = 1e18  # a value of beta's; alpha's are 1
LIMIT = 1000.0  # above it a figure is not of alpha's alone: a value of beta's is in it, or all of its series
LIMIT_BESIDE_REAL = 1e17  # where alpha has real series too
Form = list[tuple[str, str]]


def series() -> list[Series]:
    now = int(time.time() * 1000)
    minutes = [now - minute * 60_000 for minute in range(60, -1, -1)]

    def made(value: float, **labels: str) -> Series:
        # The wire wants labels in order.
        return sorted({**labels, "made_by": MADE_BY}.items()), [(value, at) for at in minutes]

    found = [made(1, __name__="gpu_util", gpu=str(gpu), rack="rack1", node="node1", tenant="alpha", job="j1")
             for gpu in range(4)]  # fmt: skip
    found.append(
        made(1, __name__="gpu_util", gpu="0", rack="rack2", node="node9", tenant="alpha", job="guest")
    )
    found.append(made(1, __name__="load", rack="rack1", node="node1", gpu="0"))
    foreign = {"mark": MARK, f"label_{MARK}": "x"}
    for rack in ("rack1", "rack2"):  # a guest on alpha's rack too
        for gpu in range(4):
            found.append(made(FOREIGN, __name__="gpu_util", gpu=str(gpu), rack=rack, node=f"n{MARK}",
                              tenant="beta", job="j2", **foreign))  # fmt: skip
    found.append(made(FOREIGN, __name__="load", rack="rack2", node=f"n{MARK}", gpu="0", **foreign))
    found += [made(FOREIGN, __name__=f"only_{MARK}", rack="rack2", tenant="beta", i=str(i), **foreign)
              for i in range(1200)]  # fmt: skip
    return found


def as_text(found: list[Series]) -> bytes:
    """In Prometheus' text form with times, as VictoriaMetrics imports it."""
    lines = []
    for labels, samples in found:
        inside = ",".join(f'{name}="{value}"' for name, value in labels if name != "__name__")
        lines += [f"{dict(labels)['__name__']}{{{inside}}} {value:g} {at}" for value, at in samples]
    return "\n".join(lines).encode() + b"\n"


def foreign(answer: Answer, limit: float = LIMIT) -> int:
    """How many series or lines of beta, or of its rack, an answer shows, or figures above the limit."""
    text = answer.text
    if answer.status not in (200, 202):
        return int(MARK in text)
    found = text.count(MARK)
    for line in text.splitlines():
        if not line.strip():
            continue
        value = json.loads(line)
        data = value.get("data", value) if isinstance(value, dict) else value
        rows = data.get("result", []) if isinstance(data, dict) else []
        found += sum(1 for number in _figures(rows) if abs(number) >= limit)
        found += sum(1 for row in _series(data) if _elsewhere(row))
        found += sum(1 for label in _labels(data) if label == "beta")
        if isinstance(value, dict):
            found += sum(1 for hit in value.get("hits", []) if hit.get("total", 0) >= limit)
    return found


def _figures(rows: Any) -> Iterator[float]:
    """Values without their times."""
    if isinstance(rows, list) and len(rows) == 2 and isinstance(rows[0], (int, float)):
        # A string result is the asker's own text.
        yield float(rows[1]) if re.fullmatch(r"[-+0-9.e]+", str(rows[1])) else 0.0
        return
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            yield from _figures(row.get("values", [row["value"]] if "value" in row else []))
        else:
            yield from _figures(row)


def _labels(data: Any) -> Iterator[str]:
    """Values of the label `tenant`, and names in plain lists."""
    if isinstance(data, list):
        yield from (one for one in data if isinstance(one, str))
    yield from (str(row.get("tenant", "")) for row in _series(data))


def _series(data: Any) -> list[dict[str, Any]]:
    """The label sets of an answer."""
    rows = data if isinstance(data, list) else data.get("result", []) if isinstance(data, dict) else []
    return [row.get("metric", row) for row in rows if isinstance(row, dict)]


def _elsewhere(row: dict[str, Any]) -> bool:
    """A whole series of beta's rack that is not alpha's own."""
    return "__name__" in row and row.get("rack") == "rack2" and row.get("tenant") != "alpha"


def lines() -> bytes:
    """For a real log store: of both tenants on one node, and of nobody; stream fields are tenant and node."""
    now = time.time()
    rows = []
    for number in range(200):
        at = datetime.datetime.fromtimestamp(now - number, datetime.timezone.utc).isoformat()
        rows.append({"_time": at, "_msg": f"step {number} loss 0.5", "tenant": "alpha", "node": "node1"})
        for tenant in ("beta", ""):
            rows.append({"_time": at, "_msg": f"step {number} {MARK}", "tenant": tenant, "node": "node1",
                         "mark": MARK})  # fmt: skip
    return "\n".join(json.dumps(row) for row in rows).encode()


class Lines(ThreadingHTTPServer):
    """A stand-in for the log store, gullible: without exactly our filter it shows every line."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[tuple[str, Form, dict[str, str]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answering(BaseHTTPRequestHandler):
    server: Lines

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        given = urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query) + urllib.parse.parse_qsl(body)
        self.server.asked.append((self.path, given, {k.lower(): v for k, v in self.headers.items()}))
        filters = [(name, value) for name, value in given if name.startswith("extra")]
        names = [name for name, _ in given]
        wall = [("extra_stream_filters", '{"tenant": "alpha"}')]
        kept = filters == wall and len(names) == len(set(names)) and "AccountID" not in self.headers
        tenants = ["alpha"] if kept else ["alpha", "beta"]
        if self.path.endswith("/hits"):
            hits = [
                {"fields": {"tenant": one}, "timestamps": [], "values": [], "total": 1} for one in tenants
            ]
            text = json.dumps({"hits": hits + [{"total": 10_000}] * (not kept)})
        else:
            rows = [{"_msg": one if one == "alpha" else MARK, "tenant": one} for one in tenants]
            text = "".join(json.dumps(row) + "\n" for row in rows)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST  # noqa: N815  # http.server looks for this name

    def log_message(self, format: str, *args: Any) -> None:
        pass
