"""A fleet between two levels: who was asked, who has followed, who has not and why. Pure.

The lake is the witness: a node has followed when the generation that it reports is there, and when what it
sends is what its level lists. What the signer or a rack says counts for the clamp only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .documents import Scope, scope_from_text
from .levels import foreign, marks

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_UNTIL = re.compile(r"(\d+[smhd]|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\Z")
_TEXTS = ("level", "scope", "until", "reason", "actions")
# What can be switched beside the level, for the whole site: queries read the newest aggregated copy (D5).
ACTIONS = ("aggregated",)

GENERATIONS = 'sideband_policy_generation{job="policy"}'
NAMES = 'count by (node, __name__) ({job="node"})'


# -- the request ------------------------------------------------------------------------------------------


def request_errors(request: Mapping[str, Any], needed: Sequence[str], limit: str = "") -> list[str]:
    """What is wrong with a verb's extra variables by themselves, each with a hint.

    A --limit would leave out the signer or the witness, and a command that did nothing would end well."""
    errors = []
    if limit:
        errors.append(
            f"--limit: names no scope here (got {limit!r}); hint: -e scope=rack:NAME or -e scope=node:NAME"
        )
    for key in needed:
        if key == "level" and request.get("actions"):
            continue  # an action goes without a level
        if request.get(key) in (None, ""):
            errors.append(f"{key}: missing; hint: -e {key}=…")
    for key in _TEXTS:
        value = request.get(key)
        if value is None or (value == "" and key not in needed):
            continue
        if not isinstance(value, str):
            errors.append(f"{key}: is no text (got {value!r}); hint: -e '{key}=…'")
        elif key == "level" and value and not _WORD.match(value):
            errors.append(f"level: is no name (got {value!r})")
        elif key == "actions":
            errors += _action_errors(value, request)
        elif key == "until" and not _UNTIL.match(value):
            errors.append(f"until: is no span or time (got {value!r}); hint: 30m, 2h or 2031-01-01T00:00:00Z")
        elif key == "scope":
            try:
                scope_from_text(value)
            except ValueError as error:
                errors.append(str(error))
    return errors


def _action_errors(value: str, request: Mapping[str, Any]) -> list[str]:
    known = ", ".join(ACTIONS)
    errors = [
        f"actions: knows no such action (got {name!r}); hint: one of {known}"
        for name in value.split(",")
        if name not in ACTIONS
    ]
    if request.get("scope") not in (None, "", "all"):
        errors.append("actions: hold for the whole site; hint: leave scope out, or ask for both in turn")
    return errors


def contract_errors(model: Mapping[str, Any], request: Mapping[str, Any]) -> list[str]:
    """What is wrong with a request that is sound by itself, against the contract."""
    errors = []
    order = model["ladder"]["order"]
    if request["level"] not in order:
        known = ", ".join(order)
        errors.append(
            f"level: the contract has no such level (got {request['level']!r}); hint: one of {known}"
        )
    scope = scope_from_text(request["scope"])
    known_names = list(model["racks"]) if scope.kind == "racks" else _all_nodes(model)
    for name in scope.names:
        if name not in known_names:
            hint = ", ".join(known_names)
            errors.append(
                f"scope: the contract has no such {scope.kind[:-1]} (got {name!r}); hint: one of {hint}"
            )
    return errors


def _all_nodes(model: Mapping[str, Any]) -> list[str]:
    return [node for rack in model["racks"].values() for node in rack["nodes"]]


def nodes_in(model: Mapping[str, Any], scope: Scope) -> list[str]:
    """The nodes that a scope names, in the contract's order."""
    return [
        node
        for rack, members in model["racks"].items()
        for node in members["nodes"]
        if scope.covers(rack, node)
    ]


