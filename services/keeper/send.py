"""Rows to the store, in the order of their numbers, for as long as it takes."""

from __future__ import annotations

import collections
import os
import random
import threading
import time
from collections.abc import Callable

from services.keeper.book import Book, Row
from services.keeper.store import Store, Unavailable

_GATHER_SECONDS = 0.2
_BATCH_ROWS, _BATCH_BYTES = 2000, 1 << 20
_SETTLE_SECONDS = 15.0  # the store writes what is in its memory every five
_BACKOFF_SECONDS = 10.0
_VISIBLE_SECONDS = 3.0


class Sending(threading.Thread):
    def __init__(self, book: Book, store: Store, say: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._book, self._store, self._say = book, store, say
        self._process = ""  # of the store, as it was when the rows that are not settled were sent
        # What is in the book at the start may have been sent by the process before this one.
        self._doubt = bool(book.rows)
        self._unsent: collections.deque[Row] = collections.deque(book.rows)
        self._known = book.rows[-1].number if book.rows else 0
        self._failures = 0
        self._settle_due = 0.0
        self.counts = collections.Counter(dict.fromkeys(("stored", "doubts", "stored_again"), 0))
        self.ending = threading.Event()

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self._round()
        except BaseException as error:
            self._say(f"error: storing: {type(error).__name__}: {error}")
            os._exit(1)  # started again it goes on from what is on disk

    def _round(self) -> None:
        with self._book.changed:
            if not self._fresh() and not self._unsent:
                self._book.changed.wait(0.5)
        if self._fresh():
            self.ending.wait(_GATHER_SECONDS)
        self._collect()
        try:
            if self._doubt:
                self._resolve()
            self._send()
            self._settle()
            if self._failures:
                self._say("the store takes rows again")
            self._failures = 0
        except Unavailable as problem:
            self._failures += 1
            self._doubt = True
            if self._failures == 1:
                self.counts["doubts"] += 1
                self._say(f"the store: {problem}; rows wait here")
            pause = min(0.5 * 2.0 ** min(self._failures - 1, 6), _BACKOFF_SECONDS)
            self.ending.wait(pause * random.uniform(0.5, 1.0))

    def _fresh(self) -> bool:
        rows = self._book.rows
        return bool(rows) and rows[-1].number > self._known

    def _collect(self) -> None:
        with self._book.changed:
            fresh: list[Row] = []
            for row in reversed(self._book.rows):
                if row.number <= self._known:
                    break
                fresh.append(row)
            self._unsent.extend(reversed(fresh))
            if fresh:
                self._known = fresh[0].number

    def _send(self) -> None:
        while self._unsent and not self.ending.is_set():
            batch: list[Row] = []
            size = 0
            for row in self._unsent:
                if batch and (len(batch) >= _BATCH_ROWS or size + row.size > _BATCH_BYTES):
                    break
                batch.append(row)
                size += row.size
            if not self._process:
                self._process = self._store.started()
            self._store.insert(batch)
            now = time.monotonic()
            for row in batch:
                row.sent = now
                self._unsent.popleft()
            self.counts["stored"] += len(batch)

    def _resolve(self) -> None:
        """Asks for every row that is not settled, and sends those again that are not there."""
        with self._book.changed:
            rows = list(self._book.rows)
        process = self._store.started()
        # A request that broke off may still be at work over there, and what it brought is found a moment
        # later.
        self.ending.wait(_VISIBLE_SECONDS)
        now = time.monotonic()
        missing: list[Row] = []
        for at in range(0, len(rows), _BATCH_ROWS):
            part = rows[at : at + _BATCH_ROWS]
            there = self._store.has(part)
            for row in part:
                if row.number in there:
                    row.sent = now
                else:
                    self.counts["stored_again"] += row.sent > 0
                    row.sent = 0.0
                    missing.append(row)
        self._unsent = collections.deque(missing)
        self._known = max(self._known, rows[-1].number if rows else 0)
        self._process = process
        self._doubt = False

    def _settle(self) -> None:
        now = time.monotonic()
        if now < self._settle_due:
            return
        self._settle_due = now + 3.0
        if not self._book.rows:
            return
        process = self._store.started()
        if process != self._process:
            if self._process:
                self._say("the store was started anew: asking what it has")
                self._doubt = True
                self.counts["doubts"] += 1
            self._process = process
            return
        with self._book.changed:
            if self._book.settle(now - _SETTLE_SECONDS):
                self._book.changed.notify_all()
