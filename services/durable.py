"""Files that are whole or absent, whatever happens: written beside, synced, renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable


def write(path: str, data: bytes | Iterable[bytes], mode: int = 0o644) -> None:
    directory = os.path.dirname(path) or "."
    descriptor, candidate = tempfile.mkstemp(prefix=".", suffix=".new", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(candidate, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(candidate)
        raise
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: str, limit: int) -> bytes | None:
    """The content, or None where there is none to be had (absent, unreadable, or longer than it can be).
    A pipe that somebody has put in the file's place is not waited for."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            data = file.read(limit + 1) or b""
    except OSError:
        return None
    return data if len(data) <= limit else None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
