"""Frames built and read by hand: what a kernel would never send (spoofed, out of place) and exactly once.

A probe frame carries one 32-bit *token* (16 bits of the run's magic, 16 bits of the probe's number, always
even) in the TCP sequence number AND the acknowledgement number, or at the start of the UDP payload. So every
answer names the probe that it answers: a SYN-ACK or RST-ACK acknowledges token + 1, the RST to a bare ACK
takes the token as its sequence number, a UDP echo returns it with another mark. Standard library alone.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import NamedTuple

IPV4, IPV6 = 0x0800, 0x86DD
TCP, UDP = 6, 17
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
ASK, ECHO = b"?", b"!"

# Source ports of the probes' real connections: above the kernel's own ephemeral range, so that an observer
# tells them from the site's traffic and reads the DSCP that arrived.
PORTS = (61000, 61999)
LIMIT = 0x7FFF

_SO_ATTACH_FILTER = 26


class Seen(NamedTuple):
    """One frame as read from the wire."""

    family: int
    protocol: int
    source: str
    destination: str
    source_port: int
    destination_port: int
    dscp: int
    flags: int
    sequence: int
    acknowledged: int
    payload: bytes


def token(magic: int, number: int) -> int:
    """The probe's number as it travels; even, so that `token + 1` (an acknowledged SYN) is no other's."""
    if not 0 <= number <= LIMIT:
        raise ValueError(f"probe number {number} does not fit; at most {LIMIT + 1} probes in one run")
    return (magic << 16) | (number << 1)


def number(magic: int, value: int) -> int | None:
    """The probe number inside a 32-bit value, or None where the value is not of this run."""
    return (value & 0xFFFF) >> 1 if value >> 16 == magic else None


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def mac(text: str) -> bytes:
    return bytes(int(part, 16) for part in text.split(":"))


def build(
    *,
    source_mac: str,
    destination_mac: str,
    source: str,
    destination: str,
    shape: str,
    source_port: int,
    destination_port: int,
    mark: int,
) -> bytes:
    """A whole Ethernet frame; `shape` is syn, ack or udp, the family follows from the addresses."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    addresses = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
    protocol = UDP if shape == "udp" else TCP
    if shape == "udp":
        payload = struct.pack("!I", mark) + ASK
        segment = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0) + payload
        at = 6
    else:
        flags = {"syn": SYN, "ack": ACK}[shape]
        segment = struct.pack(
            "!HHIIBBHHH", source_port, destination_port, mark, mark, 5 << 4, flags, 1024, 0, 0
        )
        at = 16
    tail = struct.pack(
        "!HBBH" if family == socket.AF_INET else "!IHBB",
        *((0, 0, protocol, len(segment)) if family == socket.AF_INET else (len(segment), 0, 0, protocol)),
    )
    if family == socket.AF_INET:
        pseudo = addresses + struct.pack("!BBH", 0, protocol, len(segment))
    else:
        pseudo = addresses + tail
    # A UDP checksum of 0 means "none" and IPv6 forbids it.
    value = checksum(pseudo + segment) or 0xFFFF
    segment = segment[:at] + struct.pack("!H", value) + segment[at + 2 :]
    if family == socket.AF_INET:
        head = (
            struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), mark & 0xFFFF, 0x4000, 64, protocol, 0)
            + addresses
        )
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    else:
        head = struct.pack("!IHBB", 6 << 28, len(segment), protocol, 64) + addresses
    kind = IPV4 if family == socket.AF_INET else IPV6
    return mac(destination_mac) + mac(source_mac) + struct.pack("!H", kind) + head + segment


def read(frame: bytes) -> Seen | None:
    """A TCP or UDP frame without extension headers; None for everything else (all that probes need)."""
    if len(frame) < 34:
        return None
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == IPV4:
        family, protocol = 4, frame[23]
        start = 14 + (frame[14] & 15) * 4
        dscp = frame[15] >> 2
        source = socket.inet_ntop(socket.AF_INET, frame[26:30])
        destination = socket.inet_ntop(socket.AF_INET, frame[30:34])
    elif kind == IPV6 and len(frame) >= 54:
        family, protocol, start = 6, frame[20], 54
        dscp = (struct.unpack_from("!H", frame, 14)[0] >> 4 & 0xFF) >> 2
        source = socket.inet_ntop(socket.AF_INET6, frame[22:38])
        destination = socket.inet_ntop(socket.AF_INET6, frame[38:54])
    else:
        return None
    if protocol == TCP and len(frame) >= start + 20:
        ports = struct.unpack_from("!HHII", frame, start)
        return Seen(
            family,
            TCP,
            source,
            destination,
            ports[0],
            ports[1],
            dscp,
            frame[start + 13] & 0x3F,
            ports[2],
            ports[3],
            b"",
        )
    if protocol == UDP and len(frame) >= start + 8:
        ports = struct.unpack_from("!HH", frame, start)
        return Seen(
            family, UDP, source, destination, ports[0], ports[1], dscp, 0, 0, 0, frame[start + 8 : start + 24]
        )
    return None


def sort(magic: int, seen: Seen) -> tuple[str, int, str] | None:
    """("probe"|"answer", probe number, what it was) for a frame of this run, else None."""
    if seen.protocol == UDP:
        if len(seen.payload) < 5:
            return None
        found = number(magic, struct.unpack_from("!I", seen.payload)[0])
        if found is None:
            return None
        return ("answer", found, "UDP answer") if seen.payload[4:5] == ECHO else ("probe", found, "udp")
    first, second = number(magic, seen.sequence), number(magic, seen.acknowledged)
    if first is not None and seen.sequence == seen.acknowledged:
        return ("probe", first, "syn" if seen.flags & SYN else "ack")
    if second is not None and seen.flags & ACK:
        return ("answer", second, "RST" if seen.flags & RST else "SYN-ACK")
    if first is not None and seen.flags & RST:
        return ("answer", first, "RST")
    return None


def narrow(sock: socket.socket, magic: int) -> None:
    """Let the kernel hand over only this run's frames and the probes' connections (classic BPF).

    A load past the end of a frame makes the filter refuse it, so shorter loads come first.
    """
    load_half, equal, at_least, above, give = 0x28, 0x15, 0x35, 0x25, 0x06

    def ports(offset: int) -> list[tuple[int, str, str, int]]:
        return [(load_half, "", "", offset), (at_least, "", "+1", PORTS[0]), (above, "", "take", PORTS[1])]

    def family(base: int) -> list[tuple[int, str, str, int]]:
        return [
            *ports(base),
            *ports(base + 2),
            (load_half, "", "", base + 4),
            (equal, "take", "", magic),
            (load_half, "", "", base + 8),
            (equal, "take", "drop", magic),
        ]

    four, six = family(34), family(54)
    code = [
        (load_half, "", "", 12),
        (equal, "four", "", IPV4),
        (equal, "six", "drop", IPV6),
        *four,
        *six,
        (give, "", "", 0),
        (give, "", "", 0x40000),
    ]
    where = {"four": 3, "six": 3 + len(four), "drop": len(code) - 2, "take": len(code) - 1}

    def jump(here: int, target: str) -> int:
        if target == "":
            return 0
        return 1 if target == "+1" else where[target] - here - 1

    packed = b"".join(
        struct.pack("HBBI", op, jump(here, true), jump(here, false), value)
        for here, (op, true, false, value) in enumerate(code)
    )
    memory = ctypes.create_string_buffer(packed)
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(code), ctypes.addressof(memory))
    )
