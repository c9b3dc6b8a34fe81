"""The page of a verify run: who may speak to whom, as a matrix that a person can read. Pure; one file without
anything from elsewhere."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .verify_checks import Verdict
from .verify_judge import FAIL, OBSERVED, PASS, UNTESTED, Outcome
from .verify_page_style import SCRIPT, STYLE
from .verify_pairs import Pair, Plan

Record = dict[str, Any]
WAY = ("node", "rack", "region", "lake", "logs", "gateway", "alerts", "archive", "policy")
MOST_HIT = 50  # more than anybody reads
STATES = {PASS: "as foretold", FAIL: "not so", OBSERVED: "observed, not dropped", UNTESTED: "not tested"}


def esc(value: object) -> str:
    return html.escape(str(value), quote=True)


def render(model: Mapping[str, Any], plan: Plan, verdict: Verdict, about: Mapping[str, str]) -> str:
    """`about`: commit, when, versions, for the foot."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{esc(title(model, verdict))}</title>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style>",
        _head(model, verdict),
        _causes(verdict),
        _matrix(plan, verdict),
        _flows(model, verdict),
        _tables(verdict),
        _foot(model, about),
        f"<script>const TOLD={_told(verdict)};{SCRIPT}</script></html>",
    ]
    return "\n".join(parts) + "\n"


def title(model: Mapping[str, Any], verdict: Verdict) -> str:
    return f"{model['site']}: planes {'hold' if verdict.passed else 'do NOT hold'}"


def _head(model: Mapping[str, Any], verdict: Verdict) -> str:
    f = verdict.figures
    marked = f["dscp_expected"]
    made, proved = f["positive"] - f["positive_failed"], f["negative"] - f["negative_without_counter"]
    tiles = [
        (f"{f['pairs_tested']}/{f['pairs_expected']}", "pairs tested", f["pairs_untested"] == 0),
        (f"{made}/{f['positive']}", "connections made", made == f["positive"]),
        (f"{proved}/{f['negative']}", "refusals proved", proved == f["negative"]),
        (f"{f['dscp_seen']}/{marked}", "DSCP seen", f["dscp_seen"] == marked),
        (f"{f['seconds']:g} s", "taken", True),
    ]
    word = "hold" if verdict.passed else "do not hold"
    cards = "".join(
        f"<div class='tile {'' if good else 'bad'}'><b>{esc(value)}</b><span>{esc(name)}</span></div>"
        for value, name, good in tiles
    )
    return (
        f"<header class={'good' if verdict.passed else 'bad'}><div>"
        f"<p class=kicker>site {esc(model['site'])}</p><h1>The planes {word}</h1>"
        "<p class=lead>Every host tried to reach every other, on every plane, over IPv4 and IPv6: "
        "what the contract allows must connect, all else must be dropped and counted.</p></div>"
        f"<div class=tiles>{cards}</div></header>"
    )


def _causes(verdict: Verdict) -> str:
    if not verdict.causes:
        return ""
    items = "".join(
        f"<li><b>{esc(cause.text)}</b>"
        + (f"<span>{esc(cause.hint)}</span>" if cause.hint else "")
        + (f"<em>{_where(cause.cells)}</em>" if cause.cells else "")
        for cause in verdict.causes[:40]
    )
    more = f"<p>and {len(verdict.causes) - 40} more in verify.json</p>" if len(verdict.causes) > 40 else ""
    return f"<section class=causes><h2>Why</h2><ol>{items}</ol>{more}</section>"


def _where(pairs: Sequence[Pair]) -> str:
    named = esc(pairs[0])
    return named if len(pairs) == 1 else f"{len(pairs)} cells, the first: {named}"


def _ordered(plan: Plan, names: Iterable[str]) -> list[str]:
    """Hosts in the order of the data's way, those outside the contract last."""
    order = {word: at for at, word in enumerate(WAY)}

    def place(name: str) -> tuple[int, str]:
        words = plan.hosts[name]["words"]
        return min((order.get(word, len(order)) for word in words), default=len(order) + 1), name

    return sorted(names, key=place)


def _columns(plan: Plan) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {
        name: [] for name in _ordered(plan, {pair.destination for pair in plan.pairs})
    }
    for pair in plan.pairs:
        planes = columns[pair.destination]
        if pair.plane not in planes:
            planes.append(pair.plane)
    return columns


def _matrix(plan: Plan, verdict: Verdict) -> str:
    columns = _columns(plan)
    hosts = "".join(f"<th colspan={len(planes)} class=host>{esc(name)}" for name, planes in columns.items())
    planes = "".join(
        f"<th class='plane {'edge' if not at else ''}'><span>{esc(plane)}</span>"
        for mine in columns.values()
        for at, plane in enumerate(mine)
    )
    rows = []
    for source in _ordered(plan, {pair.source for pair in plan.pairs}):
        cells = "".join(
            _cell(verdict, source, name, plane, not at)
            for name, mine in columns.items()
            for at, plane in enumerate(mine)
        )
        rows.append(f"<tr><th class=source>{esc(source)}{cells}")
    legend = "".join(
        f"<li><i class='half {kind}'></i>{esc(words)}"
        for kind, words in (
            ("pass open", "connects, as the contract allows"),
            ("pass", "refused and counted"),
            ("observed", "observed: counted, not dropped"),
            ("fail", "not as the contract says"),
            ("untested", "not tested"),
        )
    )
    return (
        f"<section><h2>From (rows) to (columns)</h2><ul class=legend>{legend}"
        "<li class=note>left half IPv4, right half IPv6; point at a cell, or click to keep it</ul>"
        "<div class=scroll><table class=matrix><thead><tr><th rowspan=2 class=corner>"
        f"{hosts}<tr>{planes}<tbody>{''.join(rows)}</table></div><aside id=told hidden></aside></section>"
    )


