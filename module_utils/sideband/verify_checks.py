"""From outcomes to the report: checks, figures and causes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .report import check
from .verify_evidence import Evidence
from .verify_judge import FAIL, OBSERVED, PASS, UNTESTED, Outcome, cells, outcomes
from .verify_pairs import Pair, Plan
from .verify_request import PARTS

Record = dict[str, Any]
# What we would put there, had we put anything; a kernel's defaults and a site's own are none of these.
OUR_QUEUES = ("htb", "tbf", "clsact", "ingress")
FAMILIES = (4, 6)


class Cause(NamedTuple):
    text: str
    hint: str
    cells: tuple[Pair, ...]

    def __str__(self) -> str:
        count = f"{len(self.cells)} cells, first " if len(self.cells) > 1 else ""
        where = f" [{count}{self.cells[0]}]" if self.cells else ""
        return self.text + (f"; {self.hint}" if self.hint else "") + where


class Verdict(NamedTuple):
    passed: bool
    figures: Record
    checks: list[Record]
    causes: list[Cause]
    cells: Mapping[Pair, tuple[str, list[Outcome]]]
    observed: Mapping[str, int]
    hit: Sequence[str]


def judge(
    model: Mapping[str, Any],
    plan: Plan,
    visits: Mapping[str, Record],
    expected: Sequence[str],
    seconds: float,
) -> Verdict:
    """`expected` names the pairs that somebody else counted (`str(Pair)`); none: the plan's own."""
    evidence = Evidence(plan, visits)
    judged = outcomes(plan, evidence, switch_ports(model))
    matrix = cells(plan, judged)
    names = {str(pair): pair for pair in plan.pairs}
    wanted = list(expected) or list(names)
    tested = {
        str(pair) for pair, (_, mine) in matrix.items() if mine and all(one.state != UNTESTED for one in mine)
    }
    untested = sorted(set(wanted) - tested)
    checks = [
        check(
            "every pair that the site's wiring yields is tested",
            not untested,
            untested[:10] or len(wanted),
            len(wanted),
        ),
        check(
            "no pair is tested that the wiring does not yield",
            not (tested - set(wanted)),
            sorted(tested - set(wanted))[:10],
            [],
        ),
        *pair_checks(matrix),
        *counter_checks(evidence),
        *mark_checks(model, plan, evidence),
        *node_checks(model, plan, visits),
    ]
    for host, visit in visits.items():
        for part in PARTS:
            checks += part.judge(model, host, visit.get("collect", {}).get("answers", []))
    causes = gather(judged) + [
        Cause(cause_of(one), "", ())
        for one in checks
        if not one["pass"] and not one["name"].startswith(("pair ", "counter "))
    ]
    negative = [one for one in judged if not one.probe.positive]
    positive = [one for one in judged if one.probe.positive]
    marks = [one for one in checks if one["name"].startswith("dscp ")]
    figures = {
        "pairs_expected": len(wanted),
        "pairs_tested": len(tested & set(wanted)),
        "pairs_untested": len(untested),
        "probes": len(judged),
        "negative": len(negative),
        "negative_without_counter": sum(one.state not in (PASS, OBSERVED) for one in negative),
        "negative_observed": sum(one.state == OBSERVED for one in negative),
        "positive": len(positive),
        "positive_failed": sum(one.state != PASS for one in positive),
        "dscp_seen": sum(one["pass"] for one in marks),
        "dscp_expected": len(marks),
        "seconds": round(seconds, 1),
    }
    return Verdict(
        all(one["pass"] for one in checks),
        figures,
        checks,
        causes,
        matrix,
        would_drop(model, evidence),
        would_hit(model, evidence, plan.options.port),
    )


def versions(visits: Mapping[str, Record]) -> dict[str, str]:
    """What judged the packets, over all hosts."""
    found: dict[str, set[str]] = {}
    for visit in visits.values():
        for name, version in visit.get("open", {}).get("versions", {}).items():
            found.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(mine)) for name, mine in sorted(found.items())}


def switch_ports(model: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (port["host"], port["plane"]): f"{switch} port {port['port']}"
        for switch, part in model["switches"].items()
        for port in part["ports"]
    }


