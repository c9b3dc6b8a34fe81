"""The observer: a short-lived process on each probed host that opens the listeners at which probes aim,
answers them, and reads from every plane's device (never a training device) what arrived and what was
answered. It ends when asked for its findings, or by itself when its time is over.

An AF_PACKET socket sees a frame before netdev ingress rules judge it: so "arrived" and "was dropped" are two
facts. Standard library alone; Python 3.9.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from contextlib import suppress
from typing import Any, Callable

from . import packets

Record = dict[str, Any]
_EVERYTHING = 0x0003  # ETH_P_ALL
_FORCED_BUFFER = 33  # SO_RCVBUFFORCE
_TO_US, _TO_OTHERS, _OUTGOING = 0, 3, 4
CONTROL = "observer.sock"


class Observer:
    def __init__(self, run: Record, directory: str) -> None:
        self.magic, self.deadline = int(run["magic"]), time.monotonic() + float(run["seconds"])
        self.path = os.path.join(directory, CONTROL)
        self.selector = selectors.DefaultSelector()
        self.devices: dict[str, Record] = {}
        self.done = False

    # Opening: whatever cannot be had is an error of the visit, before anything is probed -------------------

    def open(self, request: Record) -> None:
        for device in request["devices"]:
            self._capture(device)
        for one in request["listeners"]:
            if one["own"]:
                self._listen(one)
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(self.path)
        os.chmod(self.path, 0o600)
        control.listen(4)
        self._watch(control, lambda: self._answer(control))

    def _capture(self, device: str) -> None:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        packets.narrow(sock, self.magic)
        sock.setsockopt(socket.SOL_SOCKET, _FORCED_BUFFER, 8 << 20)
        sock.bind((device, _EVERYTHING))
        self.devices[device] = {"seen": set(), "answered": {}, "bystander": {}, "marks": {}}
        self._watch(sock, lambda: self._frames(device, sock))

    def _listen(self, one: Record) -> None:
        family = socket.AF_INET6 if ":" in one["address"] else socket.AF_INET
        stream = one["protocol"] == "tcp"
        sock = socket.socket(family, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            sock.bind((one["address"], one["port"]))
        except OSError as error:
            raise OSError(
                f"listener {one['protocol']} {one['address']} port {one['port']}: {error}"
            ) from error
        if stream:
            sock.listen(64)
        self._watch(sock, lambda: self._accept(sock) if stream else self._echo(sock))

    def _watch(self, sock: socket.socket, act: Callable[[], None]) -> None:
        sock.setblocking(False)
        self.selector.register(sock, selectors.EVENT_READ, act)

    # Running ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until asked or too late."""
        try:
            while not self.done and time.monotonic() < self.deadline:
                self._turn(1.0)
        finally:
            if not self.done:
                self._close()

    def _close(self) -> None:
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def _turn(self, patience: float) -> int:
        ready = self.selector.select(patience)
        for key, _ in ready:
            with suppress(OSError):  # a peer that went away is no concern of the others
                key.data()
        return len(ready)

    def _frames(self, device: str, sock: socket.socket) -> None:
        found = self.devices[device]
        for _ in range(256):
            try:
                frame, about = sock.recvfrom(2048)
            except BlockingIOError:
                return
            seen = packets.read(frame)
            if seen is None:
                continue
            kind = about[2]
            sorted_out = packets.sort(self.magic, seen)
            if sorted_out is None:
                if kind == _TO_US:
                    key = (seen.source, seen.source_port, seen.destination, seen.destination_port)
                    found["marks"].setdefault(key, seen.dscp)
            elif sorted_out[0] == "answer":
                # The first answer: what follows it is the asker's own kernel, which knows of no connection.
                found["answered"].setdefault(sorted_out[1], sorted_out[2])
            elif kind == _TO_US:
                found["seen"].add(sorted_out[1])
            elif kind == _TO_OTHERS:
                found["bystander"][sorted_out[1]] = found["bystander"].get(sorted_out[1], 0) + 1

    def _accept(self, sock: socket.socket) -> None:
        client, _ = sock.accept()
        client.close()

    def _echo(self, sock: socket.socket) -> None:
        data, peer = sock.recvfrom(64)
        if len(data) >= 5:
            sock.sendto(data[:4] + packets.ECHO, peer)

    def _answer(self, control: socket.socket) -> None:
        client, _ = control.accept()
        with client:
            client.settimeout(5)
            client.recv(16)
            # What waits in the buffers belongs to the findings.
            self.selector.unregister(control)
            until = time.monotonic() + 2
            while self._turn(0.05) and time.monotonic() < until:
                pass
            # Whoever asks may open anew at once, so the ports are given back before the answer.
            control.close()
            self._close()
            self.done = True
            client.sendall(json.dumps(self.findings()).encode())

    def findings(self) -> Record:
        return {
            device: {
                "seen": sorted(found["seen"]),
                "answered": {str(number): how for number, how in found["answered"].items()},
                "bystander": {str(number): times for number, times in found["bystander"].items()},
                "marks": [[*key, dscp] for key, dscp in found["marks"].items()],
            }
            for device, found in self.devices.items()
        }


def ask(directory: str) -> Record:
    """The findings of the observer that runs in this directory; it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(15)
        sock.connect(os.path.join(directory, CONTROL))
        sock.sendall(b"collect\n")
        parts = []
        while True:
            part = sock.recv(1 << 16)
            if not part:
                break
            parts.append(part)
    found: Record = json.loads(b"".join(parts))
    return found


def start(run: Record, request: Record, directory: str) -> None:
    """Open everything here, so that what fails is told, then go on in a process of its own."""
    with suppress(OSError, ValueError):
        ask(directory)  # one that an earlier, broken-off run left behind holds the ports
    observer = Observer(run, directory)
    observer.open(request)
    if os.fork():
        # The sockets live on in the child; here they are only handles.
        for key in list(observer.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(nothing, handle)
        observer.run()
    finally:
        os._exit(0)