def _cell(verdict: Verdict, source: str, name: str, plane: str, first: bool) -> str:
    edge = "edge" if first else ""
    if source == name:
        return f"<td class='self {edge}'>"
    halves = ""
    for family in (4, 6):
        pair = Pair(source, name, plane, family)
        if pair in verdict.cells:
            state, mine = verdict.cells[pair]
            opened = "open" if any(one.probe.positive for one in mine) else ""
            cause = next((one.cause for one in mine if one.cause), STATES[state])
            halves += (
                f"<i class='half {state} {opened}' tabindex=0 data-p='{esc(pair)}' "
                f"title='{esc(pair)}: {esc(cause)}'></i>"
            )
        else:
            halves += "<i class='half none'></i>"
    return f"<td class='{edge}'>{halves}"


def _told(verdict: Verdict) -> str:
    """What a cell tells: a line for each kind of probe."""
    found: dict[str, list[list[str]]] = {}
    for pair, (_, mine) in verdict.cells.items():
        lines: dict[tuple[str, str, str], int] = {}
        for one in mine:
            key = (one.state, _words(one), one.cause + (f"; {one.hint}" if one.hint else ""))
            lines[key] = lines.get(key, 0) + 1
        found[str(pair)] = [
            [state, words + (f" ×{n}" if n > 1 else ""), why] for (state, words, why), n in lines.items()
        ]
    return json.dumps(found, ensure_ascii=False).replace("<", "\\u003c")


def _words(one: Outcome) -> str:
    probe = one.probe
    if probe.positive:
        what = {"site": "the site's own", "pass": "left alone"}.get(probe.kind, f"flow {probe.flow}")
        return f"connects to port {probe.port} ({what})"
    if probe.expect == "nowhere":
        return f"frame from {probe.leaves.device} does not cross segments"
    shape = {"syn": "SYN", "ack": "bare ACK", "udp": "UDP"}[probe.shape]
    return f"{shape} to port {probe.port} ({probe.kind}): {probe.catcher.host} {probe.counter}"


def _flows(model: Mapping[str, Any], verdict: Verdict) -> str:
    marks = {one["name"]: one["pass"] for one in verdict.checks if one["name"].startswith("dscp ")}

    def mark(flow: str, family: int, way: str) -> str:
        name = f"dscp {flow} ipv{family} {way}"
        return f"<td>{_tick(marks[name])}" if name in marks else "<td class=dim>–"

    rows = "".join(
        f"<tr><th>{esc(f['name'])}<td>{esc(f['from'].removeprefix('sideband_'))} → "
        f"{esc(f['to'].removeprefix('sideband_'))}<td>{esc(f['plane'])}<td>{f['port']}<td>{esc(f['dscp'])}"
        + "".join(mark(f["name"], family, way) for family in (4, 6) for way in ("out", "back"))
        for f in model["flows"]
    )
    return (
        "<section><h2>Flows, and their DSCP at the far end</h2><table class=list><thead>"
        "<tr><th>flow<th>who<th>plane<th>port<th>DSCP<th>IPv4 out<th>back<th>IPv6 out<th>back"
        f"<tbody>{rows}</table></section>"
    )


def _tables(verdict: Verdict) -> str:
    counters = [one for one in verdict.checks if one["name"].startswith("counter ")]
    rest = [one for one in verdict.checks if not one["name"].startswith(("counter ", "pair ", "dscp "))]
    observed = [
        {"name": name, "pass": True, "got": count, "want": "would be dropped"}
        for name, count in verdict.observed.items()
    ]
    hit = [
        {"name": who, "pass": True, "got": packets, "want": "would be dropped"}
        for who, _, packets in (line.rpartition(": ") for line in verdict.hit[:MOST_HIT])
    ]
    return (
        "<div class=columns>"
        + _list(
            "Counters", "counter", [{**one, "name": one["name"].removeprefix("counter ")} for one in counters]
        )
        + (_list("Planes that only observe", "counter", observed) if observed else "")
        + (_list("Whom enforcing would hit", "host, source and port", hit) if hit else "")
        + _list("Training nodes and data", "check", rest)
        + "</div>"
    )


def _list(head: str, first: str, checks: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td>{_tick(one['pass'])}<th>{esc(one['name'])}<td>{esc(_short(one['got']))}<td>{esc(_short(one['want']))}"
        for one in sorted(checks, key=lambda one: bool(one["pass"]))
    )
    return (
        f"<section><h2>{esc(head)}</h2><table class=list><thead><tr><th><th>{esc(first)}<th>got<th>want"
        f"<tbody>{rows}</table></section>"
    )


def _short(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or "none"
    return str(value)


def _tick(good: object) -> str:
    return "<span class=yes>✓</span>" if good else "<span class=no>✗</span>"


def _foot(model: Mapping[str, Any], about: Mapping[str, str]) -> str:
    lines: Iterable[str] = (f"{esc(key)} {esc(value)}" for key, value in about.items() if value)
    return f"<footer>{' · '.join(lines)} · contract {esc(model['digest'][:12])}</footer>"
