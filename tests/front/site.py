"""The same questions on the running lab, from inside its hosts' network namespaces."""

from __future__ import annotations

import json
import socket
import time
import urllib.parse
from pathlib import Path
from typing import Any

from .client import Answer, Client, read_answer, socket_in

PROJECT = Path(__file__).resolve().parents[2]
PKI = PROJECT / ".sideband/lab/pki"
RACK = {"node1": "rack1", "node2": "rack1", "node3": "rack2"}
RECEIVER = {"rack1": "10.21.0.21", "rack2": "10.22.0.22"}
RECEIVER6 = {"rack1": "fd00:5b:21::21", "rack2": "fd00:5b:22::22"}
GATEWAY = "10.40.0.51"
GATEWAY6 = "fd00:5b:40::51"


def namespace(host: str) -> str:
    return f"sbl-{host}"


def node(host: str, identity: str = "", family: int = 4) -> Client:
    """A sender on a node, with the node's own certificate unless another is given."""
    receivers = RECEIVER if family == 4 else RECEIVER6
    return Client(namespace(host), PKI, identity or f"node-{host}", (receivers[RACK[host]], 8427))


def tenant(name: str, address: str = GATEWAY) -> Client:
    return Client(namespace("user1"), PKI, name, (address, 8443))


def patient_socket(host: str, port: int) -> socket.socket:
    """A store that was just started replays its log before it listens."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return socket_in(namespace(host), ("127.0.0.1", port), 10)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def local(host: str, port: int, path: str) -> str:
    """HTTP on a host's own loopback."""
    deadline = time.monotonic() + 90
    while True:
        with patient_socket(host, port) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\n\r\n".encode())
            with stream.makefile("rb") as reader:
                answer: Answer = read_answer(reader)
        if answer.status != 503 or time.monotonic() > deadline:
            assert answer.status == 200, answer
            return answer.text
        time.sleep(0.5)  # a store that was just started listens before it is ready


def post(host: str, port: int, path: str, body: bytes = b"") -> Answer:
    """To a host's own loopback; whatever it takes, it says 2xx."""
    with socket_in(namespace(host), ("127.0.0.1", port), 30) as stream:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        stream.sendall(head.encode() + body)
        with stream.makefile("rb") as reader:
            answer = read_answer(reader)
    assert answer.status < 300, answer
    return answer


def query(port: int, expression: str) -> list[dict[str, Any]]:
    """An instant query to a store of lake1: 9090 is the hot tier, 8532 the 1-minute tier."""
    text = local("lake1", port, "/api/v1/query?query=" + urllib.parse.quote(expression))
    result: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    return result


def hot(expression: str) -> list[dict[str, Any]]:
    return query(9090, expression)


def minute(expression: str) -> list[dict[str, Any]]:
    return query(8532, expression)


def hot_when(selector: str, samples: int = 1, seconds: float = 90) -> list[dict[str, Any]]:
    """All samples of the last hour, as soon as there are that many."""
    deadline = time.monotonic() + seconds
    while True:
        found = hot(f"{selector}[1h]")
        if sum(len(series["values"]) for series in found) >= samples or time.monotonic() > deadline:
            return found
        time.sleep(0.5)