def gather(judged: Iterable[Outcome]) -> list[Cause]:
    """One cause for all cells that it explains, the widest first. Where one counter fails in many ways, an
    answered packet speaks for them: it says more than a number that is too small."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for one in judged:
        if one.cause:
            found.setdefault((one.root, "") if one.root else (one.cause, one.hint), []).append(one)
    causes = []
    for mine in found.values():
        first = next((one for one in mine if one.probe.positive or "is answered" in one.cause), mine[0])
        others = len({one.cause for one in mine}) - 1
        text = first.cause + (f", and {others} more like it" if others else "")
        causes.append(Cause(text, first.hint, tuple(dict.fromkeys(one.probe.pair for one in mine))))
    return sorted(causes, key=lambda cause: -len(cause.cells))


def cause_of(one: Mapping[str, Any]) -> str:
    host, _, path = str(one["name"]).partition(": ")
    if not path:
        host, path = "verify", host
    return f"{host}: {path}: does not hold (got {one['got']}; want {one['want']})"


def pair_checks(matrix: Mapping[Pair, tuple[str, list[Outcome]]]) -> list[Record]:
    result = []
    for pair, (state, mine) in matrix.items():
        kinds: dict[str, int] = {}
        for one in mine:
            name = (
                "connects: " + (one.probe.flow or one.probe.kind)
                if one.probe.positive
                else f"refused: {one.probe.kind}"
            )
            kinds[name] = kinds.get(name, 0) + 1
        bad = next((one.cause for one in mine if one.state in (FAIL, UNTESTED)), "")
        got = bad or f"{len(mine)} as foretold" + (" (observed only)" if state == OBSERVED else "")
        want = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in kinds.items())
        result.append(check(f"pair {pair}", state in (PASS, OBSERVED), got, want))
    return result


def counter_checks(evidence: Evidence) -> list[Record]:
    return [
        check(
            f"counter {host} {counter}",
            batch.rise is not None and not batch.short and batch.planned == batch.arrived,
            "none" if batch.rise is None else batch.rise,
            f"at least {batch.planned + batch.bystanders}",
        )
        for (host, counter), batch in sorted(evidence.batches.items())
    ]


def mark_checks(model: Mapping[str, Any], plan: Plan, evidence: Evidence) -> list[Record]:
    """DSCP as it arrives, out and back, for each flow and family. What an outside host sends is not ours to
    mark, what it gets back is."""
    checks = []
    for flow in model["flows"]:
        for family in FAMILIES:
            mine = [
                p for p in plan.probes if p.flow == flow["name"] and p.pair.family == family and p.positive
            ]
            if not mine:
                continue
            there = [
                _mark(evidence, p.catcher.host, (p.source, p.source_port, p.destination, p.port))
                for p in mine
                if plan.hosts[p.pair.source]["words"]
            ]
            back = [
                _mark(evidence, p.pair.source, (p.destination, p.port, p.source, p.source_port)) for p in mine
            ]
            for way, got in (("out", there), ("back", back)):
                if got:
                    want = [flow["dscp_value"]] * len(got)
                    checks.append(check(f"dscp {flow['name']} ipv{family} {way}", got == want, got, want))
    return checks


def _mark(evidence: Evidence, host: str, ends: tuple[str, int, str, int]) -> int | None:
    """The DSCP with which a packet between these ends arrived; an end without an address is any."""
    for seen, dscp in evidence.marks.get(host, {}).items():
        if all(want in ("", got) for want, got in zip(ends, seen)):
            return dscp
    return None


def ours(socket: Mapping[str, Any]) -> bool:
    return (
        socket["user"].startswith("sideband")
        or "sideband" in socket["group"]
        or "/opt/sideband/" in socket["program"]
    )


def node_checks(model: Mapping[str, Any], plan: Plan, visits: Mapping[str, Record]) -> list[Record]:
    """On a training node nothing of ours listens on any plane, nobody listens on a telemetry plane alone, and
    the training interface has no hook, no queue and no connection of ours."""
    checks = []
    for name, host in model["hosts"].items():
        if "node" not in host["words"] or "open" not in visits.get(name, {}):
            continue
        opened = visits[name]["open"]
        places = {
            address: plane
            for plane, part in host["interfaces"].items()
            for address in (part["ipv4"], part["ipv6"])
            if address
        }
        guarded = {
            address
            for address, plane in places.items()
            if host["interfaces"][plane]["kind"] in ("telemetry", "query")
        }
        training = {
            address for address, plane in places.items() if host["interfaces"][plane]["kind"] == "training"
        }
        listening = [s for s in opened["sockets"] if s["listens"] and (ours(s) or s["address"] in guarded)]
        reaching = [s for s in opened["sockets"] if not s["listens"] and ours(s) and s["address"] in training]
        queues = [queue for queue in opened["queues"] if queue.split()[1] in OUR_QUEUES]
        checks += [
            check(f"{name}: listeners", not listening, [_socket(s, places) for s in listening], []),
            check(f"{name}: training connections", not reaching, [_socket(s, places) for s in reaching], []),
            check(f"{name}: training hooks", not opened["hooks"], opened["hooks"], []),
            check(f"{name}: training queues", not queues, queues, []),
        ]
    return checks


def _socket(socket: Mapping[str, Any], places: Mapping[str, str]) -> str:
    plane = places.get(socket["address"], "every plane")
    return (
        f"{socket['protocol']} port {socket['port']} of {socket['address']} ({plane}): "
        f"{socket['program'][:80] or 'unknown program'} ({socket['user']})"
    )


def would_drop(model: Mapping[str, Any], evidence: Evidence) -> dict[str, int]:
    """Counters of planes that only observe: what enforcing would drop, since the rules were loaded."""
    found = {}
    for name, host in model["hosts"].items():
        modes = {part["device"]: part["mode"] for part in host["interfaces"].values()}
        counted = evidence.visits.get(name, {}).get("collect", {}).get("counters", {})
        for counter in host["counters"]:
            if modes[counter["device"]] == "observe":
                found[f"{name} {counter['name']}"] = int(counted.get(counter["name"], 0))
    return found


def would_hit(model: Mapping[str, Any], evidence: Evidence, probes_port: int) -> list[str]:
    """Whom enforcing would hit, the most packets first: `node1 edge0: 10.21.0.99 tcp 9100: 14 packets`. The
    probes' own listener port is left out; other probes of the last day are among them."""
    found: list[tuple[int, str]] = []
    for name, host in model["hosts"].items():
        devices = {one["name"].removesuffix(f"_{one['reason']}"): one["device"] for one in host["counters"]}
        for one in evidence.visits.get(name, {}).get("collect", {}).get("seen", ()):
            device = devices.get(one["set"].rpartition("_seen")[0])
            if device and one["port"] != probes_port:
                who = f"{one['source']} {one['protocol']} {one['port']}"
                found.append((one["packets"], f"{name} {device}: {who}: {one['packets']} packets"))
    return [line for _, line in sorted(found, key=lambda each: (-each[0], each[1]))]
