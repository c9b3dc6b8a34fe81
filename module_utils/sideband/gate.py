"""The gate between two rings: whether the hosts of a step may stay as they are now, and if not, why.

A host is looked at three times: before the change, right after it, and at the end of the soak. What is judged
is what was counted from the inventory, so a host that dropped out of the play is missing here, and missing is
failed (case 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Vitals = Mapping[str, Any]

REACH, APPLY, LISTENERS, UNITS, RESTARTS = "reach", "apply", "listeners", "units", "restarts"
DROPS, QUEUES, BUDGET, SERIES, PROBES = "drops", "queues", "budget", "series", "probes"
# What explains more comes first: a unit that will not start is why a change did not go through.
CHECKS = (REACH, LISTENERS, UNITS, RESTARTS, APPLY, DROPS, QUEUES, BUDGET, SERIES, PROBES)


@dataclass(frozen=True)
class Finding:
    """One reason against a host, or against the step as a whole (`host` is then `all`)."""

    host: str
    check: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.check}: {self.problem}" + (f"; {self.hint}" if self.hint else "")


@dataclass(frozen=True)
class Look:
    """What is known of one host of the step."""

    before: Vitals | None = None
    after: Vitals | None = None
    soaked: Vitals | None = None
    applied: bool = False  # every layer of the play went through
    error: str = ""  # what the play said when it did not


@dataclass(frozen=True)
class Demand:
    """What a host has to fulfil: from the compiled model and the noun `rollout`."""

    words: tuple[str, ...]
    listens: tuple[str, ...] = ()  # "tcp 10.21.0.21:8427": what the contract lets it serve
    drops: int = 0  # packets and samples that the soak may cost
    counters: tuple[str, ...] | None = None  # those that stand for a drop; None: all
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    metrics: tuple[str, ...] = ()  # names (a trailing * takes a family) that must arrive


@dataclass(frozen=True)
class Verdict:
    passed: bool
    cause: str
    failed: dict[str, str] = field(default_factory=dict)  # host -> cause
    findings: tuple[Finding, ...] = ()


def judge_host(host: str, look: Look, demand: Demand) -> list[Finding]:
    """Everything against one host. One that cannot be looked at has one finding: nothing can be judged."""
    if look.before is None and not look.applied:
        return [
            Finding(
                host, REACH, "did not answer before the change", _said(look) or "nothing was changed there"
            )
        ]
    if not look.applied:
        # What the host itself shows names the cause better than the play that gave up.
        seen = [] if look.soaked is None else _units(host, look) + _listeners(host, look, demand)
        said = _said(look) or "the play's own error is above"
        return [*seen, Finding(host, APPLY, "the change did not go through", said)]
    if look.after is None or look.soaked is None:
        when = "right after the change" if look.after is None else "at the end of the soak"
        return [Finding(host, REACH, f"did not answer {when}", _said(look))]
    found = _listeners(host, look, demand) + _units(host, look)
    if look.after["boot"] != look.soaked["boot"]:
        # Every count below starts anew at boot, so nothing can be said of them.
        return [*found, Finding(host, RESTARTS, "the host itself restarted during the soak")]
    return [
        *found,
        *_restarts(host, look),
        *_drops(host, look, demand),
        *_budget(host, look, demand),
        *_unanswered(host, look),
    ]


def _said(look: Look) -> str:
    line = next((part.strip() for part in look.error.splitlines() if part.strip()), "")
    return line if len(line) <= 300 else line[:299] + "…"


def _listeners(host: str, look: Look, demand: Demand) -> list[Finding]:
    """Sockets on a plane that the contract does not list. On a training node ours may have none at all."""
    allowed, before = set(demand.listens), set((look.before or {}).get("listeners", ()))
    found = []
    for listener in sorted(set((look.soaked or look.after or {}).get("listeners", ()))):
        where, _, unit = listener.rpartition(" by ")
        ours = unit.startswith("sideband-")
        address = where.rpartition(":")[0]
        if where in allowed or f"{address}:*" in allowed:
            continue
        if listener in before and not (ours and "node" in demand.words):
            continue
        found.append(
            Finding(
                host,
                LISTENERS,
                f"{unit or 'a process'} listens on {where}",
                "the contract lists no such flow",
            )
        )
    return found


def _units(host: str, look: Look) -> list[Finding]:
    """Units that are down, and after a change that did not go through those that systemd starts again and
    again: such a one may be up for the moment in which it is looked at."""
    units, before = (look.soaked or {}).get("units", {}), (look.before or {}).get("units", {})

    def loops(name: str) -> bool:
        count = units[name]["restarts"]
        return not look.applied and count not in (0, before.get(name, {}).get("restarts", 0))

    return [
        Finding(
            host,
            UNITS,
            f"{name} is {unit['active']} ({unit['sub']})"
            + (f", started again {unit['restarts']} times" if unit["restarts"] else "")
            + (f", it said: {unit['said']}" if unit.get("said") else ""),
            f"on the host: journalctl -u {name}",
        )
        for name, unit in sorted(units.items())
        if (unit["wanted"] and unit["active"] not in ("active", "activating"))
        or unit["active"] == "failed"
        or unit["sub"] == "auto-restart"
        or loops(name)
    ]


def _restarts(host: str, look: Look) -> list[Finding]:
    after, soaked = (look.after or {}).get("units", {}), (look.soaked or {}).get("units", {})
    return [
        Finding(
            host,
            RESTARTS,
            f"{name} restarted {unit['restarts'] - after[name]['restarts']} times during the soak",
            f"on the host: journalctl -u {name}",
        )
        for name, unit in sorted(soaked.items())
        if name in after and unit["restarts"] > after[name]["restarts"]
    ]


def _drops(host: str, look: Look, demand: Demand) -> list[Finding]:
    found = []
    for check, key, what in (
        (DROPS, "counters", "packets"),
        (QUEUES, "queues", "packets"),
        (QUEUES, "agents", "samples"),
    ):
        after, soaked = (look.after or {}).get(key, {}), (look.soaked or {}).get(key, {})
        for name, count in sorted(soaked.items()):
            if key == "counters" and demand.counters is not None and name not in demand.counters:
                continue
            # A rule or queue loaded anew counts from 0 again.
            more = count - after.get(name, 0) if count >= after.get(name, 0) else count
            if more > demand.drops:
                found.append(
                    Finding(
                        host,
                        check,
                        f"{name} dropped {more:g} {what} during the soak",
                        f"{demand.drops} are allowed",
                    )
                )
    return found


def _budget(host: str, look: Look, demand: Demand) -> list[Finding]:
    after, soaked = look.after or {}, look.soaked or {}
    found = []
    seconds = soaked["at"] - after["at"]
    if demand.cpu_percent is not None and seconds > 0:
        percent = 100 * max(0.0, soaked["cpu_seconds"] - after["cpu_seconds"]) / seconds
        if percent > demand.cpu_percent:
            found.append(
                Finding(
                    host,
                    BUDGET,
                    f"sideband took {percent:.1f} % of a CPU",
                    f"{demand.cpu_percent:g} % are agreed",
                )
            )
    if demand.memory_bytes is not None and soaked["memory_bytes"] > demand.memory_bytes:
        got, want = (number / 2**20 for number in (soaked["memory_bytes"], demand.memory_bytes))
        found.append(Finding(host, BUDGET, f"sideband holds {got:.0f} MiB", f"{want:.0f} MiB are agreed"))
    return found


def _unanswered(host: str, look: Look) -> list[Finding]:
    """The flows that the contract gives this host, tried by a connection of its own."""
    return [
        Finding(
            host, PROBES, f"{where} takes no connection from here: {problem}", "an allowed flow must answer"
        )
        for where, problem in sorted((look.soaked or {}).get("unanswered", {}).items())
    ]


def judge_series(host: str, demand: Demand, before: Iterable[str], now: Iterable[str]) -> list[Finding]:
    """Metric names of one node that arrived within the last periods. What arrived before the change must
    still arrive, unless the contract no longer asks for it; what the contract asks for must arrive."""
    arrived = set(now)
    if not demand.metrics:
        return []
    hint = "look at the way: node, rack, region, lake (sideband-*.service on each)"
    if not arrived:
        return [Finding(host, SERIES, "no series arrived", hint)]
    lost = [pattern for pattern in demand.metrics if not any(_takes(pattern, name) for name in arrived)]
    lost += [
        name
        for name in sorted(set(before) - arrived)
        if any(_takes(pattern, name) for pattern in demand.metrics)
    ]
    if not lost:
        return []
    shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    return [Finding(host, SERIES, f"series did not arrive: {shown}", hint)]


def _takes(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def verdict(
    ring: str,
    hosts: Sequence[str],
    findings: Iterable[Finding],
    failed_before: Iterable[str],
    budget: int,
) -> Verdict:
    """Whether the next step may begin. The canary ring is there to fail early, so no budget forgives it;
    later the whole fleet shares one (case 14). A finding against the step itself is never forgiven."""
    # A host's first finding is its cause.
    listed = sorted(findings, key=lambda each: (each.host, CHECKS.index(each.check)))
    failed: dict[str, str] = {}
    for finding in listed:
        if finding.host in hosts:
            failed.setdefault(finding.host, str(finding))
    whole = [finding for finding in listed if finding.host not in hosts]
    total = set(failed) | set(failed_before)
    if whole:
        return Verdict(False, str(whole[0]), failed, tuple(listed))
    if failed and ring == "canary":
        return Verdict(False, _cause(failed), failed, tuple(listed))
    if failed and len(total) > budget:
        whom = ", ".join(sorted(total))
        cause = f"{_cause(failed)} [{len(total)} hosts failed in this rollout, {budget} may: {whom}]"
        return Verdict(False, cause, failed, tuple(listed))
    return Verdict(True, "", failed, tuple(listed))


def _cause(failed: Mapping[str, str]) -> str:
    first = next(iter(failed.values()))
    return first if len(failed) == 1 else f"{first} (and {len(failed) - 1} more hosts)"


# going back

# What others stand on goes last: the links and the way to packages.
LATE = ("planes", "fabric", "mirror", "packages")


def in_removal_order(owners: Iterable[str]) -> list[str]:
    listed = sorted(owners)
    return [owner for owner in listed if owner not in LATE] + [owner for owner in LATE if owner in listed]


@dataclass(frozen=True)
class Undo:
    """What takes one owner of a host back to where it was before the rollout; `state` is host_state's."""

    owner: str
    state: str  # reverted | absent | lost


