"""keeper: the log store's receiver. Racks' relays hand records over by RELP; a record is confirmed when it
is on disk here, and stored once, however often it comes and whichever process is killed meanwhile.

    keeper.pyz [CONFIG]            # /etc/sideband/logs/keeper.json
    keeper.pyz --check CONFIG

HAProxy ends mutual TLS in front of its unix socket and tells by the PROXY protocol (version 2, with the
certificate's common name) who it is that speaks.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.server
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from services import configuration, relp
from services.configuration import ConfigError
from services.keeper import record
from services.keeper.book import Book
from services.keeper.record import Places, Refused
from services.keeper.send import Sending
from services.keeper.store import Store

_CONFIG = "/etc/sideband/logs/keeper.json"
_FRAME_BYTES = 1 << 20
_PROXY = b"\r\n\r\n\0\r\nQUIT\n"
_TLV_SSL, _TLV_CN = 0x20, 0x22
_TEXTS = ("listen", "ops_listen", "url", "state_directory", "site")
_OK = b"200 OK"


def parse(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("no object")
    known = {*_TEXTS, "receivers", "tenants", "most_bytes", "retention_seconds"}
    problems = [f"{name}: not known" for name in sorted(set(value) - known)]
    problems += [f"{name}: a text is needed" for name in _TEXTS if not isinstance(value.get(name), str)]
    for name in ("most_bytes", "retention_seconds"):
        if type(value.get(name)) is not int or value[name] <= 0:
            problems.append(f"{name}: a number is needed (got {value.get(name)!r})")
    for name, kind in (("receivers", dict), ("tenants", list)):
        table = value.get(name)
        if not isinstance(table, dict) or not all(isinstance(one, kind) for one in table.values()):
            problems.append(f"{name}: a table is needed")
    if not problems and urlsplit(value["url"]).scheme != "http":
        problems.append(f"url: http://ADDRESS:PORT is needed (got {value['url']!r})")
    if problems:
        raise ConfigError("; ".join(problems))
    return value


class Keeper:
    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._places = Places(config["receivers"], config["tenants"])
        self.book = Book(config["state_directory"], say)
        self.sending = Sending(self.book, Store(config["url"]), say)
        self.counts = collections.Counter(dict.fromkeys(("records", "lines", "duplicates"), 0))
        self.refused: collections.Counter[str] = collections.Counter({"malformed": 0, "foreign_node": 0})

    def take(self, receiver: str, payloads: Sequence[bytes]) -> None:
        """On disk when it returns. Waits where the store has not taken for long: the relay keeps the rest."""
        now = time.time()
        oldest = now - self._config["retention_seconds"] + 3600
        with self.book.changed:
            while self.book.bytes > self._config["most_bytes"]:
                self.book.changed.wait(1.0)
            for payload in payloads:
                try:
                    self._one(receiver, payload, now, oldest)
                except Refused as reason:
                    self.refused[str(reason)] += 1
            self.book.sync()
            self.book.changed.notify_all()

    def _one(self, receiver: str, payload: bytes, now: float, oldest: float) -> None:
        found = record.parse(payload)
        rack = self._places.rack(receiver, found.node)
        self.counts["records"] += 1
        self.counts["lines"] += len(found.places)
        fresh = self.book.seen.fresh(found.node, found.stream, found.places)
        self.counts["duplicates"] += len(found.places) - len(fresh)
        if not fresh:
            return
        tenants = self._places.tenants.get(rack, ())
        value = record.row(found, fresh, rack, self._config["site"], tenants, now, oldest)
        self.book.put(found.node, found.stream, found.start, found.end, value)

    def text(self) -> str:
        lines = [f"sideband_keeper_{name}_total {count}" for name, count in self.counts.items()]
        lines += [f"sideband_keeper_{name}_total {count}" for name, count in self.sending.counts.items()]
        lines += [f'sideband_keeper_refused_total{{reason="{name}"}} {n}' for name, n in self.refused.items()]
        with self.book.changed:
            lines += [
                f"sideband_keeper_waiting_bytes {self.book.bytes}",
                f"sideband_keeper_waiting_rows {len(self.book.rows)}",
                f"sideband_keeper_streams {len(self.book.seen)}",
                f"sideband_keeper_holes {self.book.seen.holes}",
                f"sideband_keeper_damaged_total {self.book.damaged}",
            ]
        return "".join(line + "\n" for line in lines)


def say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def proxied(stream: socket.socket) -> tuple[str, bytes]:
    """The common name of the certificate that HAProxy has verified; and what has come after it."""
    head = _exactly(stream, 16)
    if head[:12] != _PROXY or head[12] & 0xF0 != 0x20:
        raise relp.Broken("no PROXY protocol")
    (length,) = struct.unpack(">H", head[14:16])
    body = _exactly(stream, length)
    skip = {0x11: 12, 0x21: 36, 0x31: 216}.get(head[13], 0)
    for kind, data in _tlvs(body[skip:]):
        if kind == _TLV_SSL and len(data) >= 5 and data[1:5] == b"\0\0\0\0":
            for inner, text in _tlvs(data[5:]):
                if inner == _TLV_CN:
                    return text.decode("utf-8", "replace"), b""
    raise relp.Broken("no verified certificate")


def _tlvs(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at + 3 <= len(data):
        kind, length = struct.unpack(">BH", data[at : at + 3])
        found.append((kind, data[at + 3 : at + 3 + length]))
        at += 3 + length
    return found


def _exactly(stream: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise relp.Broken("closed")
        data += more
    return data


def converse(stream: socket.socket, keeper: Keeper) -> None:
    """One relay's connection: what has come together is put on disk together, then confirmed."""
    stream.settimeout(30)
    receiver, _ = proxied(stream)
    stream.settimeout(None)
    reader = relp.Reader(_FRAME_BYTES)
    while True:
        data = stream.recv(262_144)
        if not data:
            return
        answers = b""
        payloads, numbers = [], []
        closing = False
        for one in reader.feed(data):
            if one.command == b"syslog":
                payloads.append(one.data)
                numbers.append(one.number)
            elif one.command == b"open":
                answers += relp.frame(one.number, b"rsp", _OK + b"\n" + relp.OFFER)
            elif one.command == b"close":
                closing = True
                answers += relp.frame(one.number, b"rsp") + relp.frame(0, b"serverclose")
            else:
                answers += relp.frame(one.number, b"rsp", b"500 unknown command")
        if payloads:
            keeper.take(receiver, payloads)
            answers = b"".join(relp.frame(number, b"rsp", _OK) for number in numbers) + answers
        stream.sendall(answers)
        if closing:
            return


