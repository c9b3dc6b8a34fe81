"""Filters of role rack: what a receiver lets through."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

from sideband import whose

# The sender's name as a label, and the mark of what the receiver itself has made: both from its environment.
SENDER = "%{SIDEBAND_IDENTITY}"
MADE_HERE = f"curves_{SENDER}"


def _served(model: dict[str, Any], host: str) -> dict[str, list[str]]:
    """{rack: its nodes} of the racks that this receiver serves."""
    return {name: list(rack["nodes"]) for name, rack in model["racks"].items() if host in rack["receivers"]}


def made_here(model: dict[str, Any], host: str) -> str:
    """Rules for what the receiver's own programs hand in, as YAML."""
    return _text(whose.made_here(_served(model, host), MADE_HERE, SENDER))


def admitted(model: dict[str, Any], host: str) -> str:
    """Rules for series of GPUs and jobs, as YAML."""
    metrics, labels = model["catalogue"]["metrics"], model["labels"]
    return _text(whose.admitted(metrics, labels, model["tenants"], _served(model, host)))


def relabelling(rules: Iterable[dict[str, Any]]) -> str:
    """vmagent's relabelling rules as YAML, one a line."""
    return _text(rules)


def _text(rules: Iterable[dict[str, Any]]) -> str:
    # JSON is YAML, and says texts with %{...} and backslashes the same way everywhere.
    return "".join(f"- {json.dumps(rule, ensure_ascii=False)}\n" for rule in rules)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_rack_admitted": admitted,
            "sideband_rack_made_here": made_here,
            "sideband_relabelling": relabelling,
        }
