"""What a host is like at one moment, as far as a rollout has to know: what sideband's parts do and cost, what
they hold, and what is needed to say later that everything is as it was. Runs on hosts; changes nothing."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import socket
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .state import netfilter, record, shaping
from .state.system import System
from .units import authority

# Where sideband puts things; what else its records name is added.
ROOTS = (
    "/etc/sideband", "/opt/sideband", "/etc/systemd/system", "/etc/systemd/network", "/etc/network",
    "/etc/apt/sources.list.d", "/etc/sysctl.d", "/usr/local/bin", "/usr/local/sbin",
)  # fmt: skip
AGENT_PORTS = (8529, 8530, 8531)
# Samples and blocks that an agent gave up; what its rules leave out on purpose is not among them.
AGENT_DROPS = re.compile(
    r"^(vmagent_remotewrite_(?:packets|samples|rows)_dropped_total|vm_persistentqueue_bytes_dropped_total)"
    r"(?:\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)
UNIT_PROPERTIES = ("Id", "Type", "ActiveState", "SubState", "UnitFileState", "NRestarts")
TCP_LISTEN, UDP_UNCONNECTED = "0A", "07"


def collect(system: System, agent_ports: Sequence[int] = AGENT_PORTS) -> dict[str, Any]:
    """Everything at once, so that one visit is enough."""
    records = {owner: record.load(system, owner) for owner in record.owners(system)}
    units = parse_units(
        system.run(
            ["systemctl", "show", "--property=" + ",".join(UNIT_PROPERTIES), "--all", "--", "sideband-*"]
        ).out
    )
    for name, unit in units.items():
        if unit["active"] == "failed" or unit["sub"] == "auto-restart" or unit["restarts"]:
            journal = system.run(
                ["journalctl", "--no-pager", "-q", "-n", "20", "-o", "json", "-u", name], timeout=15
            )
            unit["said"] = last_words(journal.out)
    processes = our_processes()
    paths: set[str] = set()
    for kept in records.values():
        paths.update(kept.originals)
    return {
        "at": time.monotonic(),
        "boot": boot(),
        "generations": {owner: generation(kept) for owner, kept in records.items()},
        "installed": {
            kind: sorted({name for kept in records.values() for name in kept.installed.get(kind, ())})
            for kind in ("packages", "users", "groups")
        },
        "units": units,
        "listeners": listeners(),
        "counters": parse_counters(system.run(["nft", "-j", "list", "counters"]).out),
        "queues": parse_queues(system.run(["tc", "-j", "-s", "qdisc", "show"]).out, f"{shaping.MAJOR}:"),
        "agents": agents(agent_ports),
        "cpu_seconds": sum(cpu for cpu, _ in processes),
        "memory_bytes": sum(memory for _, memory in processes),
        "files": manifest(system, ROOTS, paths),
        "rules": rules(system, records.values()),
        "shapes": shapes(system, records.values()),
    }


def generation(kept: record.Record) -> dict[str, Any]:
    """`previous` is None where there is nothing to go back to."""
    return {
        "number": int(kept.current["number"]),
        "previous": int(kept.previous["number"]) if kept.previous else None,
        "pending": kept.pending is not None,
        "armed": kept.armed is not None,
    }


def boot() -> str:
    """Changes with every start of this host, and of a container on it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        number = file.read().strip()
    return f"{number} {_stat('/proc/1/stat')[19]}"


def _stat(path: str) -> list[str]:
    """The fields after the command's name, which may hold blanks and brackets: state is number 0."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


# units


def parse_units(text: str) -> dict[str, dict[str, Any]]:
    """`systemctl show`: blocks with an empty line between. A one-shot is not expected to stay active."""
    found = {}
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if not values.get("Id"):
            continue
        found[values["Id"]] = {
            "active": values.get("ActiveState", ""),
            "sub": values.get("SubState", ""),
            "wanted": values.get("UnitFileState", "").startswith("enabled")
            and values.get("Type") != "oneshot",
            "restarts": int(values.get("NRestarts") or 0),
        }
    return found


def last_words(journal: str, limit: int = 200) -> str:
    """The last line that the unit itself wrote, not systemd about it."""
    for line in reversed(journal.splitlines()):
        entry = _json(line, {})
        message = entry.get("MESSAGE")
        if entry.get("_TRANSPORT") == "stdout" and isinstance(message, str) and message.strip():
            return message.strip()[:limit]
    return ""


def unit_of(cgroup: str) -> str:
    """The systemd unit that a /proc/PID/cgroup names, '' when none."""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controller, _, path = rest.partition(":")
        if controller == "name=systemd" or (number == "0" and path not in ("", "/")):
            names = [part for part in path.split("/") if part.endswith((".service", ".socket", ".scope"))]
            if names:
                return names[-1]
    return ""


def _processes() -> Iterable[str]:
    return (name for name in os.listdir("/proc") if name.isdigit())


def _unit_of_process(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
            return unit_of(file.read())
    except OSError:
        return ""


def our_processes() -> list[tuple[float, int]]:
    """(CPU seconds, bytes of memory) of every process in a unit of ours. Read from the processes themselves:
    where the slice's accounting is off, they still say it."""
    found = []
    ticks = os.sysconf("SC_CLK_TCK")
    for pid in _processes():
        if not _unit_of_process(pid).startswith("sideband-"):
            continue
        try:
            fields = _stat(f"/proc/{pid}/stat")
            found.append((sum(int(field) for field in fields[11:15]) / ticks, _memory(pid, int(fields[21]))))
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return found


