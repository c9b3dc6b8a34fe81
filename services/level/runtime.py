"""HAProxy's maps, through its runtime socket and on disk."""

from __future__ import annotations

import re
import socket
import time

_ANSWER_BYTES = 1 << 20


class NotTaken(Exception):
    """HAProxy did not take a command; the text says which and what it answered."""


def ask(path: str, command: str, timeout: float = 3.0) -> str:
    """One command, one answer. The socket closes after it, as it does for any client that does not stay."""
    deadline = time.monotonic() + timeout
    pieces: list[bytes] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(command.encode("ascii") + b"\n")
            while sum(map(len, pieces)) < _ANSWER_BYTES:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                piece = connection.recv(65536)
                if not piece:
                    break
                pieces.append(piece)
    except OSError as error:
        raise NotTaken(f"{path}: {error.strerror or error}") from None
    return b"".join(pieces).decode("utf-8", "replace").strip()


def replace_map(path: str, name: str, entries: dict[str, str]) -> None:
    """Replace a map's whole content at one instant, and read it back."""
    prepared = ask(path, f"prepare map {name}")
    version = re.search(r"New version created: (\d+)", prepared)
    if version is None:
        raise NotTaken(f"prepare map {name}: {prepared or 'no answer'}")
    mark = f"@{version.group(1)}"
    for key, value in entries.items():
        # One command an entry: a command shares one buffer with all that it carries.
        answer = ask(path, f"add map {mark} {name} {key} {value}")
        if answer:
            raise NotTaken(f"add map {name} {key}: {answer[:200]}")
    answer = ask(path, f"commit map {mark} {name}")
    if answer:
        raise NotTaken(f"commit map {name}: {answer[:200]}")
    held = read_map(path, name)
    if held != entries:
        raise NotTaken(f"{name}: holds other entries than were set ({', '.join(sorted(held)) or 'none'})")


def read_map(path: str, name: str) -> dict[str, str]:
    held = {}
    for line in ask(path, f"show map {name}").splitlines():
        words = line.split(" ", 2)
        if len(words) == 3 and words[0].startswith("0x"):
            held[words[1]] = words[2]
    return held


def map_text(entries: dict[str, str]) -> bytes:
    """The same entries as a map file, for HAProxy's next start."""
    return "".join(f"{key} {value}\n" for key, value in entries.items()).encode("ascii")
