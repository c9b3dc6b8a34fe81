"""Two network namespaces back to back, and frames built by hand: what a host's rules do with a packet is read
from the kernel, without addresses, routes or listeners in between."""

from __future__ import annotations

import ctypes
import ipaddress
import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from sideband.semantics import Packet

CLONE_NEWNET = 0x40000000
PROTOCOLS = {"tcp": 6, "udp": 17}


def run(*command: str, text: str | None = None, namespace: str = "") -> subprocess.CompletedProcess[str]:
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.run([*inside, *command], input=text, capture_output=True, text=True, check=False)


def must(*command: str, text: str | None = None, namespace: str = "") -> str:
    done = run(*command, text=text, namespace=namespace)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def socket_in(namespace: str, *args: int) -> socket.socket:
    """A socket that lives in another namespace; the calling thread stays where it is."""
    made: list[socket.socket] = []

    def enter() -> None:
        with open(f"/run/netns/{namespace}", encoding="ascii") as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {namespace}")
        made.append(socket.socket(*args))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return made[0]


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def frame(packet: Packet, mac: bytes, number: int) -> bytes:
    """An Ethernet frame; `number` (16 bits) is the IPv4 identification or the IPv6 flow label."""
    flags = (2 if packet.syn else 0) | (16 if packet.ack else 0) or (1 if packet.proto == "tcp" else 0)
    if packet.proto == "tcp":
        body = struct.pack("!HHIIBBHHH", packet.sport, packet.dport, 1, 1, 5 << 4, flags, 1024, 0, 0)
    elif packet.proto == "udp":
        body = struct.pack("!HHHH", packet.sport, packet.dport, 8, 0)
    else:
        body = struct.pack("!BBHI", packet.icmp_type, 0, 0, 0)
    saddr, daddr = (ipaddress.ip_address(a).packed for a in (packet.saddr, packet.daddr))
    protocol = PROTOCOLS.get(packet.proto, 1 if packet.family == 4 else 58)
    if packet.family == 4:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), number, 0, packet.hop_limit, protocol, 0)
        head += saddr + daddr
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        kind = 0x0800
    else:
        head = struct.pack("!IHBB", 6 << 28 | number, len(body), protocol, packet.hop_limit) + saddr + daddr
        kind = 0x86DD
    return mac + b"\x02\0\0\0\0\x01" + struct.pack("!H", kind) + head + body


class Bench:
    """A namespace with one interface for each device, and the far ends of all of them in another."""

    def __init__(self, name: str, devices: Sequence[str]) -> None:
        self.host, self.far, self.devices = f"{name}-host", f"{name}-far", list(devices)
        self.close()
        self._socks: dict[str, socket.socket] = {}
        self._macs: dict[str, bytes] = {}
        for namespace in (self.host, self.far):
            must("ip", "netns", "add", namespace)
            # Nothing but our frames on these wires: the counters are compared to the packet.
            for where in ("all", "default"):
                must("sysctl", "-qw", f"net.ipv6.conf.{where}.disable_ipv6=1", namespace=namespace)
        for device in self.devices:
            ends = ["netns", self.host, "type", "veth", "peer", "name", device, "netns", self.far]
            must("ip", "link", "add", device, *ends)
            for namespace in (self.host, self.far):
                must("ip", "link", "set", device, "up", namespace=namespace)
            link = json.loads(must("ip", "-j", "link", "show", device, namespace=self.host))[0]
            self._macs[device] = bytes.fromhex(link["address"].replace(":", ""))
            sock = socket_in(self.far, socket.AF_PACKET, socket.SOCK_RAW)
            sock.bind((device, 0))
            self._socks[device] = sock

    def close(self) -> None:
        for sock in getattr(self, "_socks", {}).values():
            sock.close()
        for namespace in (self.host, self.far):
            run("ip", "netns", "del", namespace)

    def nft(self, *args: str, text: str | None = None) -> str:
        return must("nft", *args, text=text, namespace=self.host)

    def load(self, ruleset: str) -> None:
        """Only these rules, and behind them a table of the test's own: what gets there has entered."""
        lines = ["table netdev watch {", "  counter arrived { }"]
        for device in self.devices:
            hook = f'type filter hook ingress device "{device}" priority'
            lines += [
                f"  set four_{device} {{ typeof ip id; flags dynamic; size 65535; }}",
                f"  set six_{device} {{ typeof ip6 flowlabel; flags dynamic; size 65535; }}",
                f"  chain arrive_{device} {{ {hook} -100; counter name arrived; }}",
                f"  chain enter_{device} {{ {hook} 100; add @four_{device} {{ ip id }}; }}",
                f"  chain enter6_{device} {{ {hook} 101; add @six_{device} {{ ip6 flowlabel }}; }}",
            ]
        self.nft("-f", "-", text="\n".join(["flush ruleset", ruleset, *lines, "}", ""]))

    def send(self, packets: Iterable[tuple[str, Packet]]) -> tuple[list[bool], dict[str, int]]:
        """(whether each packet entered, how much each named counter of the rules grew)."""
        sent = list(packets)
        before = self._counters()
        for number, (device, packet) in enumerate(sent):
            self._socks[device].send(frame(packet, self._macs[device], number))
        deadline = time.monotonic() + 5
        while self._counters()["arrived"] - before["arrived"] < len(sent):
            assert time.monotonic() < deadline, "frames were lost on the way"
        after = self._counters()
        entered = self._entered()
        result = [
            number in entered.get(f"{'four' if packet.family == 4 else 'six'}_{device}", set())
            for number, (device, packet) in enumerate(sent)
        ]
        return result, {name: after[name] - before.get(name, 0) for name in after if name != "arrived"}

    def _objects(self, *what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.nft("-j", "list", *what))["nftables"]
        return found

    def _counters(self) -> dict[str, int]:
        return {
            entry["counter"]["name"]: entry["counter"]["packets"]
            for entry in self._objects("counters")
            if "counter" in entry
        }

    def _entered(self) -> dict[str, set[int]]:
        return {
            entry["set"]["name"]: {int(element) for element in entry["set"].get("elem", [])}
            for entry in self._objects("table", "netdev", "watch")
            if "set" in entry
        }


def pid_name(stem: str) -> str:
    """Names that two runs at a time do not share."""
    return f"{stem}{os.getpid() % 100000}"
