"""Services of other hosts that a fragment needs: asked before anything is changed, waited for by the role."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# What has to be due before a need is asked for at all; "" is any change.
OCCASIONS = ("", "packages", "archives")
SECONDS = 2.0


@dataclass(frozen=True)
class Need:
    """A TCP port of another host. With `only_for`, it counts only where such a thing is to be brought."""

    name: str
    address: str
    port: int
    only_for: str = ""


def answers(need: Need, seconds: float = SECONDS) -> bool:
    try:
        with socket.create_connection((need.address, need.port), timeout=seconds):
            return True
    except (OSError, UnicodeError):  # the latter for a name that is none in the DNS
        return False


def silent(needs: Iterable[Need], due: Iterable[str]) -> list[dict[str, Any]]:
    """Those that do not answer now, of those whose occasion is due."""
    occasions = set(due)
    return [
        {"name": need.name, "address": need.address, "port": need.port}
        for need in needs
        if need.only_for in occasions and not answers(need)
    ]
