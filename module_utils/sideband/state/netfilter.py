"""The own nftables table: loaded in one transaction, compared with what the kernel lists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .change import Change
from .paths import digest
from .system import StateError, System

FAMILIES = ("ip", "ip6", "inet", "arp", "bridge", "netdev")
VOLATILE = ("handle", "packets", "bytes", "index")


@dataclass(frozen=True)
class NftTable:
    family: str
    table: str
    path: str
    ruleset: str
    kind = "nftables"

    @property
    def name(self) -> str:
        return f"{self.family} {self.table}"


def devices(system: System) -> list[str]:
    """The links that there are; none where a dry run finds a bare host without `ip`. Any other failure
    stops: no link would mean no rule on any."""
    result = system.run(["ip", "-j", "link", "show"])
    if result.rc == 127:
        return []
    if result.rc != 0:
        said = (result.err or result.out).strip()
        raise StateError(
            f"`ip -j link show` ended with {result.rc}: {said}; no rule was touched; run it by hand"
        )
    return [str(link["ifname"]) for link in json.loads(result.out or "[]") if "ifname" in link]


_CHAIN = re.compile(r"^[ \t]*chain\s+\S+\s*\{", re.MULTILINE)
_DEVICE = re.compile(r"hook\s+(?:ingress|egress)\s+device\s+\"?([^\s\";]+)\"?")


def present_part(ruleset: str, present: Sequence[str]) -> str:
    """Leave out base chains on devices that do not exist: one absent link must not bare the others.

    They are loaded when the link appears (the watcher calls the recovery program).
    """
    kept: list[str] = []
    position = 0
    for match in _CHAIN.finditer(ruleset):
        if match.start() < position:
            continue
        end = _closing(ruleset, match.end())
        device = _DEVICE.search(ruleset, match.start(), end)
        if device and device.group(1) not in present:
            kept.append(ruleset[position : match.start()])
            position = end
    kept.append(ruleset[position:])
    return "".join(kept)


def _closing(text: str, start: int) -> int:
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise StateError("the ruleset has a chain without its closing brace")


_TOKEN = re.compile(r'"[^"]*"|#[^\n]*|\\\n|[{};\n]|[^"#{};\n\\]+|.')
_VERBS = ("add", "create", "insert", "replace", "rename", "delete", "destroy", "flush")
_OBJECTS = ("chain", "rule", "set", "map", "element", "counter", "quota", "limit", "flowtable", "secmark")
_DEFINITIONS = ("define", "redefine", "undefine")


def statements(ruleset: str) -> list[str]:
    """What nft reads at the top level, each without its comments."""
    found, depth, begins = [""], 0, True
    for token in _TOKEN.findall(ruleset):
        if token[0] == "#":
            continue
        token = " " if token == "\\\n" else token
        if token == '"':
            raise StateError("has a quote that is not closed")
        if begins and token.split()[:1] == ["include"]:
            raise StateError("must hold its rules itself; what `include` reads, nobody checks")
        begins = token in "{};\n" or (begins and not token.strip())
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth < 0:
            raise StateError("has a closing brace too many")
        if depth == 0 and token in ";\n":
            found.append("")
        else:
            found[-1] += token
    if depth:
        raise StateError("has a brace that is not closed")
    return [statement.strip() for statement in found if statement.strip()]


def stranger(want: NftTable) -> str:
    """What a ruleset does to another table than its own, in words; empty: nothing. nft would do it."""
    stands = False
    try:
        commands = statements(want.ruleset)
    except StateError as problem:
        return str(problem)
    for command in commands:
        words = command.split("{")[0].split() or [""]
        if words[0] in _DEFINITIONS:
            continue
        verb = words.pop(0) if words[0] in _VERBS else "add"
        what = words.pop(0) if words else ""
        if words and words[0] not in FAMILIES:
            words.insert(0, "ip")
        if what not in ("table", *_OBJECTS) or words[:2] != [want.family, want.table]:
            line = " ".join(command.split())
            return (
                f"may name its own table {want.name} only (got {line[:60]!r}); "
                "what another table needs, its own owner brings"
            )
        if what == "table":
            stands = verb not in ("delete", "destroy")
    return "" if stands else f"leaves no table {want.name}; it needs `table {want.name} {{ … }}`"


def self_contained(want: NftTable) -> str:
    """add, delete, add: works on an empty kernel and leaves nothing of an earlier table (case 25)."""
    head = f"table {want.family} {want.table}"
    if ["delete", *head.split()] in [statement.split() for statement in statements(want.ruleset)]:
        return want.ruleset
    return f"add {head}\ndelete {head}\n{want.ruleset}"


def listing(system: System, family: str, table: str) -> str | None:
    """The table as the kernel has it, without counts and handles; None when there is none."""
    result = system.run(["nft", "-j", "list", "table", family, table])
    if result.rc != 0:
        return None
    return json.dumps(_stable(json.loads(result.out)["nftables"][1:]), sort_keys=True)


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        # What packets put into a set is no rule of anybody's.
        filled = "timeout" in value.get("flags", ()) or "dynamic" in value.get("flags", ())
        skipped = (*VOLATILE, "elem") if filled else VOLATILE
        return {key: _stable(inner) for key, inner in value.items() if key not in skipped}
    if isinstance(value, list):
        return [_stable(inner) for inner in value]
    return value


def plan(system: System, want: NftTable, loaded: dict[str, str]) -> Change | None:
    """`loaded` is what the record holds of the last load: the text's hash and the kernel's listing after it.

    The kernel's own listing is the measure, so a rule deleted, added or reordered by hand is drift, and no
    spelling of nft's has to be guessed.
    """
    text = present_part(self_contained(want), devices(system))
    now = listing(system, want.family, want.table)
    if now is None:
        return Change("nftables", want.name, "load", "the kernel has no such table")
    if loaded.get("text") != digest(text.encode()):
        return Change("nftables", want.name, "load", "the rules changed")
    if loaded.get("listing") != digest(now.encode()):
        return Change("nftables", want.name, "load", "the kernel's rules differ from those loaded")
    return None


def check(system: System, want: NftTable) -> str:
    """Ask the kernel whether it would take the rules. Empty: yes. `absent: nft`: cannot be asked yet."""
    text = present_part(self_contained(want), devices(system))
    result = system.run(["nft", "-c", "-f", "-"], stdin=text)
    if result.rc == 127:
        return "absent: nft"
    return "" if result.rc == 0 else f"`nft -c` ended with {result.rc}: {result.err.strip()[:2000]}"


def load(system: System, want: NftTable) -> dict[str, str]:
    text = present_part(self_contained(want), devices(system))
    system.must(
        ["nft", "-f", "-"], f"the rules are in {want.path}; the kernel keeps those that it had", stdin=text
    )
    now = listing(system, want.family, want.table)
    if now is None:
        raise StateError(
            f"table {want.name} was loaded, yet the kernel does not list it; another tool removes it: "
            "look for `nft flush ruleset` in /etc/nftables.conf or a firewall service"
        )
    return {"text": digest(text.encode()), "listing": digest(now.encode())}


def remove(system: System, family: str, table: str) -> None:
    head = f"table {family} {table}"
    if listing(system, family, table) is not None:
        system.must(["nft", "-f", "-"], "the table is sideband's own", stdin=f"delete {head}\n")
