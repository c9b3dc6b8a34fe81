"""Calls that may never return, one thread at a time; what hangs is left behind, named, and not asked again.

A call into a driver, or a read of a process that is stuck in the kernel, cannot be interrupted. So calls
run in a thread that is given up when one of them takes too long; a new thread does the rest. The hung one
keeps its name until it returns: each call can hold one thread, however often it is asked for, and all
together a fixed number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

Key = Hashable
Call = tuple[Key, Callable[[], Any]]


class Hung(Exception):
    """The call has not returned in time, now or earlier."""


class _Walk(threading.Thread):
    def __init__(self, calls: Sequence[Call], ended: Callable[[_Walk], None]) -> None:
        super().__init__(daemon=True, name="sideband-call")
        self._calls = calls
        self._ended = ended
        self._lock = threading.Lock()
        self.results: dict[Key, Any] = {}
        self.done = 0
        self.since = time.monotonic()
        self.finished = threading.Event()
        self.abandoned = False

    def run(self) -> None:
        for key, function in self._calls:
            self.since = time.monotonic()
            try:
                result: Any = function()
            except Exception as error:  # handed to whoever asked, with the other calls' results
                result = error
            with self._lock:
                if self.abandoned:  # a late answer is an old one
                    break
                self.results[key] = result
                self.done += 1
        self.finished.set()
        self._ended(self)

    def abandon(self, patience: float) -> bool:
        """Give up on the call in progress, unless it has just returned."""
        with self._lock:
            late = self.done < len(self._calls) and time.monotonic() - self.since >= patience
            self.abandoned = late
        return late


class Bounded:
    def __init__(self, most_hung: int = 8) -> None:
        self._most_hung = most_hung
        self._lock = threading.Lock()
        self._hung: dict[Key, _Walk] = {}

    def hung(self) -> list[Key]:
        with self._lock:
            return list(self._hung)

    def _forget(self, walk: _Walk) -> None:
        with self._lock:
            self._hung = {key: one for key, one in self._hung.items() if one is not walk}

    def run(self, calls: Sequence[Call], patience: float, skip: Callable[[Key, Key], bool]) -> dict[Key, Any]:
        """Every call's value, exception or Hung. A call that hangs takes along those that skip(hung, other)
        names."""
        results: dict[Key, Any] = {}
        todo = self._worth_asking(calls, skip, results)
        while todo:
            walk = _Walk(todo, self._forget)
            walk.start()
            while not walk.finished.wait(max(0.001, patience - (time.monotonic() - walk.since))):
                if walk.abandon(patience):
                    break
            results.update(walk.results)
            if not walk.abandoned:
                break
            key = todo[walk.done][0]
            with self._lock:
                if not walk.finished.is_set():
                    self._hung[key] = walk
            results[key] = Hung()
            todo = self._worth_asking(todo[walk.done + 1 :], skip, results)
        return results

    def _worth_asking(
        self, calls: Sequence[Call], skip: Callable[[Key, Key], bool], results: dict[Key, Any]
    ) -> list[Call]:
        hung = self.hung()
        if len(hung) >= self._most_hung:
            results.update({key: Hung() for key, _ in calls})
            return []
        worth = []
        for key, function in calls:
            if any(one == key or skip(one, key) for one in hung):
                results[key] = Hung()
            else:
                worth.append((key, function))
        return worth

    def ask(self, key: Key, function: Callable[[], Any], patience: float) -> Any:
        """One call: its value; its exception or Hung is raised."""
        result = self.run([(key, function)], patience, lambda hung, other: False)[key]
        if isinstance(result, Exception):
            raise result
        return result
