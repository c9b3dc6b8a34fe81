"""From a question to the form that a store gets: which tier, which bounds, which wall (Q2, Q5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import promql
from .config import Bounds, Config, Identity, Tier
from .moments import moment, nice_step, plain, span, spoken
from .promql_tree import Matcher, Node, Place, Selector, Unreadable, parse
from .refusal import Refused

Fields = tuple[tuple[str, str], ...]
_SELECTORS = 20
_METADATA_SPAN = 3600.0


@dataclass(frozen=True)
class Ask:
    """A question for series, read. `step` 0 is an instant query at `end`."""

    text: str
    start: float
    end: float
    step: float = 0.0
    timeout: float = 0.0  # 0: the bound's
    tier: str = ""  # "": chosen by range

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Count:
    """What is counted before the question runs: the series that its selectors match."""

    fields: Fields
    limit: int


@dataclass(frozen=True)
class Plan:
    """All that leaves for a store. Nothing else of a question is ever sent."""

    source: str  # a tier's name, or "logs"
    raw: bool
    urls: tuple[str, ...]
    path: str
    fields: Fields
    bytes: int
    seconds: float
    count: Count | None = None
    items: int = 0  # more rows of metadata than these are refused; 0: no such bound
    get: bool = False  # Prometheus answers label values by GET alone
    degraded: bool = False


def ask_instant(values: Mapping[str, str], now: float) -> Ask:
    at = moment("time", values["time"], now) if "time" in values else now
    return Ask(values["query"], at, at, 0.0, _timeout(values), values.get("tier", ""))


def ask_range(values: Mapping[str, str], now: float) -> Ask:
    start, end = moment("start", values["start"], now), moment("end", values.get("end", "now"), now)
    if end < start:
        raise Refused(400, "time", "end lies before start: exchange them")
    return Ask(
        values["query"], start, end, span("step", values["step"]), _timeout(values), values.get("tier", "")
    )


def _timeout(values: Mapping[str, str]) -> float:
    return span("timeout", values["timeout"]) if "timeout" in values else 0.0


def plan_query(
    config: Config, identity: Identity, ask: Ask, now: float, degraded: bool = False, job: bool = False
) -> Plan:
    """The first tier, finest first, that keeps the time asked for and may answer it."""
    tree: Node | str
    try:
        tree = parse(ask.text)
    except Unreadable as problem:
        tree = str(problem)
    else:
        promql.forbid_writing(tree, identity.wall_labels)
    tiers = candidates(config, identity, ask.tier, degraded, job)
    said: Refused | None = None
    for number, tier in enumerate(tiers):
        try:
            plan = _in_tier(identity, tier, tree, ask, now, job, degraded, last=number == len(tiers) - 1)
        except Refused as problem:
            said = problem
            continue
        if plan:
            return plan
    assert said is not None  # the last tier answers or refuses
    if not job and said.reason in ("range", "points") and _as_job(config, identity, ask, now, degraded):
        said = Refused(
            said.status, said.reason, f"{said.text}; as a job (POST /api/v1/jobs) it passes as it is"
        )
    raise said


def _as_job(config: Config, identity: Identity, ask: Ask, now: float, degraded: bool) -> bool:
    try:
        return bool(plan_query(config, identity, ask, now, degraded, job=True))
    except Refused:
        return False


def candidates(
    config: Config, identity: Identity, wanted: str, degraded: bool, job: bool = False
) -> Sequence[Tier]:
    bounds = identity.job_bounds if job else identity.bounds
    tiers = [tier for tier in config.tiers if tier.name in bounds and not (job and tier.raw)]
    if wanted and wanted not in [tier.name for tier in tiers]:
        names = ", ".join(tier.name for tier in tiers) or "none"
        raise Refused(403, "tier", f"tier {wanted[:40]!r} is not yours to ask: {names} would pass")
    if degraded:
        # D5 holds for everybody, whatever tier was wished for.
        tiers = [tier for tier in tiers if tier.name == config.degraded_tier]
    elif wanted:
        tiers = [tier for tier in tiers if tier.name == wanted]
    if not tiers:
        raise Refused(403, "tier", "no tier is open to this certificate now")
    return tiers


def _in_tier(
    identity: Identity,
    tier: Tier,
    tree: Node | str,
    ask: Ask,
    now: float,
    job: bool,
    degraded: bool,
    last: bool,
) -> Plan | None:
    """None where a later tier keeps longer; the last one answers with what there is."""
    bounds = (identity.job_bounds if job else identity.bounds)[tier.name]
    count = None
    if isinstance(tree, str):
        bounds = _strictest(bounds, identity.strict, tier, tree)
        text, reach, inner = ask.text, promql.Reach(ask.start, ask.end), 0
    else:
        if tier.engine == "prometheus":
            _no_alternatives(tree, tier)
        reach = promql.reach(tree, ask.start, ask.end, tier.resolution_seconds)
        inner = reach.inner_points
        text = promql.write(tree, tier.resolution_seconds, injected(identity, tier))
    if not last and reach.earliest < now - tier.retention_seconds:
        return None
    check(bounds, tier, reach.widest, ask, inner)
    if not isinstance(tree, str):
        count = _count(identity, tier, promql.selectors(tree), reach, bounds)
    seconds = min(ask.timeout or bounds.seconds, bounds.seconds)
    fields: list[tuple[str, str]] = [("query", text)]
    if ask.step:
        fields += [("start", plain(ask.start)), ("end", plain(ask.end)), ("step", plain(ask.step))]
    else:
        fields.append(("time", plain(ask.end)))
        if tier.engine == "victoriametrics" and tier.resolution_seconds > 150:
            # Its instant queries look back by `step`, 5 minutes unless said: no hourly sample is that near.
            fields.append(("step", plain(2 * tier.resolution_seconds)))
    fields.append(("timeout", f"{plain(seconds)}s"))
    path = "/api/v1/query_range" if ask.step else "/api/v1/query"
    return Plan(
        tier.name, tier.raw, tier.urls, path, (*fields, *wall(identity, tier)), bounds.bytes, seconds, count,
        degraded=degraded,
    )  # fmt: skip


def _strictest(bounds: Bounds, strict: Bounds | None, tier: Tier, why: str) -> Bounds:
    """A text that nobody here can read has no known reach: only a store with its own wall may run it."""
    if strict is None or tier.engine == "prometheus":
        raise Refused(
            422, "expression", f"not readable as PromQL ({why}), so it cannot be bounded: write PromQL"
        )
    return Bounds(**{name: min(one, getattr(strict, name)) for name, one in asdict(bounds).items()})


def _no_alternatives(tree: Node, tier: Tier) -> None:
    if any(one.alternatives for one in promql.selectors(tree)):
        raise Refused(
            422, "expression", f'tier {tier.name} knows no `or` between matchers: =~"a|b" would pass'
        )


def injected(identity: Identity, tier: Tier) -> Sequence[Matcher]:
    """Prometheus has no filter of its own: there the wall stands in every selector of the tree."""
    return identity.wall[0] if tier.engine == "prometheus" and identity.wall else ()


def wall(identity: Identity, tier: Tier) -> Fields:
    """The store's own filter, by which it narrows every selector: alternatives of matchers that all hold."""
    if tier.engine == "prometheus" or identity.wall is None:
        return ()
    return tuple(("extra_filters[]", _filter(alternative)) for alternative in identity.wall)


