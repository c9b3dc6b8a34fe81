"""Tells the supervisor (systemd) that the process is ready, and that it still goes round."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(text: str) -> None:
    """To $NOTIFY_SOCKET, if there is one. A main loop that stops is ended and started again
    (WatchdogSec=)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1)
        channel.sendto(text.encode(), target)