def _serve_one(stream: socket.socket, keeper: Keeper) -> None:
    try:
        converse(stream, keeper)
    except (relp.Broken, TimeoutError) as problem:
        if str(problem) != "closed":  # HAProxy looks whether somebody is there
            say(f"a relay: {problem or 'silent'}")
    except ConnectionError:
        pass
    except OSError as error:
        say(f"error: {error}")
        os._exit(1)  # the disk: what was not confirmed comes again
    finally:
        stream.close()


def _figures(keeper: Keeper, listen: str) -> http.server.ThreadingHTTPServer:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = keeper.text().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    host, _, port = listen.rpartition(":")
    server = http.server.ThreadingHTTPServer((host.strip("[]"), int(port)), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def serve(config: dict[str, Any]) -> int:
    path = config["listen"]
    try:
        keeper = Keeper(config)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o007)
        listener.bind(path)
        os.umask(before)
        listener.listen(64)
        _figures(keeper, config["ops_listen"])
    except OSError as error:
        say(f"error: {error}")
        return 1
    keeper.sending.start()

    def stop(number: int, frame: object) -> None:
        keeper.sending.ending.set()
        listener.close()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while not keeper.sending.ending.is_set():
        try:
            stream, _ = listener.accept()
        except OSError:
            break
        threading.Thread(target=_serve_one, args=(stream, keeper), daemon=True).start()
    keeper.sending.join(5)
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="keeper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", default=_CONFIG)
    parser.add_argument("--check", action="store_true", help="check the configuration, and nothing else")
    options = parser.parse_args(arguments)
    try:
        config = configuration.load(options.config, parse)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if options.check else serve(config)
