"""The notifier's one listener, on loopback: Alertmanager hands notifications in, the store beside reads
counters.

200: delivered. 503: not now, Alertmanager tries again. 400, 404, 413: never, it does not."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from services.notifier.deliver import Later, Never
from services.notifier.desk import Desk
from services.notifier.message import Malformed, read

_BODY_BYTES = 8 << 20
SEND = "/send/"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], desk: Desk, facts_failed: Callable[[], int]) -> None:
        super().__init__(address, _Handler)
        self.desk, self.facts_failed = desk, facts_failed

    def metrics(self) -> str:
        lines = [
            f'sideband_notifier_{what}_total{{integration="{kind}",receiver="{name}"}} {count}'
            for what, counted in (("sent", self.desk.sent), ("failed", self.desk.failed))
            for (kind, name), count in sorted(counted.items())
        ]
        return "\n".join([*lines, f"sideband_notifier_facts_failed_total {self.facts_failed()}", ""])


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._answer(200, self.server.metrics())
        elif self.path == "/-/ready":
            self._answer(200, "ready\n")
        else:
            self._answer(404, "GET /metrics and GET /-/ready exist here\n")

    def do_POST(self) -> None:
        name = self.path[len(SEND) :] if self.path.startswith(SEND) else ""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _BODY_BYTES:
            self.close_connection = True
            self._answer(413, f"a Content-Length of at most {_BODY_BYTES} is needed\n")
            return
        raw = self.rfile.read(int(length))
        if name not in self.server.desk.names:
            self._answer(404, "no such receiver\n")
            return
        try:
            self.server.desk.take(name, read(raw))
        except Later as problem:
            self._answer(503, f"{problem}\n")
        except (Malformed, Never) as problem:
            self._answer(400, f"{problem}\n")
        else:
            self._answer(200, "delivered\n")

    def _answer(self, status: int, text: str) -> None:
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass  # what failed is said once, with its receiver, by the desk
