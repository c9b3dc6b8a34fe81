"""How this site rolls out: the noun `rollout`, and what each host of a step has to fulfil, from the model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ContractError
from .gate import Demand
from .rings import read, steps
from .units import authority, duration_seconds, size_bytes

DEFAULTS: Mapping[str, Any] = {
    "soak": "60s",
    "failure_budget": 0,
    "batch": "25%",
    "drops": 0,
    "probes": True,
    "budgets": [],
}
# A series counts as arrived when it came within this many of its periods.
PERIODS = 3
# What decides what reaches a host. Data of a run (.sideband, reports) does not.
SOURCES = ("roles", "playbooks", "library", "module_utils", "filter_plugins", "services", "schemas")

# Made from the sources by running them.
MADE = {"__pycache__", "build"}


def parse(noun: Mapping[str, Any] | None) -> dict[str, Any]:
    """The noun with its defaults, in plain numbers."""
    given = {**DEFAULTS, **(noun or {})}
    return {
        "soak_seconds": duration_seconds(given["soak"]),
        "failure_budget": int(given["failure_budget"]),
        "batch": str(given["batch"]),
        "drops": int(given["drops"]),
        "probes": bool(given["probes"]),
        "budgets": [
            {
                "word": budget["group"].removeprefix("sideband_"),
                "cpu_percent": budget.get("cpu_percent"),
                "memory_bytes": size_bytes(budget["memory"]) if "memory" in budget else None,
            }
            for budget in given["budgets"]
        ],
    }


def plan(model: Mapping[str, Any], groups: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Step -> {ring, hosts}; all faults of the rings at once."""
    rings, errors = read(groups, sorted(model["hosts"]))
    racks = {name: host["rack"] for name, host in model["hosts"].items()}
    listed, more = steps(rings, racks, model["rollout"]["batch"]) if not errors else ([], [])
    if errors or more:
        raise ContractError([*errors, *more])
    return {step.name: {"ring": step.ring, "hosts": list(step.hosts)} for step in listed}


def demand(model: Mapping[str, Any], host: str, level: str) -> Demand:
    """What the gate asks of one host at a level of degradation."""
    part = model["hosts"][host]
    words = tuple(part["words"])
    budgets = [budget for budget in model["rollout"]["budgets"] if budget["word"] in words]
    cpu = [budget["cpu_percent"] for budget in budgets if budget["cpu_percent"] is not None]
    memory = [budget["memory_bytes"] for budget in budgets if budget["memory_bytes"] is not None]
    modes = {name: interface["mode"] for name, interface in part["interfaces"].items()}
    return Demand(
        words=words,
        listens=tuple(_listens(part)),
        drops=model["rollout"]["drops"],
        # Under `observe` a counter tells what would be dropped.
        counters=tuple(c["name"] for c in part["counters"] if modes.get(c["plane"]) == "enforce"),
        cpu_percent=sum(cpu) if cpu else None,
        memory_bytes=sum(memory) if memory else None,
        metrics=tuple(model["ladder"]["levels"][level]["everywhere"]) if "node" in words and level else (),
    )


def _listens(part: Mapping[str, Any]) -> list[str]:
    """What a host may listen on: its flows' ports; and, except on a training node, anything on the management
    plane, which is the site's own."""
    found = []
    for served in part["serves"].values():
        found += [f"{served['proto']} {served[key]}" for key in ("listen4", "listen6") if served[key]]
    if "node" in part["words"]:
        return found
    for interface in part["interfaces"].values():
        if interface["kind"] == "management":
            for address in (interface["ipv4"], interface["ipv6"]):
                found += [f"{proto} {authority(address, 0)[:-1]}*" for proto in ("tcp", "udp") if address]
    return found


def soak_seconds(model: Mapping[str, Any], period: int) -> int:
    """The contract's soak, and never so short that what arrived before the change still counts."""
    return max(int(model["rollout"]["soak_seconds"]), (PERIODS + 1) * period)


def release(model: Mapping[str, Any], root: str, sources: Sequence[str] = SOURCES) -> str:
    """Names what a rollout brings: the contract and the code that turns it into hosts."""
    digest = hashlib.sha256(str(model["digest"]).encode())
    for source in sources:
        for path in sorted(Path(root, source).rglob("*")):
            if path.is_file() and not MADE & set(path.parts):
                digest.update(f"\0{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
