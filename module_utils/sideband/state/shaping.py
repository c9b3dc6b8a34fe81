"""HTB trees: compared by meaning with what the kernel shows, rebuilt whole when they differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .change import Change
from .system import StateError, System

# The mark by which we know our tree: a root qdisc with another handle is someone else's.
MAJOR = "5b"
ROOT_CLASS = "1"
# What a shape of the model must have at its root, in each class, and both as numbers.
LEAF = ("rate_bits_per_second", "ceil_bits_per_second", "quantum_bytes", "burst_bytes", "cburst_bytes")
ROOT = ("rate_bits_per_second", "quantum_bytes", "burst_bytes", "cburst_bytes")
KEYS = ("device", "default_class", "classes", *ROOT)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
CLOCK_SECONDS = 2e-6
BYTES = {"b": 1, "Kb": 1024, "Mb": 1024**2, "Gb": 1024**3}


@dataclass(frozen=True)
class Class:
    parent: str
    rate: int
    ceil: int
    quantum: int
    burst: int
    cburst: int


@dataclass(frozen=True)
class Tree:
    """Class ids are tc's own hexadecimal digits, as text; filters map (protocol, tos byte) to a class."""

    device: str
    default: str
    classes: tuple[tuple[str, Class], ...]
    filters: tuple[tuple[str, int, str], ...]
    kind = "shape"


def from_model(shape: dict[str, Any]) -> Tree:
    """A shape of the compiled model: a root class with the plane's cap, its leaves, one for the rest."""
    device, total = str(shape["device"]), int(shape["rate_bits_per_second"])
    whole = {
        "quantum": int(shape["quantum_bytes"]),
        "burst": int(shape["burst_bytes"]),
        "cburst": int(shape["cburst_bytes"]),
    }
    default = str(shape["default_class"])
    classes = {ROOT_CLASS: Class("root", total, total, **whole)}
    filters: list[tuple[str, int, str]] = []
    for leaf in shape["classes"]:
        name = str(leaf["id"])
        if name == ROOT_CLASS:
            raise StateError("class id 1 is the root's; number the leaves from 10")
        classes[name] = _leaf(leaf)
        if leaf.get("tos") is not None and name != default:
            filters += [("ip", int(leaf["tos"]), name), ("ipv6", int(leaf["tos"]), name)]
    if default not in classes:
        # The rest: what carries none of our marks, such as neighbour discovery.
        classes[default] = _leaf(shape["default"])
    return Tree(device, default, tuple(sorted(classes.items())), tuple(sorted(set(filters))))


def _leaf(rates: dict[str, Any]) -> Class:
    return Class(
        ROOT_CLASS,
        int(rates["rate_bits_per_second"]),
        int(rates["ceil_bits_per_second"]),
        int(rates["quantum_bytes"]),
        int(rates["burst_bytes"]),
        int(rates["cburst_bytes"]),
    )


def commands(tree: Tree, replace: bool) -> str:
    """A `tc -batch` text. Quantum, burst and cburst are always given: derived ones are wrong at high rates
    and make the kernel warn (case 34)."""
    device = f"dev {tree.device}"
    lines = [f"qdisc del {device} root"] if replace else []
    lines.append(f"qdisc add {device} root handle {MAJOR}: htb default {tree.default}")
    for name, leaf in sorted(tree.classes, key=lambda entry: entry[0] != ROOT_CLASS):
        parent = f"{MAJOR}:" if leaf.parent == "root" else f"{MAJOR}:{leaf.parent}"
        lines.append(
            f"class add {device} parent {parent} classid {MAJOR}:{name} htb rate {leaf.rate}bit "
            f"ceil {leaf.ceil}bit burst {leaf.burst}b cburst {leaf.cburst}b quantum {leaf.quantum}"
        )
    for number, (protocol, tos, name) in enumerate(tree.filters):
        field = "ip tos" if protocol == "ip" else "ip6 priority"
        lines.append(
            f"filter add {device} parent {MAJOR}: protocol {protocol} prio {10 + number} "
            f"u32 match {field} 0x{tos:02x} 0xfc flowid {MAJOR}:{name}"
        )
    return "\n".join(lines) + "\n"


def read(system: System, device: str) -> tuple[str, Tree | None]:
    """(handle of the root qdisc, the tree if it is ours). `0:` is the kernel's default, "" no device."""
    qdiscs = system.run(["tc", "qdisc", "show", "dev", device])
    if qdiscs.rc != 0:
        return "", None
    root = re.search(r"^qdisc (\S+) (\S+) root(.*)$", qdiscs.out, re.MULTILINE)
    if root is None:
        return "0:", None
    if root.group(1) != "htb" or root.group(2) != f"{MAJOR}:":
        return root.group(2), None
    default = re.search(r"default 0x([0-9a-f]+)", root.group(3))
    classes = _classes(system.run(["tc", "-d", "class", "show", "dev", device]).out)
    filters = _filters(system.run(["tc", "filter", "show", "dev", device, "parent", f"{MAJOR}:"]).out)
    return f"{MAJOR}:", Tree(
        device, default.group(1) if default else "", tuple(sorted(classes.items())), filters
    )


