"""What the visits of a run found, arranged so that a judge can ask for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .verify_pairs import Plan, Record, Spot


@dataclass(frozen=True)
class Batch:
    """All probes that one counter must have counted."""

    host: str
    counter: str
    planned: int
    arrived: int
    answered: int
    bystanders: int
    rise: int | None

    @property
    def short(self) -> int:
        """How many packets were let through uncounted and unanswered."""
        return 0 if self.rise is None else max(0, self.arrived - self.answered + self.bystanders - self.rise)

    @property
    def surplus(self) -> int:
        return 0 if self.rise is None else max(0, self.rise - self.arrived - self.bystanders)


class Evidence:
    """The visits' findings, in the order in which the judge asks for them."""

    def __init__(self, plan: Plan, visits: Mapping[str, Record]) -> None:
        self.plan, self.visits = plan, visits
        self.problems = {
            name: visit.get("problem") or visit.get("collect", {}).get("problem", "")
            for name, visit in visits.items()
        }
        self.answered: dict[int, str] = {}
        self.seen: dict[Spot, set[int]] = {}
        self.marks: dict[str, dict[tuple[str, int, str, int], int]] = {}
        self.sent: set[int] = set()
        self.unsent: dict[int, str] = {}
        self.connects: dict[int, str] = {}
        self.deaf: dict[tuple[str, str, int], str] = {}
        self.others: dict[Spot, dict[int, int]] = {}
        for name, visit in visits.items():
            self._read(name, visit)
        self.batches = {
            key: self._batch(*key) for key in {(p.catcher.host, p.counter) for p in plan.probes} if key[1]
        }

    def _read(self, name: str, visit: Record) -> None:
        for protocol, address, port, problem in visit.get("open", {}).get("answers", []):
            self.deaf[protocol, address, int(port)] = problem
        shot = visit.get("shoot", {})
        self.sent |= set(shot.get("sent", []))
        self.unsent.update({int(key): value for key, value in shot.get("unsent", {}).items()})
        self.connects.update({int(key): value for key, value in shot.get("connects", {}).items()})
        for device, found in visit.get("collect", {}).get("devices", {}).items():
            for key, how in found["answered"].items():
                if how != "RST" or int(key) not in self.answered:
                    self.answered[int(key)] = how
            self.seen[Spot(name, device)] = set(found["seen"])
            self.others[Spot(name, device)] = {int(key): n for key, n in found["bystander"].items()}
            for source, source_port, destination, port, dscp in found["marks"]:
                self.marks.setdefault(name, {})[source, source_port, destination, port] = dscp

    def rise(self, host: str, counter: str) -> int | None:
        """None where the host has no such counter, or was not visited to the end."""
        visit = self.visits.get(host, {})
        before = visit.get("open", {}).get("counters", {}).get(counter)
        after = visit.get("collect", {}).get("counters", {}).get(counter)
        return None if before is None or after is None else after - before

    def _batch(self, host: str, counter: str) -> Batch:
        probes = [p for p in self.plan.probes if (p.catcher.host, p.counter) == (host, counter)]
        spot = probes[0].catcher
        arrived = [p for p in probes if p.number in self.seen.get(spot, set())]
        return Batch(
            host,
            counter,
            len(probes),
            len(arrived),
            sum(p.number in self.answered and p.expect == "drop" for p in arrived),
            # A switch that has not yet learnt an address floods: the frames of others are counted here too,
            # where everything for another address is.
            self._flooded(spot) if counter.endswith("_address") and self._guards(spot) else 0,
            self.rise(host, counter),
        )

    def _flooded(self, spot: Spot) -> int:
        return sum(self.others.get(spot, {}).values())

    def _guards(self, spot: Spot) -> bool:
        return any(
            part["device"] == spot.device and part["kind"] in ("telemetry", "query")
            for part in self.plan.hosts[spot.host]["interfaces"].values()
        )
