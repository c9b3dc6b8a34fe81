"""How many pairs must verify test? Counted from the lab's wiring alone.

Deliberately blind: this file reads lab/topology.yml and nothing else of the project, no contract and no
compiler, so that a pair which the compiler forgets is missed here and not forgotten twice.

    python tests/pairs.py [lab/topology.yml] [only,these,hosts]   ->   one name a line
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

FAMILIES = {"ipv4": "IPv4", "ipv6": "IPv6"}


def pairs(topology: str, only: tuple[str, ...] = ()) -> list[str]:
    """Every (source host, destination host, destination's plane, family), as verify names it.

    Hosts are the containers: the switch is no end of any flow. A desk (`extra: desk`) is a source, never a
    destination: it is nobody's server, and no rule of ours runs on it.
    """
    hosts = {
        name: host
        for name, host in yaml.safe_load(Path(topology).read_text(encoding="utf-8"))["hosts"].items()
        if host["system"] == "nspawn"
    }
    return [
        f"{source} -> {name}·{link['plane']} {label}"
        for name, host in hosts.items()
        if host.get("extra") != "desk"
        for link in host["links"]
        for key, label in FAMILIES.items()
        if link.get(key)
        for source in hosts
        if source != name
        if not only or source in only or name in only
    ]


def main() -> None:
    topology = (
        sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent.parent / "lab" / "topology.yml")
    )
    only = tuple(sys.argv[2].replace(",", " ").split()) if len(sys.argv) > 2 else ()
    print("\n".join(pairs(topology, only)))


if __name__ == "__main__":
    main()
