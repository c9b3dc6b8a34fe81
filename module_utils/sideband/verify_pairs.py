"""The words of verify: pairs, probes, options, and which hosts there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Record = dict[str, Any]
FAMILIES = (4, 6)
GUARDED = ("telemetry", "query")
SSH = 22


class Pair(NamedTuple):
    source: str
    destination: str
    plane: str
    family: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.destination}·{self.plane} IPv{self.family}"


class Spot(NamedTuple):
    """An interface of a host: where frames leave, or where they must be caught."""

    host: str
    device: str


@dataclass(frozen=True)
class Probe:
    """One packet or one connection, and what must come of it.

    expect: answer (it connects), drop (counted and not answered), observe (counted, may be answered),
    nowhere (never reaches the catcher's interface).
    """

    number: int
    pair: Pair
    kind: str
    expect: str
    leaves: Spot
    catcher: Spot
    counter: str
    source: str
    destination: str
    shape: str
    source_port: int
    port: int
    flow: str = ""

    @property
    def positive(self) -> bool:
        return self.expect == "answer"


@dataclass(frozen=True)
class Options:
    """port: where each host's own short-lived listener waits. training: whether probes may use the training
    plane. only: hosts to which the run is limited. outside: hosts that are no sideband hosts, reached by a
    command. ssh_ports: where management answers."""

    port: int = 48427
    training: bool = False
    only: tuple[str, ...] = ()
    outside: tuple[Mapping[str, Any], ...] = ()
    ssh_ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    pairs: tuple[Pair, ...]
    probes: tuple[Probe, ...]
    hosts: Mapping[str, Record]
    options: Options


def options(values: Mapping[str, Any]) -> Options:
    """Options as an inventory states them."""
    only: Sequence[str] | str = values.get("only") or ()
    names: Iterable[str] = only.replace(",", " ").split() if isinstance(only, str) else only
    return Options(
        port=int(values["port"]),
        training=bool(values["training"]),
        only=tuple(names),
        outside=tuple(values.get("outside") or ()),
        ssh_ports=dict(values.get("ssh_ports") or {}),
    )


def address(interface: Mapping[str, Any], family: int) -> str:
    return str(interface["ipv4" if family == 4 else "ipv6"])


def segment(plane: str, interface: Mapping[str, Any]) -> tuple[str, int]:
    """What two interfaces must share to meet without a router."""
    return (plane, int(interface["vlan"]))


def sideband_hosts(model: Mapping[str, Any]) -> dict[str, Record]:
    return {name: host for name, host in model["hosts"].items() if host["interfaces"]}


def outside_hosts(model: Mapping[str, Any], options: Options) -> dict[str, Record]:
    """Hosts like the model's, for those that are in no contract: one interface, its addresses its own."""
    result: dict[str, Record] = {}
    for spec in options.outside:
        plane = spec["plane"]
        twins = [host["interfaces"][plane] for host in model["hosts"].values() if plane in host["interfaces"]]
        if len({twin["vlan"] for twin in twins}) != 1:
            raise ValueError(
                f"sideband_verify_outside: {spec['name']}: plane {plane} is not one segment; "
                "an outside host's place on it cannot be told"
            )
        interface = {**twins[0], "device": spec["device"], "ipv4": "", "ipv6": "", "managed": False}
        result[spec["name"]] = {
            "name": spec["name"],
            "words": [],
            "rack": "",
            "interfaces": {plane: interface},
            "serves": {},
            "reaches": {},
            "counters": [],
        }
    return result


def list_pairs(model: Mapping[str, Any], options: Options) -> list[Pair]:
    inside = sideband_hosts(model)
    sources = [*inside, *outside_hosts(model, options)]
    return [
        Pair(source, name, plane, family)
        for name, host in inside.items()
        for plane, interface in host["interfaces"].items()
        for family in FAMILIES
        if address(interface, family)
        for source in sources
        if source != name
        if not options.only or source in options.only or name in options.only
    ]
