"""Frames by hand: what is built is read again, and every answer names its probe (case 26: both families)."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sideband import packets

ENDS = {4: ("10.21.0.11", "10.21.0.21"), 6: ("fd00:5b:21::11", "fd00:5b:21::21")}


def frame(family: int = 4, shape: str = "syn", mark: int = 0x5B5B0002, port: int = 8427) -> bytes:
    source, destination = ENDS[family]
    return packets.build(
        source_mac="02:00:00:00:00:01", destination_mac="02:00:00:00:00:02", source=source,
        destination=destination, shape=shape, source_port=62004, destination_port=port, mark=mark,
    )  # fmt: skip


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("shape", ["syn", "ack", "udp"])
@given(magic=st.integers(256, 65535), number=st.integers(0, packets.LIMIT), port=st.integers(1, 65535))
def test_what_is_built_is_read(family: int, shape: str, magic: int, number: int, port: int) -> None:
    seen = packets.read(frame(family, shape, packets.token(magic, number), port))
    assert seen is not None
    assert (seen.family, seen.source, seen.destination) == (family, *ENDS[family])
    assert (seen.source_port, seen.destination_port, seen.dscp) == (62004, port, 0)
    assert packets.sort(magic, seen) == ("probe", number, shape)
    assert packets.sort(magic ^ 1, seen) is None


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("shape", ["syn", "ack", "udp"])
def test_checksums_are_right(family: int, shape: str) -> None:
    """A receiver's own sum over header, pseudo-header and segment is zero."""
    raw = frame(family, shape)[14:]
    if family == 4:
        assert packets.checksum(raw[:20]) == 0
        pseudo, segment = raw[12:20] + struct.pack("!BBH", 0, raw[9], len(raw) - 20), raw[20:]
    else:
        pseudo, segment = raw[8:40] + struct.pack("!IHBB", len(raw) - 40, 0, 0, raw[6]), raw[40:]
    assert packets.checksum(pseudo + segment) == 0


@pytest.mark.parametrize(
    ("sequence", "acknowledged", "flags", "found"),
    [
        (123456, 0x5B5B0003, packets.SYN | packets.ACK, ("answer", 1, "SYN-ACK")),
        (0, 0x5B5B0003, packets.RST | packets.ACK, ("answer", 1, "RST")),
        (0x5B5B0002, 0, packets.RST, ("answer", 1, "RST")),
        (0x5B5B0002, 0x5B5B0002, packets.ACK, ("probe", 1, "ack")),
        (123456, 654321, packets.ACK, None),
        (123456, 0x5B5B0003, packets.SYN, None),
    ],
)
def test_an_answer_names_its_probe(
    sequence: int, acknowledged: int, flags: int, found: tuple[str, int, str] | None
) -> None:
    seen = packets.Seen(4, packets.TCP, "a", "b", 1, 2, 0, flags, sequence, acknowledged, b"")
    assert packets.sort(0x5B5B, seen) == found


def test_a_udp_echo_is_an_answer() -> None:
    seen = packets.read(frame(shape="udp"))
    assert seen is not None
    echo = seen._replace(payload=seen.payload[:4] + packets.ECHO)
    assert packets.sort(0x5B5B, echo) == ("answer", 1, "UDP answer")
    assert packets.sort(0x5B5B, seen._replace(payload=b"x")) is None


@given(st.binary(max_size=120))
def test_no_frame_from_the_wire_breaks_the_reader(raw: bytes) -> None:
    seen = packets.read(raw)
    if seen is not None:
        packets.sort(0x5B5B, seen)


@pytest.mark.parametrize(("family", "at"), [(4, 15), (6, 14)])
def test_dscp_is_read(family: int, at: int) -> None:
    raw = bytearray(frame(family))
    if family == 4:
        raw[at] = 8 << 2
    else:
        raw[at : at + 2] = struct.pack("!H", 6 << 12 | (8 << 2) << 4)
    seen = packets.read(bytes(raw))
    assert seen is not None
    assert seen.dscp == 8


def test_numbers_that_would_collide_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        packets.token(0x5B5B, packets.LIMIT + 1)
