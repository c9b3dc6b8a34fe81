"""What a node, a rack or a tenant could send: exact bytes over mutual TLS, from a network namespace."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWNET = 0x40000000
Labels = Sequence[tuple[str, str]]
Series = tuple[Labels, Sequence[tuple[float, int]]]  # labels in the order sent, (value, milliseconds)


def socket_in(namespace: str, address: tuple[str, int], timeout: float) -> socket.socket:
    """A connected socket of another network namespace; a thread of its own carries the switch."""
    made: list[socket.socket | OSError] = []

    def connect() -> None:
        if namespace:
            with open(f"/run/netns/{namespace}") as handle:
                if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET) != 0:
                    made.append(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
                    return
        try:
            made.append(socket.create_connection(address, timeout=timeout))
        except OSError as problem:
            made.append(problem)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Client:
    """One identity at one place."""

    namespace: str
    pki: Path
    identity: str  # "node-node1"; "" presents no certificate
    address: tuple[str, int]
    timeout: float = 10.0
    context: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        if self.identity:
            self.context.load_cert_chain(self.pki / f"{self.identity}.crt", self.pki / f"{self.identity}.key")

    def raw(self, request: bytes) -> Answer:
        """Send bytes as they are, read one answer."""
        plain = socket_in(self.namespace, self.address, self.timeout)
        with self.context.wrap_socket(plain, server_hostname=self.address[0]) as stream:
            # Refused while sending: the answer may still be there.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
                stream.sendall(request)
            with stream.makefile("rb") as reader:
                return read_answer(reader)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: front", "Connection: close"]
        if method in ("POST", "PUT", "PATCH") or body:
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in headers]
        return self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def push_text(self, text: str, path: str = "/api/v1/import/prometheus") -> Answer:
        return self.ask("POST", path, text.encode())

    def push(self, series: Iterable[Series], path: str = "/api/v1/write") -> Answer:
        return self.ask("POST", path, snappy(write_request(series)), REMOTE_WRITE)


REMOTE_WRITE = (
    ("Content-Type", "application/x-protobuf"),
    ("Content-Encoding", "snappy"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
)


def read_answer(reader) -> Answer:  # type: ignore[no-untyped-def]
    status_line = reader.readline().decode()
    if not status_line:
        raise ConnectionResetError("closed without an answer")
    headers: dict[str, str] = {}
    for line in iter(reader.readline, b"\r\n"):
        if not line:
            break
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    status = int(status_line.split()[1])
    if status == 304 or status == 204:
        body = b""
    elif "content-length" in headers:
        body = reader.read(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(reader.readline(), 16):
            body += reader.read(size)
            reader.readline()
    else:
        body = reader.read()
    return Answer(status, headers, body)


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def block(tag: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return bytes([tag << 3 | 2]) + varint(len(content)) + content


def write_request(series: Iterable[Series]) -> bytes:
    """prometheus.WriteRequest, labels exactly as given: unsorted and repeated if the test wants it so."""
    out = b""
    for labels, samples in series:
        inner = b"".join(
            block(1, block(1, name.encode()) + block(2, value.encode())) for name, value in labels
        )
        for value, milliseconds in samples:
            inner += block(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(milliseconds))
        out += block(1, inner)
    return out


def snappy(content: bytes) -> bytes:
    """Snappy's block format, literals only: valid, and no library is needed."""
    out = varint(len(content))
    for start in range(0, len(content), 65536):
        piece = content[start : start + 65536]
        out += bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece
    return out