def expectation(model: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """What must be seen in the lake once a request is obeyed."""
    level = request["level"]
    return {
        "level": level,
        "scope": request["scope"],
        "nodes": nodes_in(model, scope_from_text(request["scope"])),
        "keep": model["ladder"]["levels"][level]["keep"],
        "marks": marks(model["ladder"], level),
        "window_seconds": window_seconds(model["ladder"], level),
    }


def window_seconds(ladder: Mapping[str, Any], level: str) -> int:
    """How long a name of a higher level must have been silent to count as gone.

    The sampler says at once that its series end, and then they are. What ends without a word (a killed
    sampler, a series that somebody else pushed) would stand in every answer for five minutes more.
    """
    order = list(ladder["order"])
    above = [int(ladder["levels"][name]["period_seconds"]) for name in order[: order.index(level)]]
    return 2 * max(above, default=0) + 5


def recent_names(seconds: int) -> str:
    """The query for names that a node has sent within that time."""
    return f'count by (node, __name__) (last_over_time({{job="node"}}[{seconds}s]))'


# -- what the lake says -----------------------------------------------------------------------------------


def values(answer: Mapping[str, Any]) -> list[tuple[dict[str, str], float]]:
    """The labels and value of each series in the answer to an instant query. Raises ValueError."""
    try:
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
            raise ValueError(str(answer.get("error", "no vector")))
        return [(dict(one["metric"]), float(one["value"][1])) for one in answer["data"]["result"]]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the lake's answer has another form ({type(error).__name__})") from None


def judge(
    expected: Mapping[str, Any],
    generation: int,
    generations: Iterable[tuple[dict[str, str], float]],
    names: Iterable[tuple[dict[str, str], float]],
    recent: Iterable[tuple[dict[str, str], float]],
) -> dict[str, dict[str, Any]]:
    """For each node that was asked: has it reported, does the lake show it, and if not, why."""
    reported: dict[str, int] = {}
    for labels, value in generations:
        node = labels.get("node", "")
        reported[node] = max(reported.get(node, 0), int(value))
    sent: dict[str, dict[str, int]] = {}
    for labels, value in names:
        sent.setdefault(labels.get("node", ""), {})[labels.get("__name__", "")] = int(value)
    fresh = {(labels.get("node", ""), labels.get("__name__", "")) for labels, _ in recent}
    found = {}
    for node in expected["nodes"]:
        has = sent.get(node, {})
        extra = foreign(expected["keep"], [name for name in has if (node, name) in fresh])
        marked = not expected["marks"] or any(name in has for name in expected["marks"])
        reached = reported.get(node, -1) >= generation
        found[node] = {
            "generation": reported.get(node),
            "series": sum(has.values()),
            "reached": reached,
            "shown": reached and marked and not extra,
            "why": _why(reported.get(node), reached, extra, marked, bool(has)),
        }
    return found


def _why(reported: int | None, reached: bool, extra: Sequence[str], marked: bool, sends: bool) -> str:
    if reported is None:
        return "the lake knows no generation of it: its policy process, certificate or rack"
    if not reached:
        return f"still at generation {reported}: it does not hear its rack, or refuses the document"
    if extra:
        more = f" and {len(extra) - 3} more" if len(extra) > 3 else ""
        return f"still sends {', '.join(extra[:3])}{more}: its sampler has not followed"
    if not marked:
        return (
            "sends none of what the level lists: its sampler is down"
            if not sends
            else "sends a lower level's series"
        )
    return ""


def progress(found: Mapping[str, Mapping[str, Any]], level: str) -> str:
    """One line for a person who waits."""
    reached = sum(1 for one in found.values() if one["reached"])
    shown = sum(1 for one in found.values() if one["shown"])
    waiting = [node for node, one in found.items() if not one["shown"]]
    tail = f"; waiting for {', '.join(waiting[:8])}{' …' if len(waiting) > 8 else ''}" if waiting else ""
    return f"{level}: {reached} of {len(found)} nodes report it, {shown} are seen at it{tail}"


# -- the record -------------------------------------------------------------------------------------------


def findings(
    expected: Mapping[str, Any], issued: Mapping[str, Any], seen: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Figures and checks of one rollback or restore, as a report holds them."""
    clamped = issued.get("clamped_at")
    nodes = seen.get("nodes", {})
    stragglers = [f"{node}: {one['why']}" for node, one in nodes.items() if not one["shown"]]
    if seen.get("problem"):
        stragglers.insert(0, f"the lake cannot be asked: {seen['problem']}")
    failed = [
        f"{one['rack']}: {one['outcome']} {one['detail']}".strip()
        for one in issued["racks"]
        if one["outcome"] != "ok"
    ]

    def since(moment: float | None) -> float | None:
        return None if moment is None or clamped is None else round(max(0.0, moment - clamped), 3)

    def check(name: str, got: Any, want: Any) -> dict[str, Any]:
        return {"name": name, "pass": got == want, "got": got, "want": want}

    checks = [
        check("every rack took the document and clamps", failed, []),
        check(
            "every node has reported the generation",
            sum(one["reached"] for one in nodes.values()),
            len(expected["nodes"]),
        ),
        check("the lake shows what the level lists, and nothing else", stragglers, []),
    ]
    return {
        "pass": all(one["pass"] for one in checks),
        "figures": {
            "level": expected["level"],
            "scope": expected["scope"],
            "generation": issued["generation"],
            "nodes": len(expected["nodes"]),
            "seconds_to_clamp": issued["seconds_to_clamp"],
            "seconds_to_converge": since(seen.get("reached_at")),
            "seconds_to_show": since(seen.get("shown_at")),
            "seconds_to_issue": issued["seconds"],
            "command_seconds": round(seconds, 1),
            "series": {node: one["series"] for node, one in nodes.items()},
        },
        "checks": checks,
        "stragglers": stragglers,
        "racks_failed": failed,
    }
