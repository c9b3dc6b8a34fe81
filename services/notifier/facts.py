"""What the rules hold samples against: the hosts that the contract expects, certificates' ends, tenants'
thresholds.

Pushed into every store that a judge here reads, again and again, since a store keeps what is said for
minutes."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Sequence

from services import durable
from services.notifier.deliver import reason

_BYTES = 1 << 24


def push(url: str, body: bytes) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "text/plain"}, method="POST")
    with opener.open(request, timeout=10):
        pass


class Facts:
    def __init__(
        self,
        path: str,
        urls: Sequence[str],
        more: Callable[[], Sequence[str]],
        say: Callable[[str], None],
        push: Callable[[str, bytes], None] = push,
    ) -> None:
        self._path, self._urls, self._more, self._say, self._push = path, urls, more, say, push
        self._down: set[str] = set()
        self.failed = 0

    def text(self) -> bytes:
        raw = durable.read(self._path, _BYTES)
        if raw is None:
            self._once("file", f"{self._path} cannot be read")
            raw = b""
        return raw + "".join(f"{line}\n" for line in self._more()).encode()

    def tell(self) -> None:
        body = self.text()
        for url in self._urls:
            try:
                self._push(url, body)
            except Exception as error:
                self.failed += 1
                self._once(url, f"{url}: {reason(error)}")
            else:
                self._down.discard(url)

    def _once(self, what: str, text: str) -> None:
        if what not in self._down:
            self._down.add(what)
            self._say(f"facts: {text}")

    def run(self, stop: threading.Event, seconds: float) -> None:
        while True:
            self.tell()
            if stop.wait(seconds):
                return
