"""How many questions run at once: so many for each identity and in all, a short queue before them (Q2)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .config import Identity
from .refusal import Refused


class Slots:
    """On one event loop. A place is given and taken back without waiting for anything, so that a question
    that is broken off at any moment gives its place back."""

    def __init__(self, running: int, wait_seconds: int) -> None:
        self._most = running
        self._wait = wait_seconds
        self._queue: deque[tuple[Identity, asyncio.Future[None]]] = deque()
        self.running: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()

    def _free(self, identity: Identity) -> bool:
        return self.running[identity.key] < identity.running and self.running.total() < self._most

    @asynccontextmanager
    async def taken(self, identity: Identity) -> AsyncIterator[float]:
        """Hands out the seconds that were waited."""
        began = time.monotonic()
        await self._take(identity)
        try:
            yield time.monotonic() - began
        finally:
            self._give_back(identity)

    async def _take(self, identity: Identity) -> None:
        key = identity.key
        if self._free(identity) and not self.waiting[key]:
            self.running[key] += 1
            return
        if self.waiting[key] >= identity.waiting:
            raise Refused(
                429,
                "queue",
                f"{self.running[key]} questions run and {self.waiting[key]} wait: ask again in some seconds, "
                "fewer at a time, or as a job (POST /api/v1/jobs)",
            )
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = (identity, place)
        self._queue.append(turn)
        self.waiting[key] += 1
        try:
            await asyncio.wait({place}, timeout=self._wait)
        except BaseException:
            if place.done():  # the place came in the moment in which nobody wanted it any more
                self._give_back(identity)
            raise
        finally:
            self.waiting[key] -= 1
            if not place.done():
                self._queue.remove(turn)
        if not place.done():
            raise Refused(429, "queue", f"waited {self._wait}s for a free place: ask again, fewer at a time")

    def _give_back(self, identity: Identity) -> None:
        self.running[identity.key] -= 1
        for turn in list(self._queue):
            who, place = turn
            if self._free(who):
                self.running[who.key] += 1
                self._queue.remove(turn)
                place.set_result(None)
