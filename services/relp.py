"""RELP, as far as two programs of ours speak it with rsyslog: frames, a sender, a receiver's answers.

A frame is `NUMBER COMMAND LENGTH[ DATA]` and a line feed. Every frame is answered by `NUMBER rsp LENGTH[
DATA]`;
only then may its sender forget it. Source: librelp's protocol notes (relp.html), version 0, command `syslog`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

OFFER = b"relp_version=0\nrelp_software=sideband\ncommands=syslog"
NUMBER_MAX = 999_999_999
_HEAD_BYTES = 9 + 1 + 32 + 1 + 9 + 1


class Broken(Exception):
    """The other end does not speak RELP, or has gone."""


@dataclass(frozen=True)
class Frame:
    number: int
    command: bytes
    data: bytes


def frame(number: int, command: bytes, data: bytes = b"") -> bytes:
    head = b"%d %s %d" % (number, command, len(data))
    return head + b" " + data + b"\n" if data else head + b"\n"


class Reader:
    """Bytes in, whole frames out. A frame may hold `limit` bytes of data at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while True:
                one, after = self._next(at)
                if one is None:
                    return
                at = after
                yield one
        finally:
            del buffer[:at]

    def _next(self, at: int) -> tuple[Frame | None, int]:
        buffer = self._buffer
        first = buffer.find(b" ", at, at + _HEAD_BYTES)
        second = buffer.find(b" ", first + 1, at + _HEAD_BYTES) if first >= 0 else -1
        if second < 0:
            if len(buffer) - at >= _HEAD_BYTES:
                raise Broken("no frame")
            return None, at
        end = second + 1
        while end < len(buffer) and 0x30 <= buffer[end] <= 0x39 and end - second <= 9:
            end += 1
        if end == len(buffer):
            return None, at
        try:
            number, length = int(buffer[at:first]), int(buffer[second + 1 : end])
        except ValueError:
            raise Broken("no frame") from None
        if length > self._limit:
            raise Broken(f"a frame of {length} bytes")
        if length == 0 and buffer[end] == 0x0A:
            return Frame(number, bytes(buffer[first + 1 : second]), b""), end + 1
        if buffer[end] != 0x20:
            raise Broken("no frame")
        stop = end + 1 + length
        if len(buffer) <= stop:
            return None, at
        if buffer[stop] != 0x0A:
            raise Broken("no frame")
        return Frame(number, bytes(buffer[first + 1 : second]), bytes(buffer[end + 1 : stop])), stop + 1


class Sender:
    """Hands texts over and tells in their order which have been taken. Nothing here waits for the other end
    beyond `patience` seconds of a connection being made."""

    def __init__(
        self, address: tuple[str, int], context: ssl.SSLContext | None, name: str = "", window: int = 256,
        patience: float = 5.0,
    ) -> None:  # fmt: skip
        self._address, self._context, self._name = address, context, name
        self._window, self._patience = window, patience
        self._socket: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._out = bytearray()
        self._reader = Reader(65536)
        self._number = 0
        self._opened = False
        self._waiting: deque[tuple[int, bytes]] = deque()  # sent, not taken yet
        self._taken: set[int] = set()
        self._again: deque[bytes] = deque()  # to be sent once more, over a new connection
        self._failures = 0
        self._not_before = 0.0
        self.problem = "not connected yet"

    @property
    def outstanding(self) -> int:
        return len(self._waiting) + len(self._again)

    @property
    def room(self) -> int:
        return max(0, self._window - self.outstanding)

    @property
    def connected(self) -> bool:
        return self._opened

    def watch(self, file: int) -> None:
        """Another descriptor that ends a wait."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(file)
        self._selector.register(file, selectors.EVENT_READ)

    def unwatch(self, file: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(file)

    def send(self, text: bytes) -> None:
        if self._opened and not self._again:
            self._put(text)
        else:
            self._again.append(text)

    def _put(self, text: bytes) -> None:
        self._number = self._number % NUMBER_MAX + 1
        self._waiting.append((self._number, text))
        self._out += frame(self._number, b"syslog", text)

    def pump(self, seconds: float) -> int:
        """Moves bytes for at most so long; how many texts, the eldest first, have been taken since."""
        if self._socket is None and time.monotonic() < self._not_before:
            self._idle(min(seconds, self._not_before - time.monotonic()))
            return 0
        try:
            if self._socket is None:
                self._connect()
            self._wait(seconds)
            self._write()
            return self._read()
        except (OSError, Broken) as error:
            self._lose(str(error) or type(error).__name__)
        return 0

    def _idle(self, seconds: float) -> None:
        if self._selector.get_map():
            self._selector.select(max(0.0, seconds))
        else:
            time.sleep(max(0.0, seconds))

    def _connect(self) -> None:
        plain = socket.create_connection(self._address, timeout=self._patience)
        try:
            one = (
                self._context.wrap_socket(plain, server_hostname=self._name or None)
                if self._context
                else plain
            )
        except BaseException:
            plain.close()
            raise
        one.setblocking(False)
        self._socket, self._reader = one, Reader(65536)
        self._selector.register(one, selectors.EVENT_READ)
        self._number = 1
        self._out = bytearray(frame(1, b"open", OFFER))

    def _wait(self, seconds: float) -> None:
        one = self._socket
        if one is None:
            return
        pending = isinstance(one, ssl.SSLSocket) and one.pending() > 0
        if self._out:
            self._selector.modify(one, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._selector.select(0 if pending else seconds)
        if self._out:
            self._selector.modify(one, selectors.EVENT_READ)

    def _write(self) -> None:
        assert self._socket is not None
        while self._out:
            try:
                sent = self._socket.send(self._out[:65536])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                return
            del self._out[:sent]

    def _read(self) -> int:
        assert self._socket is not None
        while True:
            try:
                data = self._socket.recv(65536)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                break
            if not data:
                raise Broken("closed by the other end")
            for one in self._reader.feed(data):
                self._answer(one)
        done = 0
        while self._waiting and self._waiting[0][0] in self._taken:
            self._taken.discard(self._waiting.popleft()[0])
            done += 1
        return done

    def _answer(self, one: Frame) -> None:
        if one.command == b"serverclose":
            raise Broken("closed by the other end")
        if one.command != b"rsp":
            raise Broken("an answer that is none")
        if not one.data.startswith(b"200"):
            raise Broken(f"refused: {one.data[:80].decode('utf-8', 'replace')}")
        if one.number == 1 and not self._opened:
            self._opened, self._failures, self.problem = True, 0, ""
            again, self._again = self._again, deque()
            for text in again:
                self._put(text)
        else:
            self._taken.add(one.number)

    def _lose(self, problem: str) -> None:
        self._failures += 1
        self._not_before = time.monotonic() + min(0.5 * 2.0 ** min(self._failures - 1, 8), 15.0)
        self.close()
        self.problem = problem

    def close(self) -> None:
        """What was not taken is sent again, first, by the next connection."""
        if self._socket is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._socket)
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._opened = None, False
        self._again.extendleft(text for _, text in reversed(self._waiting))
        self._waiting.clear()
        self._taken.clear()
        self._out.clear()
