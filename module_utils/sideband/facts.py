"""What the rules of the second ring read, and the list of the rules.

Each rule names the nouns that it reads. It runs when their shape is right, so that one misspelt word does
not hide the rest and never makes a rule stumble."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable

from .errors import Error
from .load import PREFIX, SITE, Inventory
from .model import Flow, Plane, Segment, Zone

RACKED_WORDS = ("node", "rack")


@dataclass
class Facts:
    """What is known of the contract to be well formed."""

    inventory: Inventory
    right: set[tuple[str, str]]
    known: frozenset[str]
    planes: Mapping[str, Plane]
    zones: tuple[Zone, ...]
    flows: tuple[Flow, ...]
    # What the last complete run left (playbooks/record.yml), and what the person at the keyboard confirmed.
    deployed: Mapping[str, Any] = field(default_factory=dict)
    confirmed: str = ""
    # Whether our roles are to serve it: they know some flows and tiers by name.
    served: bool = False

    def has(self, *nouns: str) -> bool:
        return all((SITE, noun) in self.right for noun in nouns)

    def noun(self, noun: str) -> Any:
        return self.inventory.nouns[noun]

    def optional(self, noun: str, empty: Any) -> Any:
        return self.inventory.nouns.get(noun, empty)

    def hosts(self, noun: str) -> Iterator[tuple[str, Any]]:
        """(host, value) of a host's noun, where its shape is right and it is given."""
        for name, variables in self.inventory.hosts.items():
            if noun in variables and (name, noun) in self.right:
                yield name, variables[noun]

    def rack(self, host: str) -> str:
        ours = self.inventory.hosts.get(host, {})
        return str(ours.get("rack", "")) if (host, "rack") in self.right else ""

    def words(self, host: str) -> list[str]:
        return list(self.inventory.hosts[host]["words"])

    def members(self, group: str) -> list[str]:
        return [name for name in self.inventory.hosts if group[len(PREFIX) :] in self.words(name)]

    def everybody(self) -> set[str]:
        """Every host of the inventory, ours or not."""
        return {*self.inventory.hosts, *(name for hosts in self.inventory.groups.values() for name in hosts)}

    def racks(self) -> list[str]:
        return sorted({self.rack(host) for host in self.inventory.hosts} - {""})

    def planes_of(self, host: str) -> list[str]:
        groups = {PREFIX + word for word in self.words(host)}
        return [
            name for name in self.planes if any(z.plane == name and z.group in groups for z in self.zones)
        ]

    def placed(self, host: str) -> bool:
        """Whether zones can be trusted to say which planes a host is on: it has a role, and every zone names
        a plane. Otherwise what is missing on the host is only the echo of another fault."""
        return bool(self.words(host)) and all(zone.plane in self.planes for zone in self.zones)

    def strangers(self, host: str) -> list[Plane]:
        """The planes with one segment for each rack that do not know this host's rack."""
        planes = [self.planes[name] for name in self.planes_of(host)]
        return [plane for plane in planes if plane.per_rack and self.rack(host) not in plane.per_rack]

    def segment(self, host: str, plane: str) -> Segment | None:
        return self.planes[plane].segment_of(self.rack(host))


Rule = Callable[[Facts], Iterator[Error]]
RULES: list[tuple[tuple[str, ...], Rule]] = []


def rule(*nouns: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.append((nouns, function))
        return function

    return register


def with_rates(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A missing egress_rate is its own rule's finding; the other rules still want to read the plane."""
    return {name: {"egress_rate": "1kbit", **plane} for name, plane in spec.items()}


def segments(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, plane in spec.items():
        if "subnets" in plane:
            yield f"sideband_planes.{name}", plane
        for rack, part in plane.get("per_rack", {}).items():
            yield f"sideband_planes.{name}.per_rack.{rack}", part
