"""How many questions run at once: so many for each identity and in all, a short queue before them (Q2)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .config import Identity
from .refusal import Refused


class Slots:
    def __init__(self, running: int, wait_seconds: int) -> None:
        self._most = running
        self._wait = wait_seconds
        self._changed = asyncio.Condition()
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
            async with self._changed:
                self.running[identity.key] -= 1
                self._changed.notify_all()

    async def _take(self, identity: Identity) -> None:
        key = identity.key
        async with self._changed:
            if not self._free(identity) or self.waiting[key]:
                if self.waiting[key] >= identity.waiting:
                    raise Refused(
                        429,
                        "queue",
                        f"{identity.running} questions run and {self.waiting[key]} wait: ask again in some "
                        "seconds, fewer at a time, or as a job (POST /api/v1/jobs)",
                    )
                self.waiting[key] += 1
                try:
                    await asyncio.wait_for(self._changed.wait_for(lambda: self._free(identity)), self._wait)
                except asyncio.TimeoutError:
                    raise Refused(
                        429, "queue", f"waited {self._wait}s for a free place: ask again, fewer at a time"
                    ) from None
                finally:
                    self.waiting[key] -= 1
            self.running[key] += 1
