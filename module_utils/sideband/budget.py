"""The noun `budget`: how big each class of node is, and the limits that the capacity plan is held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .price import SMALL_NODE, NodeSize
from .units import rate_bits, size_bytes

NODES = "sideband_node"
SIZES = ("cpus", "disks", "interfaces", "filesystems", "gpus", "jobs")


def parse(noun: Mapping[str, Any] | None) -> dict[str, Any]:
    given = noun or {}
    return {
        # Without limits nothing is refused: what a plan guesses about a site is no reason to stop it.
        "held": bool(given),
        "nodes": [
            {
                "name": spec["name"],
                "group": spec["group"],
                "size": {key: int(spec["size"].get(key, 0)) for key in SIZES},
                "cpu_percent": spec.get("cpu_percent"),
                "memory_bytes": size_bytes(spec["memory"]) if "memory" in spec else None,
                "bytes_per_second": rate_bits(spec["rate"]) // 8 if "rate" in spec else None,
            }
            for spec in given.get("nodes", ())
        ],
        "disk": {tier: size_bytes(text) for tier, text in given.get("disk", {}).items()},
        "memory": {word: size_bytes(text) for word, text in given.get("memory", {}).items()},
    }


def assumed() -> dict[str, Any]:
    """The class of nodes of which the contract says nothing."""
    size = {key: int(getattr(SMALL_NODE, key)) for key in SIZES}
    return {"name": "assumed", "group": NODES, "size": size, "cpu_percent": None, "memory_bytes": None,
            "bytes_per_second": None}  # fmt: skip


def node_size(spec: Mapping[str, Any]) -> NodeSize:
    return NodeSize(**{key: spec["size"][key] for key in SIZES})


def classes(
    listed: Sequence[Mapping[str, Any]], nodes: Iterable[str], groups: Mapping[str, Iterable[str]]
) -> dict[str, str]:
    """Node -> the first class that has it in its group; nodes of none are left out."""
    found = {}
    for node in nodes:
        for spec in listed:
            if spec["group"] == NODES or node in groups.get(spec["group"], ()):
                found[node] = str(spec["name"])
                break
    return found
