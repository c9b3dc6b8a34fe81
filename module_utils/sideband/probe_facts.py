"""What a host says about itself while it is probed: counters, hooks, queues, sockets. Reads only.

Standard library and the system's own `nft`, `tc` and `ip`; Python 3.9.
"""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import pwd
import socket
import struct
import subprocess
from typing import Any

Record = dict[str, Any]
LISTEN, UNCONNECTED = "0A", "07"


def command(*words: str) -> str:
    """A command's output; its own words where it fails."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={**os.environ, "PATH": path, "LC_ALL": "C"},
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def versions() -> dict[str, str]:
    """What judged the packets here."""
    try:
        nft = command("nft", "--version").split()[1].lstrip("v")
    except (OSError, IndexError):
        nft = "none"
    return {"kernel": platform.release(), "nft": nft, "python": platform.python_version()}


def counters(family: str = "netdev", table: str = "sideband") -> dict[str, int]:
    """Packets by named counter; empty where the table is not there (the judge then misses every counter)."""
    try:
        listed = json.loads(command("nft", "-j", "list", "counters", "table", family, table))
    except OSError:
        return {}
    return {
        one["counter"]["name"]: int(one["counter"]["packets"])
        for one in listed["nftables"]
        if "counter" in one
    }


def seen(family: str = "netdev", table: str = "sideband") -> list[Record]:
    """Whom a plane that only observes would have refused: {set, source, protocol, port, packets}."""
    try:
        listed = json.loads(command("nft", "-j", "list", "table", family, table))
    except OSError:
        return []
    return seen_in(listed["nftables"])


def seen_in(listed: list[Record]) -> list[Record]:
    found = []
    for one in listed:
        for each in one.get("set", {}).get("elem", []):
            element = each.get("elem", {}) if isinstance(each, dict) else {}
            key = element.get("val", {}).get("concat", []) if isinstance(element.get("val"), dict) else []
            if len(key) == 3:
                found.append(
                    {
                        "set": one["set"]["name"],
                        "source": str(key[0]),
                        "protocol": str(key[1]),
                        "port": int(key[2]),
                        "packets": int(element.get("counter", {}).get("packets", 0)),
                    }
                )
    return found


def hooks(devices: list[str]) -> list[str]:
    """Chains of any table that hook one of these devices, as `family table chain device`."""
    return hooks_in(command("nft", "list", "chains"), devices) if devices else []


def hooks_in(text: str, devices: list[str]) -> list[str]:
    """From nft's text: its JSON leaves devices out before 1.0.7."""
    found, table, chain = [], "", ""
    for line in text.splitlines():
        words = line.replace('"', " ").replace(",", " ").split()
        if words[:1] == ["table"]:
            table = f"{words[1]} {words[2]}"
        elif words[:1] == ["chain"]:
            chain = words[1]
        elif words[:1] == ["type"] and "hook" in words:
            found += [f"{table} {chain} {device}" for device in devices if device in words]
    return sorted(found)


def queues(devices: list[str]) -> list[str]:
    """Queueing disciplines and filters' anchors on these devices, as `device kind handle`."""
    found = []
    for device in devices:
        for one in json.loads(command("tc", "-j", "qdisc", "show", "dev", device) or "[]"):
            found.append(f"{device} {one['kind']} {one['handle']}")
    return sorted(found)


def addresses(device: str) -> dict[int, str]:
    """The device's own address of each family, the link's own aside."""
    found: dict[int, str] = {}
    for link in json.loads(command("ip", "-j", "address", "show", "dev", device)):
        for one in link.get("addr_info", []):
            if one["scope"] != "link":
                found.setdefault(4 if one["family"] == "inet" else 6, one["local"])
    return found


def hardware(device: str) -> str:
    """The device's own hardware address."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((device, 0))
        return ":".join(f"{byte:02x}" for byte in sock.getsockname()[4])


def sockets() -> list[Record]:
    """Every TCP and UDP socket with a local address that the network can see, and whose it is."""
    found: list[Record] = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as table:
                lines = table.read().splitlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for line in lines:
            words = line.split()
            address, port = _endpoint(words[1])
            if ipaddress.ip_address(address).is_loopback:
                continue
            found.append(
                {
                    "protocol": name[:3],
                    "address": address,
                    "port": port,
                    "listens": words[3] == (LISTEN if name.startswith("tcp") else UNCONNECTED),
                    "user": _user(int(words[7])),
                    "inode": words[9],
                    "program": "",
                    "group": "",
                }
            )
    holders = _holders({one["inode"] for one in found})
    for one in found:
        one["program"], one["group"] = holders.get(one.pop("inode"), ("", ""))
    return found


def _endpoint(text: str) -> tuple[str, int]:
    """An address as /proc/net prints it: 32-bit words in the machine's own byte order."""
    digits, port = text.split(":")
    raw = bytes.fromhex(digits)
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    address = ipaddress.ip_address(socket.inet_ntop(family, packed))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _holders(inodes: set[str]) -> dict[str, tuple[str, str]]:
    """(command line, control groups) of the process behind each socket."""
    found: dict[str, tuple[str, str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                target = os.readlink(entry.path)
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    found[target[8:-1]] = (_text(pid, "cmdline"), _text(pid, "cgroup"))
        except OSError:  # it ended meanwhile, or is a kernel thread
            continue
    return found


def _text(pid: str, name: str) -> str:
    with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as stream:
        return stream.read().replace("\0", " ").strip()