def _filter(matchers: Sequence[Matcher]) -> str:
    return promql.write_selector(Selector("", tuple(matchers), (), Place()))


def check(bounds: Bounds, tier: Tier, reads: float, ask: Ask, inner_points: int = 0) -> None:
    width = ask.end - ask.start
    if max(reads, width) > bounds.range_seconds:
        raise Refused(
            422,
            "range",
            f"{spoken(max(reads, width))} of tier {tier.name} would be read, {spoken(bounds.range_seconds)} "
            f"may: a range (with windows and offsets) of {spoken(bounds.range_seconds)} would pass",
        )
    points = int(width / ask.step) + 1 if ask.step else 1
    if points > bounds.points:
        step = nice_step(width / max(1, bounds.points - 1))
        raise Refused(
            422,
            "points",
            f"range {spoken(width)} at step {spoken(ask.step)} is {points:,} points, {bounds.points:,} may; "
            f"step {spoken(step)} would pass",
        )
    if inner_points > bounds.points:
        raise Refused(
            422,
            "points",
            f"a subquery makes {inner_points:,} points, {bounds.points:,} may: a longer step inside "
            "its brackets or a shorter range would pass",
        )


def _count(
    identity: Identity, tier: Tier, found: Sequence[Selector], reach: promql.Reach, bounds: Bounds
) -> Count | None:
    texts = sorted({promql.write_selector(one, injected(identity, tier)) for one in found})
    if not texts:
        return None
    if len(texts) > _SELECTORS:
        raise Refused(
            422, "series", f"{len(texts)} different selectors, {_SELECTORS} may be: split the question"
        )
    ends = (("start", plain(max(0.0, reach.earliest))), ("end", plain(max(0.0, reach.latest))))
    fields = (*(("match[]", text) for text in texts), *ends, ("limit", str(bounds.series + 1)))
    return Count((*fields, *wall(identity, tier)), bounds.series)


def plan_metadata(
    config: Config, identity: Identity, path: str, values: Mapping[str, str], limit: int | None,
    now: float, degraded: bool = False,
) -> Plan:  # fmt: skip
    """Labels, label values and series: from one tier, behind the same wall."""
    end = moment("end", values["end"], now) if "end" in values else now
    start = moment("start", values["start"], now) if "start" in values else max(0.0, end - _METADATA_SPAN)
    if end < start:
        raise Refused(400, "time", "end lies before start: exchange them")
    tree: Selector | None = None
    if "match[]" in values:
        try:
            found = parse(values["match[]"])
        except Unreadable as problem:
            raise Refused(400, "expression", f"match[]: no selector ({problem})") from None
        if not isinstance(found, Selector) or found.range or found.place != Place():
            raise Refused(400, "expression", "match[]: a selector alone, without range, offset or @")
        tree = found
    ask = Ask("", start, end, 0.0, 0.0, values.get("tier", ""))
    tiers = candidates(config, identity, ask.tier, degraded)
    tier = next((one for one in tiers if start >= now - one.retention_seconds), tiers[-1])
    bounds = identity.bounds[tier.name]
    check(bounds, tier, 0.0, ask)
    most = min(limit, bounds.series) if limit else bounds.series
    items = 0 if limit and limit <= bounds.series else most
    fields: list[tuple[str, str]] = []
    if tree is not None:
        if tier.engine == "prometheus":
            _no_alternatives(tree, tier)
        fields.append(("match[]", promql.write_selector(tree, injected(identity, tier))))
    elif tier.engine == "prometheus" and identity.wall:
        fields.append(("match[]", _filter(identity.wall[0])))
    fields += [("start", plain(start)), ("end", plain(end)), ("limit", str(most + 1 if items else most))]
    if tier.engine == "victoriametrics":
        fields.append(("timeout", f"{bounds.seconds}s"))
    return Plan(
        tier.name, tier.raw, tier.urls, path, (*fields, *wall(identity, tier)), bounds.bytes, bounds.seconds,
        items=items, get=path.endswith("/values"), degraded=degraded,
    )  # fmt: skip
