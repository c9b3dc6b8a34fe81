"""Who is changed first: rings of hosts, and the steps in which a rollout walks through them.

A ring is a group, `sideband_ring_canary`, `_early` or `_fleet`; a host in none of them belongs to the fleet.
The canary and the early ring are one step each. The fleet goes in batches of whole racks, hosts without a
rack (what racks depend on) first."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .errors import Error, got

NAMES = ("canary", "early", "fleet")
PREFIX = "sideband_ring_"
# How many batches the play of a rollout is written for: plays cannot be made while a playbook runs.
BATCHES = 10


@dataclass(frozen=True)
class Ring:
    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """What is changed together, then watched together. `name` is the ring's, or fleet_1, fleet_2, …"""

    name: str
    ring: str
    hosts: tuple[str, ...]


def step_names() -> tuple[str, ...]:
    """All steps that a rollout may have, in order."""
    return ("canary", "early", *(f"fleet_{number}" for number in range(1, BATCHES + 1)))


def read(groups: Mapping[str, Iterable[str]], hosts: Sequence[str]) -> tuple[list[Ring], list[Error]]:
    """The rings from an inventory's groups, over the hosts that the contract is about."""
    errors: list[Error] = []
    place: dict[str, str] = {}
    for group in sorted(groups):
        if not group.startswith(PREFIX):
            continue
        ring = group[len(PREFIX) :]
        if ring not in NAMES:
            near = difflib.get_close_matches(ring, NAMES, n=1)
            errors.append(
                Error(
                    "all",
                    group,
                    "unknown ring",
                    got(ring),
                    f"did you mean {PREFIX}{near[0]}?" if near else f"a ring is one of {', '.join(NAMES)}",
                )
            )
            continue
        for host in sorted(set(map(str, groups[group]))):
            if host not in hosts:
                errors.append(
                    Error(
                        host,
                        group,
                        "no sideband host",
                        hint="put it into a sideband_<word> group, or out of the ring",
                    )
                )
            elif host in place:
                errors.append(
                    Error(host, group, f"is in ring {place[host]} already", hint="a host belongs to one ring")
                )
            else:
                place[host] = ring
    rings = [Ring(name, tuple(host for host in hosts if place.get(host, "fleet") == name)) for name in NAMES]
    if not errors and not rings[0].hosts:
        errors.append(
            Error("all", f"{PREFIX}canary", "has no host", hint="name the hosts that a change reaches first")
        )
    return rings, errors


def batch_size(text: str, total: int) -> int:
    """`25%` of the fleet, rounded up, or a number of hosts; never less than one."""
    number = int(text[:-1] if text.endswith("%") else text)
    size = -(-number * total // 100) if text.endswith("%") else number
    return max(1, size)


def batches(hosts: Sequence[str], racks: Mapping[str, str], size: int) -> list[tuple[str, ...]]:
    """Hosts in batches of about `size`. A rack is never split, so a batch may be larger by a part of one."""
    units: dict[str, list[str]] = {}
    for host in sorted(hosts, key=lambda name: (racks.get(name, "") != "", racks.get(name, ""))):
        rack = racks.get(host, "")
        units.setdefault(f"rack {rack}" if rack else f"host {host}", []).append(host)
    found: list[list[str]] = []
    for unit in units.values():
        if not found or len(found[-1]) + len(unit) > size:
            found.append([])
        found[-1] += unit
    return [tuple(batch) for batch in found]


def steps(rings: Sequence[Ring], racks: Mapping[str, str], batch: str) -> tuple[list[Step], list[Error]]:
    """The steps of a rollout; an empty ring is none."""
    found = [Step(ring.name, ring.name, ring.hosts) for ring in rings[:2] if ring.hosts]
    fleet = rings[2].hosts
    parts = batches(fleet, racks, batch_size(batch, len(fleet))) if fleet else []
    if len(parts) > BATCHES:
        problem = f"makes {len(parts)} batches of the fleet's {len(fleet)} hosts, and there may be {BATCHES}"
        return found, [Error("all", "sideband_rollout.batch", problem, got(batch), "take a larger batch")]
    found += [Step(f"fleet_{number}", "fleet", hosts) for number, hosts in enumerate(parts, 1)]
    return found, []
