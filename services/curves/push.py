"""Samples to the rack's own vmagent, in batches, for as long as it takes."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from services.curves.samples import line
from services.curves.store import Parcel, Store

PATH = "/api/v1/import/prometheus"
_BATCH_SECONDS = 0.5  # gathered for so long after the first
_BATCH_BYTES = 1 << 19
_BACKOFF_SECONDS = 15.0
_OWN_SECONDS = 15.0


class Unavailable(Exception):
    """vmagent took nothing; the text says why."""


class Sender:
    def __init__(self, url: str, timeout: float = 5.0) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        # vmagent knows whose samples these are by what the query says.
        self._target = (parts.path.rstrip("/") or PATH) + (f"?{parts.query}" if parts.query else "")
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def send(self, text: str) -> int:
        kept = self._connection is not None
        try:
            return self._once(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # A kept connection that vmagent had closed meanwhile says nothing about vmagent: once more.
            if not kept or isinstance(error, TimeoutError):
                raise Unavailable(str(error) or type(error).__name__) from None
        try:
            return self._once(text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unavailable(str(error) or type(error).__name__) from None

    def _once(self, text: str) -> int:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        self._connection.request("POST", self._target, text.encode(), {"Content-Type": "text/plain"})
        response = self._connection.getresponse()
        response.read(65536)
        if not response.isclosed():
            self.close()
        return response.status

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Pusher(threading.Thread):
    def __init__(
        self,
        store: Store,
        sender: Sender,
        own: Callable[[], dict[str, dict[str, int]]],
        say: Callable[[str], None],
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._sender = sender
        self._own = own
        self._say = say
        self._chance = chance
        self._failures = 0
        self._own_due = 0.0
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            # Without it nothing would leave. What is on disk is sent by the program that rsyslog starts next.
            self._say(f"error: pushing: {type(error).__name__}: {error}")
            os._exit(1)

    def _work(self) -> None:
        while not (self._ending.is_set() and not self._store.pending):
            with self._store.changed:
                if not self._store.pending:
                    self._store.changed.wait(1.0)
            if self._store.pending and not self._ending.is_set():
                self._ending.wait(_BATCH_SECONDS)
            if self.once():
                continue
            if self._ending.is_set():
                time.sleep(0.1)  # tries on until the caller's patience is over
            else:
                self._ending.wait(self.delay())
        self._own_due = 0.0
        self.once()

    def finish(self, seconds: float) -> None:
        """Send what waits, if that can be had soon. What cannot is on disk."""
        self._ending.set()
        with self._store.changed:
            self._store.changed.notify_all()
        self.join(seconds)

    def delay(self) -> float:
        return min(0.5 * 2.0 ** min(self._failures - 1, 10), _BACKOFF_SECONDS) * self._chance(0.5, 1.0)

    def once(self) -> bool:
        """One request; whether the next may follow at once."""
        parcels = self._store.batch(_BATCH_BYTES)
        now = time.monotonic()
        own = self._own_text() if now >= self._own_due else ""
        text = "".join(parcel.text for parcel in parcels) + own
        if not text:
            return True
        try:
            status = self._sender.send(text)
            if status // 100 != 2 and status != 400:
                raise Unavailable(f"answered {status}")
        except Unavailable as error:
            self._failures += 1
            if self._failures == 1:
                self._say(f"vmagent: {error}; samples wait here, then in rsyslog's queue")
            return False
        if status == 400:
            # It will never take these: let them not hold up the others.
            self._refused(parcels)
        if self._failures:
            self._say("vmagent: takes samples again")
        self._failures = 0
        if own:
            self._own_due = now + _OWN_SECONDS
        if parcels:
            self._store.done(parcels)
        return True

    def _refused(self, parcels: list[Parcel]) -> None:
        count = sum(parcel.samples for parcel in parcels)
        with self._store.changed:
            self._store.fold.dropped["refused"] += count
        self._say(f"vmagent: refused {count} samples for good")

    def _own_text(self) -> str:
        at = int(time.time() * 1000)
        lines = []
        for name, counts in self._own().items():
            for key, value in sorted(counts.items()):
                labels = (("reason", key),) if key else ()
                lines.append(line(f"sideband_curves_{name}", labels, value, at))
        return "".join(lines)
