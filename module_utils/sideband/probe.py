"""One visit to a host for probing: open (listeners, capture, what the counters say), shoot (connections and
frames), collect (what was seen, what the counters say now). Many probes a visit, no change to the host.

Standard library alone; Python 3.9.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlencode

from . import packets, probe_facts, probe_observer

Record = dict[str, Any]
DIRECTORY = "/run/sideband-probe"
TIMEOUT = 3.0


def visit(phase: str, run: Record, request: Record, directory: str = DIRECTORY) -> Record:
    """run = {magic, seconds, rate}; the request is made by verify_plan."""
    started = time.monotonic()
    result = {"open": _open, "shoot": _shoot, "collect": _collect}[phase](run, request, directory)
    result["seconds"] = round(time.monotonic() - started, 3)
    return result


def _open(run: Record, request: Record, directory: str) -> Record:
    # Sockets first: the probe's own listeners must not be among them.
    sockets = probe_facts.sockets() if request["sockets"] else []
    probe_observer.start(run, request, directory)
    _say(run, request.get("says", ""))
    return {
        "macs": {device: probe_facts.hardware(device) for device in request["devices"]},
        "answers": [[*_name(one), _answers(run, one)] for one in request["listeners"]],
        "hooks": probe_facts.hooks(request["training"]),
        "queues": probe_facts.queues(request["training"]),
        "sockets": sockets,
        "counters": probe_facts.counters(),
        "versions": probe_facts.versions(),
    }


def _say(run: Record, text: str) -> None:
    """One line to the host's own log, as `logger` does it."""
    if text:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as log, suppress(OSError):
            log.sendto(f"<14>sideband-verify: {text.format(**run)}".encode(), "/dev/log")


def _shoot(run: Record, request: Record, directory: str) -> Record:
    with ThreadPoolExecutor(max_workers=32) as pool:
        connected = list(pool.map(lambda one: _connect(*one), request["connects"]))
    sent, unsent = _send(int(run["magic"]), float(run["rate"]), request["frames"])
    return {
        "connects": {str(number): outcome for number, outcome in connected},
        "sent": sent,
        "unsent": unsent,
    }


def _collect(run: Record, request: Record, directory: str) -> Record:
    result: Record = {
        "counters": probe_facts.counters(),
        "seen": probe_facts.seen(),
        "devices": {},
        "problem": "",
    }
    try:
        result["devices"] = probe_observer.ask(directory)
    except (OSError, ValueError) as error:
        result["problem"] = f"the observer is gone: {error}"
    asks = [{**one, "magic": run["magic"]} for one in request.get("asks", [])]
    with ThreadPoolExecutor(max_workers=len(asks) or 1) as pool:  # one patience for all
        result["answers"] = list(pool.map(ask, asks))
    return result


def _name(one: Record) -> tuple[str, str, int]:
    return one["protocol"], one["address"], one["port"]


def _answers(run: Record, one: Record) -> str:
    """'' where the listener answers the host itself, else why not: a probe that aims at a deaf port proves
    nothing by silence."""
    family = socket.AF_INET6 if ":" in one["address"] else socket.AF_INET
    if one["protocol"] == "tcp":
        return _reach(family, (one["address"], one["port"]), None)
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(TIMEOUT)
        try:
            # Not this run's magic: it is no probe.
            sock.sendto(
                struct.pack("!I", int(run["magic"]) ^ 0xFFFF) + packets.ASK, (one["address"], one["port"])
            )
            return "" if sock.recv(64)[4:5] == packets.ECHO else "answered something else"
        except OSError as error:
            return _reason(error)


def _connect(number: int, source: str, destination: str, source_port: int, port: int) -> tuple[int, str]:
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    return number, _reach(family, (destination, port), (source, source_port))


def _reach(family: int, there: tuple[str, int], here: tuple[str, int] | None) -> str:
    """'' when the port answers, else the reason."""
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(TIMEOUT)
        # Closing with a reset leaves no TIME-WAIT behind, so the next run may use the same ports.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if here is not None:
                sock.bind((here[0] or ("::" if family == socket.AF_INET6 else "0.0.0.0"), here[1]))
            sock.connect(there)
        except OSError as error:
            return _reason(error)
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, socket.timeout):
        return "timeout"
    return {errno.ECONNREFUSED: "refused", errno.EHOSTUNREACH: "no route to host"}.get(
        error.errno or 0, str(error)
    )


def _send(magic: int, rate: float, frames: list[list[Any]]) -> tuple[list[int], dict[str, str]]:
    """Each frame once, no faster than `rate` a second (0: as fast as it goes)."""
    sent: list[int] = []
    unsent: dict[str, str] = {}
    handles: dict[str, socket.socket] = {}
    own: dict[tuple[str, int], str] = {}
    begun = time.monotonic()
    for count, (number, device, mac, source, destination, shape, source_port, port) in enumerate(frames):
        if rate:
            time.sleep(max(0.0, begun + count / rate - time.monotonic()))
        try:
            if device not in handles:
                handles[device] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                handles[device].bind((device, 0))
                for family, address in probe_facts.addresses(device).items():
                    own[device, family] = address
            family = 6 if ":" in destination else 4
            source = source or own.get((device, family), "")
            if not mac or not source:
                raise OSError(
                    f"no hardware address of {destination}"
                    if not mac
                    else f"{device} has no IPv{family} address"
                )
            hardware = ":".join(f"{byte:02x}" for byte in handles[device].getsockname()[4])
            handles[device].send(
                packets.build(
                    source_mac=hardware,
                    destination_mac=mac,
                    source=source,
                    destination=destination,
                    shape=shape,
                    source_port=source_port,
                    destination_port=port,
                    mark=packets.token(magic, number),
                )
            )
            sent.append(number)
        except OSError as error:
            unsent[str(number)] = str(error)
    for handle in handles.values():
        handle.close()
    return sent, unsent


def ask(one: Record) -> Record:
    """One query over mutual TLS {host, port, path, query, ca, certificate, key, patience}, over
    loopback (without ca), or over a unix socket under a name {socket, identity, path, query, patience} -> the
    vector, once it is as long as `enough`, or what there is when patience ends."""
    until = time.monotonic() + float(one["patience"])
    while True:
        problem, rows = "", []
        try:
            rows = _query(one)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        if (not problem and len(rows) >= one["enough"]) or time.monotonic() > until:
            return {"name": one["name"], "problem": problem, "rows": rows}
        time.sleep(2)


class _Local(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self._path)


def _connection(one: Record) -> http.client.HTTPConnection:
    if "socket" in one:
        return _Local(one["socket"])
    if "ca" not in one:
        return http.client.HTTPConnection(one["host"], one["port"], timeout=10)
    context = ssl.create_default_context(cafile=one["ca"])
    context.load_cert_chain(one["certificate"], one["key"])
    return http.client.HTTPSConnection(one["host"], one["port"], timeout=10, context=context)


def _query(one: Record) -> list[Record]:
    connection = _connection(one)
    query = one["query"].replace("{magic}", str(one.get("magic", "")))
    headers = {"X-Sideband-Identity": one["identity"]} if "identity" in one else {}
    with closing(connection):
        connection.request("GET", one["path"] + "?" + urlencode({"query": query}), headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    if answer.status != 200:
        raise ValueError(f"status {answer.status}: {text[:200].decode(errors='replace').strip()}")
    body = json.loads(text)
    return [{"labels": row["metric"], "value": float(row["value"][1])} for row in body["data"]["result"]]
