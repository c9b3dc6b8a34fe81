"""Quantities of the contract: every one carries its unit, because a bare number means something else to
every daemon (case 59)."""

from __future__ import annotations

import re

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATES = {"kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

# The names that nft knows, and the six bits that they stand for (RFC 2474, 2597, 3246).
DSCP = {
    "cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
    "af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
    "af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38, "ef": 46,
}  # fmt: skip


def _scaled(text: str, units: dict[str, int], what: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,11})([A-Za-z]+)", text)
    if not found or found.group(2) not in units:
        raise ValueError(f"{text!r} is no {what}: a whole number and one of {', '.join(units)}")
    return int(found.group(1)) * units[found.group(2)]


def duration_seconds(text: str) -> int:
    """`5s`, `1m`, `7d` in seconds."""
    return _scaled(text, SECONDS, "duration")


def rate_bits(text: str) -> int:
    """`20Mbit` in bits per second (decimal, as tc counts)."""
    return _scaled(text, RATES, "rate")


def size_bytes(text: str) -> int:
    """`2GiB` in bytes."""
    return _scaled(text, SIZES, "size")


def authority(address: str, port: int) -> str:
    """Host and port as every daemon reads them: an IPv6 address in brackets (case 4)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
