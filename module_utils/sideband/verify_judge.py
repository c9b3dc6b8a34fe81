"""What the visits saw, judged against the plan: an outcome for each probe, a cell for each pair, a cause for
each failure, in words that say where to look. Pure.

A negative probe passes only on evidence: its frame was sent, reached the catcher's interface, drew no answer
although its listener answers, and the named counter rose for it. Silence alone, or a refusal, is a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .verify_evidence import Evidence
from .verify_pairs import Pair, Plan, Probe, Spot

Record = dict[str, Any]
PASS, FAIL, OBSERVED, UNTESTED = "pass", "fail", "observed", "untested"


@dataclass(frozen=True)
class Outcome:
    """cause: where (host: path), what is wrong and what was got; '' where nothing is. root: what many such
    causes have in common, where a list of them would hide it."""

    probe: Probe
    state: str
    cause: str = ""
    hint: str = ""
    root: str = ""


def outcomes(plan: Plan, evidence: Evidence, ports: Mapping[tuple[str, str], str]) -> list[Outcome]:
    """`ports` names the switch port of a host's plane, for the hint."""
    judge = _Judge(plan, evidence, ports)
    return [judge.outcome(probe) for probe in plan.probes]


class _Judge:
    def __init__(self, plan: Plan, evidence: Evidence, ports: Mapping[tuple[str, str], str]) -> None:
        self.plan, self.evidence, self.ports = plan, evidence, ports

    def outcome(self, probe: Probe) -> Outcome:
        for host in (probe.leaves.host, probe.catcher.host, probe.pair.destination):
            problem = self.evidence.problems.get(host, "it was not visited")
            if problem:
                return Outcome(
                    probe,
                    UNTESTED,
                    f"{host}: probe: not visited to the end (got {problem})",
                    "see that it is up, that its planes have their addresses, and that no other run goes on",
                )
        if probe.positive:
            return self._positive(probe)
        return self._astray(probe) if probe.expect == "nowhere" else self._negative(probe)

    def _positive(self, probe: Probe) -> Outcome:
        got = self.evidence.connects.get(probe.number)
        if got is None:
            return Outcome(probe, UNTESTED, f"{probe.leaves.host}: probe: connection not tried", "")
        if not got:
            return Outcome(probe, PASS)
        name = probe.flow or {"pass": "training", "site": "management"}.get(probe.kind, probe.kind)
        host = probe.catcher.host
        where = f"{probe.pair.source}: {name}/{host}/ipv{probe.pair.family}"
        deaf = self.evidence.deaf.get(("tcp", probe.destination, probe.port))
        if deaf:
            return Outcome(
                probe,
                FAIL,
                f"{host}: {name}/ipv{probe.pair.family}: port {probe.port} of "
                f"{probe.destination} does not answer the host itself (got {deaf})",
                "the service is down or listens elsewhere",
                f"{host} port {probe.port}",
            )
        if probe.kind == "pass":
            return Outcome(
                probe, FAIL, f"{where}: training traffic does not pass (got {got})", self._port(probe)
            )
        if got in ("timeout", "no route to host"):
            if not self._arrived(probe):
                return self._lost(probe, got)
            batch = self.evidence.batches.get((host, self._unlisted(probe)))
            if batch and batch.surplus:
                return Outcome(
                    probe,
                    FAIL,
                    f"{host}: {batch.counter}: drops what flow {name} allows (got {got}, and "
                    f"{batch.surplus} more drops than the negative probes explain)",
                    f"the accept rule of flow {name} is not in force: nft list table netdev sideband",
                )
        return Outcome(
            probe,
            FAIL,
            f"{where}: port {probe.port} of {probe.destination} does not connect (got {got})",
            "its packets arrive; see the service and the rules of " + host,
        )

    def _negative(self, probe: Probe) -> Outcome:
        evidence, host = self.evidence, probe.catcher.host
        number = probe.number
        if number in evidence.unsent or number not in evidence.sent:
            return Outcome(
                probe,
                UNTESTED,
                f"{probe.leaves.host}: {probe.leaves.device}: frame not sent "
                f"(got {evidence.unsent.get(number, 'nothing')})",
                "",
            )
        if number not in evidence.seen.get(probe.catcher, set()):
            return self._lost(probe, "nothing")
        batch = evidence.batches[host, probe.counter]
        if batch.rise is None:
            return Outcome(
                probe,
                FAIL,
                f"{host}: {probe.counter}: no such counter in force (got none)",
                "its rules are not loaded: run playbooks/site.yml",
            )
        where = f"{host}: {probe.counter}"
        if number in evidence.answered and probe.expect == "drop":
            return Outcome(
                probe,
                FAIL,
                f"{where}: {self._what(probe)} from {probe.pair.source} is answered "
                f"(got {evidence.answered[number]})",
                "a deny rule is missing or comes too late: nft list table netdev sideband",
                where,
            )
        if batch.short:
            return Outcome(
                probe,
                FAIL,
                f"{where}: it did not count all that it must drop (got {batch.rise} of "
                f"{batch.arrived + batch.bystanders})",
                "something else lets packets pass or drops them first",
                where,
            )
        key = ("udp" if probe.shape == "udp" else "tcp", probe.destination, probe.port)
        deaf = evidence.deaf.get(key, "" if self._unasked(probe) else "it was not asked")
        if deaf:
            return Outcome(
                probe,
                FAIL,
                f"{probe.pair.destination}: {key[0]} port {probe.port} of {probe.destination} "
                f"answers not even the host itself, so silence proves nothing (got {deaf})",
                "the service is down or listens elsewhere",
                f"{probe.pair.destination} port {probe.port}",
            )
        return Outcome(probe, OBSERVED if probe.expect == "observe" else PASS)

    def _astray(self, probe: Probe) -> Outcome:
        evidence = self.evidence
        if probe.number in evidence.unsent or probe.number not in evidence.sent:
            return Outcome(
                probe,
                UNTESTED,
                f"{probe.leaves.host}: {probe.leaves.device}: frame not sent "
                f"(got {evidence.unsent.get(probe.number, 'nothing')})",
                "",
            )
        seen = evidence.seen.get(probe.catcher, set())
        host, device = probe.catcher
        if probe.number in seen:
            return Outcome(
                probe,
                FAIL,
                f"{host}: {device}: a frame of {probe.leaves.host}'s {probe.leaves.device} "
                "reached it across segments (got the frame)",
                f"{self._port(probe)}; {self._switch_port(probe.leaves)}",
            )
        if not seen:
            return Outcome(
                probe,
                FAIL,
                f"{host}: {device}: no frame of this run arrived at all, so the missing one "
                "proves nothing (got none)",
                self._port(probe),
            )
        return Outcome(probe, PASS)

    # Words

    def _lost(self, probe: Probe, got: str) -> Outcome:
        host, device = probe.catcher
        return Outcome(
            probe,
            FAIL,
            f"{host}: {device}: frames of {probe.pair.source} do not arrive (got {got})",
            f"{self._port(probe)}; {self._switch_port(probe.leaves)}",
        )

    def _port(self, probe: Probe) -> str:
        return self._switch_port(probe.catcher)

    def _switch_port(self, spot: Spot) -> str:
        for plane, part in self.plan.hosts[spot.host]["interfaces"].items():
            if part["device"] == spot.device:
                port = self.ports.get((spot.host, plane))
                return (
                    f"{spot.host}'s {spot.device} is behind {port}, VLAN {part['vlan']}"
                    if port
                    else f"see {spot.host}'s {spot.device}"
                )
        return ""

    def _what(self, probe: Probe) -> str:
        words = {"udp": "UDP", "ack": "a bare ACK", "syn": "a SYN"}[probe.shape]
        about = {
            "service port": f" with source port {probe.source_port}",
            "spoofed": f" with the spoofed source {probe.source}",
        }.get(probe.kind, "")
        return f"{words} to {probe.destination} port {probe.port}{about}"

    def _arrived(self, probe: Probe) -> bool:
        marks = self.evidence.marks.get(probe.catcher.host, {})
        return any(
            (source, source_port, port) == (probe.source or source, probe.source_port, probe.port)
            for source, source_port, _, port in marks
        )

    def _unlisted(self, probe: Probe) -> str:
        for counter in self.plan.hosts[probe.catcher.host]["counters"]:
            if counter["device"] == probe.catcher.device and counter["reason"] in ("unlisted", "source"):
                return str(counter["name"])
        return ""

    def _unasked(self, probe: Probe) -> bool:
        """A training address has a listener only where training may be probed: elsewhere the counter alone
        is the evidence."""
        plane = self.plan.hosts[probe.pair.destination]["interfaces"][probe.pair.plane]
        return plane["kind"] == "training" and not self.plan.options.training


def cells(plan: Plan, judged: Iterable[Outcome]) -> dict[Pair, tuple[str, list[Outcome]]]:
    """The worst of its probes makes a pair's colour."""
    found: dict[Pair, list[Outcome]] = {pair: [] for pair in plan.pairs}
    for outcome in judged:
        found[outcome.probe.pair].append(outcome)
    order = (FAIL, UNTESTED, OBSERVED, PASS)
    return {
        pair: (next((state for state in order if state in {one.state for one in mine}), UNTESTED), mine)
        for pair, mine in found.items()
    }