def undo(before: Vitals, now: Vitals) -> list[Undo]:
    """Owners to take back. One whose earlier generation is not on the host any more is `lost`: somebody has
    changed the host since, and guessing would make it worse."""
    was, is_now = before.get("generations", {}), now.get("generations", {})
    found = []
    for owner in in_removal_order(is_now):
        there, earlier = is_now[owner], was.get(owner)
        if earlier is None:
            found.append(Undo(owner, "absent"))
        elif there["pending"]:
            # The record moves on only when everything held, so `current` is still the earlier one.
            found.append(
                Undo(
                    owner, "reverted" if earlier["number"] in (there["number"], there["previous"]) else "lost"
                )
            )
        elif there["number"] != earlier["number"]:
            found.append(Undo(owner, "reverted" if there["previous"] == earlier["number"] else "lost"))
    return found


def residue(before: Vitals, now: Vitals, limit: int = 10) -> list[str]:
    """What still differs after going back: paths, units, rules and queues by name. Empty: byte for byte."""
    found = []
    for part in ("files", "rules", "shapes"):
        was, is_now = before.get(part, {}), now.get(part, {})
        for name in sorted(set(was) | set(is_now)):
            if was.get(name) != is_now.get(name):
                change = "appeared" if name not in was else "is gone" if name not in is_now else "differs"
                found.append(f"{part[:-1]} {name} {change}")
    units, units_now = before.get("units", {}), now.get("units", {})
    for name in sorted(set(units) | set(units_now)):
        was_up, is_up = (side.get(name, {}).get("active") for side in (units, units_now))
        if was_up != is_up and not (was_up in (None, "inactive") and is_up in (None, "inactive")):
            found.append(f"unit {name} is {is_up}, was {was_up}")
    return found if len(found) <= limit else [*found[:limit], f"and {len(found) - limit} more"]


# what the lake says


def names_by_node(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    """The metric names of every node, from the answer to `count by (__name__, node) (…)`."""
    found: dict[str, set[str]] = {}
    for series in answer.get("names", {}).get("data", {}).get("result", ()):
        labels = series.get("metric", {})
        if labels.get("node") and labels.get("__name__"):
            found.setdefault(labels["node"], set()).add(labels["__name__"])
    return {node: sorted(names) for node, names in sorted(found.items())}


def level_by_node(answer: Mapping[str, Any], otherwise: str) -> dict[str, str]:
    """The level that each node says it is at; the answer to a query of `sideband_policy_level`."""
    found = {}
    for series in answer.get("levels", {}).get("data", {}).get("result", ()):
        labels = series.get("metric", {})
        if labels.get("node"):
            found[labels["node"]] = labels.get("level") or otherwise
    return found