def _classes(text: str) -> dict[str, Class]:
    found: dict[str, Class] = {}
    for line in text.splitlines():
        head = re.match(rf"class htb {MAJOR}:([0-9a-f]+) (root|parent {MAJOR}:([0-9a-f]+))", line)
        if head is None:
            continue
        found[head.group(1)] = Class(
            head.group(3) or "root",
            _rate(line, "rate"),
            _rate(line, "ceil"),
            int(_after(line, "quantum") or 0),
            _size(line, "burst"),
            _size(line, "cburst"),
        )
    return found


def _after(line: str, word: str) -> str:
    match = re.search(rf"(?:^|\s){word} (\S+)", line)
    return match.group(1) if match else ""


def _rate(line: str, word: str) -> int:
    match = re.fullmatch(r"([0-9.]+)([KMGT]?)bit", _after(line, word))
    return int(float(match.group(1)) * UNITS[match.group(2)]) if match else 0


def _size(line: str, word: str) -> int:
    match = re.fullmatch(r"([0-9.]+)(b|Kb|Mb|Gb)", _after(line, word).split("/")[0])
    return int(float(match.group(1)) * BYTES[match.group(2)]) if match else 0


def _filters(text: str) -> tuple[tuple[str, int, str], ...]:
    """u32 prints the matched word: tos is its second byte in IPv4 and spans nibbles 1 and 2 in IPv6."""
    found: list[tuple[str, int, str]] = []
    pending: tuple[str, str] | None = None
    for line in text.splitlines():
        head = re.search(rf"protocol (ip|ipv6) .*flowid {MAJOR}:([0-9a-f]+)", line)
        match = re.search(r"match ([0-9a-f]{8})/([0-9a-f]{8}) at 0", line)
        if head:
            pending = (head.group(1), head.group(2))
        elif match and pending:
            shift = 16 if pending[0] == "ip" else 20
            value, mask = int(match.group(1), 16) >> shift, int(match.group(2), 16) >> shift
            found.append((pending[0], value if mask == 0xFC else -1, pending[1]))
            pending = None
        elif "flowid" in line or line.lstrip().startswith("match"):
            # A filter of another form is not ours: the tree differs.
            found.append(("other", -1, line.strip()))
    return tuple(sorted(found))


def same(want: Tree, have: Tree) -> bool:
    """tc prints rates rounded and keeps bursts as times, in steps of its clock."""

    def near(left: int, right: int, part: float) -> bool:
        return abs(left - right) <= max(left * part, 1)

    def burst(left: int, right: int, rate: int) -> bool:
        return abs(left - right) <= left * 0.02 + rate * CLOCK_SECONDS / 8 + 1

    mine, theirs = dict(want.classes), dict(have.classes)
    return (
        want.default == have.default
        and want.filters == have.filters
        and mine.keys() == theirs.keys()
        and all(
            mine[name].parent == theirs[name].parent
            and near(mine[name].rate, theirs[name].rate, 0.002)
            and near(mine[name].ceil, theirs[name].ceil, 0.002)
            and (name == ROOT_CLASS or mine[name].quantum == theirs[name].quantum)  # tc shows a leaf's only
            and burst(mine[name].burst, theirs[name].burst, mine[name].rate)
            and burst(mine[name].cburst, theirs[name].cburst, mine[name].ceil)
            for name in mine
        )
    )


def describe(tree: Tree | None) -> str:
    if tree is None:
        return ""
    lines = [f"default {tree.default}"]
    lines += [
        f"class {name} parent {leaf.parent} rate {leaf.rate} ceil {leaf.ceil} quantum {leaf.quantum} "
        f"burst {leaf.burst} cburst {leaf.cburst}"
        for name, leaf in tree.classes
    ]
    lines += [f"filter {protocol} tos 0x{tos & 0xFF:02x} -> {name}" for protocol, tos, name in tree.filters]
    return "\n".join(lines) + "\n"


def plan(system: System, want: Tree) -> Change | None:
    handle, have = read(system, want.device)
    if handle == "":
        return None  # no such device yet; the watcher shapes it when it appears
    if have is None and handle not in ("0:", f"{MAJOR}:"):
        raise StateError(
            f"device {want.device}: its root qdisc {handle} is not sideband's; remove it by hand or "
            "take `egress_rate` from its plane"
        )
    if have is not None and same(want, have):
        return None
    reason = "no tree" if have is None else "the kernel's tree differs"
    return Change("shape", want.device, "load", reason, describe(have), describe(want))


def load(system: System, want: Tree) -> None:
    handle, _ = read(system, want.device)
    if handle == "":
        return
    hint = f"look at `tc qdisc show dev {want.device}`; is the kernel's sch_htb there?"
    result = system.must(["tc", "-batch", "-"], hint, stdin=commands(want, handle == f"{MAJOR}:"))
    if result.err.strip():
        raise StateError(
            f"device {want.device}: tc warns: {result.err.strip()}; shaping values are out of range"
        )


def remove(system: System, device: str) -> None:
    if read(system, device)[0] == f"{MAJOR}:":
        system.must(["tc", "qdisc", "del", "dev", device, "root"], "the tree is sideband's own")
