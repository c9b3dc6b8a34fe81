#!/usr/bin/env python3
"""Stand-ins for the outside, as strict as the real ones: WeCom, DingTalk, Slack, PagerDuty.

    stand_ins.py [ADDRESS:PORT]       # 127.0.0.1:8090

What comes in is judged by the real ones' limits (size, rate, key), answered in their words, and recorded:
`GET /seen` gives a list of {at, kind, key, ok, bytes, answer, body}, `GET /seen?since=SECONDS` what came
after that time. A dead man's switch (`POST /watchdog/NAME`) and a plain webhook (`/hook/NAME`) are there
too. Standard library alone: it runs on a host of the lab.

Limits, by their own documentation: WeCom group robot 4,096 bytes of markdown, 2,048 of text, 20 messages a
minute; DingTalk custom robot 20,000 bytes, 20 a minute, a keyword; Slack incoming webhook 40,000 characters,
100 attachments; PagerDuty Events v2 512 KB, a summary of 1,024 characters."""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEYWORD = "sideband"
KEY = "lab"  # every key begins with it; another is a stranger's
_KEPT = 5_000
Answer = tuple[int, Any]


def _coded(code: int, text: str) -> Answer:
    return 200, {"errcode": code, "errmsg": text}


class StandIns:
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.seen: collections.deque[dict[str, Any]] = collections.deque(maxlen=_KEPT)
        self._times: dict[tuple[str, str], collections.deque[float]] = {}
        self._deaf: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def take(self, target: str, raw: bytes) -> Answer:
        parts = urlsplit(target)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        ways: dict[str, tuple[str, str, Callable[[str, bytes], Answer]]] = {
            "/cgi-bin/webhook/send": ("wecom", given.get("key", ""), self._wecom),
            "/robot/send": ("dingtalk", given.get("access_token", ""), self._dingtalk),
            "/v2/enqueue": ("pagerduty", "", self._pagerduty),
        }
        words = parts.path.strip("/").split("/")
        if words[0] == "services" and len(words) == 4:
            ways[parts.path] = ("slack", words[3], self._slack)
        if words[0] in ("watchdog", "hook") and len(words) == 2:
            ways[parts.path] = (words[0], words[1], lambda key, raw: (200, "ok"))
        if parts.path not in ways:
            return 404, "not found"
        kind, key, judge = ways[parts.path]
        with self._lock:
            status, answer = judge(key, raw)
            ok = status < 300 and (not isinstance(answer, dict) or answer.get("errcode", 0) == 0)
            self.seen.append({"at": self.clock(), "kind": kind, "key": key, "ok": ok, "bytes": len(raw),
                              "answer": answer, "body": _read(raw)})  # fmt: skip
        return status, answer

    def since(self, at: float) -> list[dict[str, Any]]:
        with self._lock:
            return [one for one in self.seen if one["at"] > at]

    def _too_many(self, kind: str, key: str, most: int) -> bool:
        now, times = self.clock(), self._times.setdefault((kind, key), collections.deque())
        while times and now - times[0] > 60:
            times.popleft()
        times.append(now)
        return len(times) > most

    def _wecom(self, key: str, raw: bytes) -> Answer:
        body = _read(raw)
        if not key.startswith(KEY):
            return _coded(93000, "invalid webhook url, hint: [1], from ip: 10.0.0.1")
        if self._too_many("wecom", key, 20):
            return _coded(45009, "api freq out of limit")
        kind = body.get("msgtype") if isinstance(body, dict) else None
        if kind not in ("text", "markdown"):
            return _coded(40008, "invalid message type")
        part = body.get(kind)
        content = part.get("content") if isinstance(part, dict) else None
        if not isinstance(content, str) or not content.strip():
            return _coded(44004, "empty content")
        most = {"text": 2_048, "markdown": 4_096}[kind]
        if len(content.encode()) > most:
            return _coded(40058, f"{kind}.content exceed max length {most}. invalid Request Parameter")
        return _coded(0, "ok")

    def _dingtalk(self, key: str, raw: bytes) -> Answer:
        body = _read(raw)
        if not key.startswith(KEY):
            return _coded(300001, "token is not exist")
        if self.clock() < self._deaf.get(("dingtalk", key), 0):
            return _coded(410100, "send too fast, exceed 20 times per minute")
        if self._too_many("dingtalk", key, 20):
            self._deaf["dingtalk", key] = self.clock() + 600
            return _coded(130101, "send too fast, exceed 20 times per minute")
        if len(raw) > 20_000:
            return _coded(460101, "message too long, exceed 20000 bytes")
        part = body.get("markdown") if isinstance(body, dict) and body.get("msgtype") == "markdown" else None
        if not isinstance(part, dict) or not part.get("title") or not part.get("text"):
            return _coded(400602, "miss required fields")
        if KEYWORD not in part["text"]:
            return _coded(310000, "keywords not in content")
        return _coded(0, "ok")

    def _slack(self, key: str, raw: bytes) -> Answer:
        body = _read(raw)
        if not key.startswith(KEY):
            return 403, "invalid_token"
        if not isinstance(body, dict):
            return 400, "invalid_payload"
        attachments = body.get("attachments") or []
        if not body.get("text") and not attachments:
            return 400, "no_text"
        if len(attachments) > 100:
            return 400, "too_many_attachments"
        if max(len(str(one.get("text", ""))) for one in [body, *attachments]) > 40_000:
            return 400, "msg_too_long"
        return 200, "ok"

    def _pagerduty(self, key: str, raw: bytes) -> Answer:
        body = _read(raw)
        if len(raw) > 512 * 1024:
            return 413, {"status": "payload too large"}
        payload = body.get("payload") if isinstance(body, dict) else None
        fit = isinstance(payload, dict) and 0 < len(str(payload.get("summary", ""))) <= 1_024
        if not str(body.get("routing_key", "")).startswith(KEY) or not (
            fit or body.get("event_action") == "resolve"
        ):
            return 400, {"status": "invalid event"}
        return 202, {"status": "success"}


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._say(*self.server.stand_ins.take(self.path, raw))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path != "/seen":
            return self._say(404, "not found")
        since = float(parse_qs(parts.query).get("since", ["0"])[0])
        self._say(200, self.server.stand_ins.since(since))

    def _say(self, status: int, answer: Any) -> None:
        raw = answer.encode() if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], stand_ins: StandIns) -> None:
        super().__init__(address, _Handler)
        self.stand_ins = stand_ins


if __name__ == "__main__":
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8090").rpartition(":")
    Server((host, int(port)), StandIns()).serve_forever()