def _memory(pid: str, resident_pages: int) -> int:
    """Its fair share of shared pages where the kernel tells, else what is resident."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


# sockets


def parse_sockets(text: str, proto: str, state: str) -> list[tuple[str, str]]:
    """(`tcp 10.0.0.1:80`, inode) of a table in /proc/net; those on loopback are nobody else's business."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != state:
            continue
        address, _, port = fields[1].partition(":")
        if state == UDP_UNCONNECTED and not fields[2].endswith(":0000"):
            continue
        ip = _address(address)
        if not ip.is_loopback:
            found.append((f"{proto} {authority(str(ip), int(port, 16))}", fields[9]))
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints words in the machine's byte order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    ip = ipaddress.ip_address(b"".join(words))
    mapped = getattr(ip, "ipv4_mapped", None)
    return mapped if mapped is not None else ip


def listeners() -> list[str]:
    """`tcp 0.0.0.0:22 by ssh.service`, of every process of the host, sorted."""
    sockets: list[tuple[str, str]] = []
    for proto, state in (("tcp", TCP_LISTEN), ("udp", UDP_UNCONNECTED)):
        for family in ("", "6"):
            try:
                with open(f"/proc/net/{proto}{family}", encoding="ascii") as file:
                    sockets += parse_sockets(file.read(), proto, state)
            except FileNotFoundError:
                continue
    owners = _socket_owners({inode for _, inode in sockets})
    return sorted({f"{where} by {owners.get(inode, '')}" for where, inode in sockets})


def _socket_owners(inodes: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pid in _processes() if inodes else ():
        try:
            handles = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for handle in handles:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{handle}")
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in inodes:
                found[target[8:-1]] = _unit_of_process(pid)
    return found


# counts


def parse_counters(text: str) -> dict[str, int]:
    """Packets of every named counter in our own table."""
    items = _json(text, {}).get("nftables", [])
    counters = [item["counter"] for item in items if "counter" in item]
    return {
        counter["name"]: int(counter["packets"])
        for counter in counters
        if (counter.get("family"), counter.get("table")) == ("netdev", "sideband")
    }


def parse_queues(text: str, handle: str) -> dict[str, int]:
    """Packets dropped by the queues of devices that we shape."""
    queues = _json(text, [])
    ours = {queue["dev"] for queue in queues if queue.get("root") and queue.get("handle") == handle}
    found: dict[str, int] = {}
    for queue in queues:
        if queue.get("dev") in ours:
            found[queue["dev"]] = found.get(queue["dev"], 0) + int(queue.get("drops", 0))
    return found


def _json(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text) if text.strip() else otherwise
    except ValueError:
        return otherwise


def parse_agent(text: str) -> float:
    return sum(float(match.group(2)) for match in AGENT_DROPS.finditer(text))


def agents(ports: Sequence[int]) -> dict[str, float]:
    """What each agent on loopback has given up so far; an absent one is not listed."""
    found = {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for port in ports:
        try:
            with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=3) as answer:
                found[f"agent on port {port}"] = parse_agent(answer.read().decode("utf-8", "replace"))
        except (OSError, urllib.error.URLError):
            continue
    return found


# what it holds


def manifest(system: System, roots: Iterable[str], extra: Iterable[str] = ()) -> dict[str, str]:
    """Path -> type, mode, owner and content of everything below the roots, and of single paths."""
    found: dict[str, str] = {}
    for root in roots:
        place = system.at(root)
        if not os.path.isdir(place):
            continue
        prefix = len(system.root) if system.root != "/" else 0
        for directory, names, files in os.walk(place):
            names.sort()
            for name in [*names, *files]:
                path = os.path.join(directory, name)[prefix:]
                found[path] = describe(system, path)
    for path in extra:
        if path not in found and system.exists(path):
            found[path] = describe(system, path)
    return found


def describe(system: System, path: str) -> str:
    status = system.status(path)
    if status is None:
        return "gone"
    owner = f"{stat.S_IMODE(status.st_mode):04o} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"link {os.readlink(system.at(path))}"
    if stat.S_ISDIR(status.st_mode):
        return f"directory {owner}"
    if stat.S_ISREG(status.st_mode):
        return f"file {owner} {_digest(system.content(path) or b'')}"
    return f"special {owner}"


def rules(system: System, records: Iterable[record.Record]) -> dict[str, str]:
    tables = {(family, table) for kept in records for family, table in kept.tables}
    tables.add(("netdev", "sideband"))
    found = {}
    for family, table in sorted(tables):
        listing = netfilter.listing(system, family, table)
        if listing is not None:
            found[f"{family} {table}"] = _digest(listing.encode())
    return found


def shapes(system: System, records: Iterable[record.Record]) -> dict[str, str]:
    devices = {device for kept in records for device in kept.devices}
    found = {}
    for device in sorted(devices):
        handle, tree = shaping.read(system, device)
        if tree is not None:
            found[device] = _digest(repr(tree).encode())
        elif handle:
            found[device] = handle
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# the way to others


def unanswered(authorities: Sequence[str], seconds: float) -> dict[str, str]:
    """Which of these take no TCP connection from here, and why; all are tried at the same time."""
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(authorities)))) as pool:
        answers = pool.map(lambda each: _connect(each, seconds), authorities)
        return {each: problem for each, problem in zip(authorities, answers) if problem}


def _connect(text: str, seconds: float) -> str:
    host, _, port = text.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds):
            return ""
    except socket.timeout:
        return f"no answer in {seconds:g} s"
    except (OSError, ValueError) as problem:
        return str(getattr(problem, "strerror", None) or problem)
