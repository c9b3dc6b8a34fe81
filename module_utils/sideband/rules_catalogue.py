"""Rules about the catalogue and the labels: names, kinds and periods under change control (A2, A3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from . import whose
from .catalogue import RECEIVERS_OWN, entry_of, overlaps
from .errors import Error, got, nearest
from .facts import Facts, rule
from .load import SITE
from .model import Level, parse_levels, parse_tiers
from .units import duration_seconds

CORE = "core"


def _entries(facts: Facts) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = facts.optional("catalogue", {}).get("metrics", [])
    return entries


@rule("catalogue")
def entries(facts: Facts) -> Iterator[Error]:
    periods = facts.optional("catalogue", {}).get("periods", {})
    seen: set[str] = set()
    for entry in _entries(facts):
        path = f"sideband_catalogue.metrics[{entry['name']}]"
        if entry["name"] in seen:
            hint = "each metric stands once; merge the two"
            yield Error(SITE, f"{path}.name", "is the name of two metrics", got(entry["name"]), hint)
        seen.add(entry["name"])
        if entry["period"] not in periods:
            hint = nearest(entry["period"], periods, "periods: ") if periods else "add it to periods"
            problem = "is no class of sideband_catalogue.periods"
            yield Error(SITE, f"{path}.period", problem, got(entry["period"]), hint)
        if entry["kind"] == "mixed" and not entry["name"].endswith("*"):
            hint = "one metric is a gauge or a counter; mixed is for a beginning with *"
            yield Error(SITE, f"{path}.kind", "is mixed for one name", got("mixed"), hint)
        if entry["kind"] == "gauge" and entry["name"].endswith("_total"):
            hint = "names that end in _total are counters; correct the kind or the name"
            yield Error(
                SITE, f"{path}.kind", "is a gauge by its kind and a counter by its name", got("gauge"), hint
            )

        single = not entry["name"].endswith(("_total", "*"))
        if entry["kind"] == "counter" and single and not entry.get("keep"):
            hint = (
                "counters are known by _total; say what tiers keep: keep: {<tier>: {statistics: [increase]}}"
            )
            problem = "is a counter by its kind and none by its name"
            yield Error(SITE, f"{path}.kind", problem, got("counter"), hint)


@rule("catalogue", "tiers")
def kept(facts: Facts) -> Iterator[Error]:
    tiers = [tier.name for tier in parse_tiers(facts.noun("tiers"))]
    strange: dict[str, list[str]] = {}
    for entry in _entries(facts):
        for tier, kept in entry.get("keep", {}).items():
            path = f"sideband_catalogue.metrics[{entry['name']}].keep.{tier}"
            said = kept["statistics"]
            if tier not in tiers:
                strange.setdefault(tier, []).append(path)
                continue
            if tier == tiers[0]:
                hint = "the finest tier takes every sample as it comes; remove it, or name a coarser tier"
                yield Error(SITE, path, "names the finest tier", got(tier), hint)
            yield from _composable(f"{path}.statistics", entry["kind"], said)
    for tier, paths in strange.items():
        more = f", here and in {len(paths) - 1} more" if len(paths) > 1 else ""
        problem = f"is no tier of sideband_tiers{more}"
        yield Error(SITE, paths[0], problem, got(tier), nearest(tier, tiers, "tiers: "))


@rule("catalogue")
def whom(facts: Facts) -> Iterator[Error]:
    """Racks and regions tell the kinds apart by name: no name may be of two kinds."""
    listed = [(entry["name"], entry.get("of", whose.NODE)) for entry in _entries(facts)]
    for number, (name, of) in enumerate(listed):
        for other, others in listed[:number]:
            if of != others and overlaps(name, other):
                hint = f"give both the same, or {other} names of its own"
                problem = f"tells of a {of}, and {other} of a {others}"
                yield Error(SITE, f"sideband_catalogue.metrics[{name}].of", problem, got(of), hint)
                break


def _composable(path: str, kind: str, said: list[str]) -> Iterator[Error]:
    if kind == "gauge" and "increase" in said:
        hint = "a gauge goes down too; keep sum_samples, count_samples, min or max"
        yield Error(SITE, path, "has the increase of a gauge", got("increase"), hint)
    wrong = [one for one in said if one not in ("increase", whose.SAMPLES)]
    if kind == "counter" and wrong:
        yield Error(
            SITE, path, "has more than the increase of a counter", got(wrong[0]), "keep increase only"
        )
    if whose.SAMPLES in said and len(said) > 1:
        hint = "samples are all there is to keep; leave them alone, or out"
        yield Error(SITE, path, "has samples and what is made of them", got(said), hint)
    if ("sum_samples" in said) != ("count_samples" in said):
        hint = "a mean is their ratio: keep both, or neither"
        yield Error(SITE, path, "has one of sum_samples and count_samples", got(said), hint)


@rule("catalogue", "ladder")
def listed(facts: Facts) -> Iterator[Error]:
    """A name that nobody priced cannot reach a node."""
    metrics = _entries(facts)
    periods = facts.optional("catalogue", {}).get("periods", {})
    if not metrics or any(entry["period"] not in periods for entry in metrics):
        return
    levels = parse_levels(facts.noun("ladder"))
    low = [level.name for level in levels]
    low = low[low.index(CORE) :] if CORE in low else low[-1:]
    for level in levels:
        path = f"sideband_ladder.levels[{level.name}]"
        for metric in level.metrics:
            entry = entry_of(metrics, metric)
            if entry is None:
                hint = (
                    nearest(metric, [one["name"] for one in metrics], "")
                    or "add it there first, with its class"
                )
                yield Error(
                    SITE, f"{path}.metrics", "is in no entry of sideband_catalogue", got(metric), hint
                )
                continue
            if level.name in low and entry["class"] != CORE:
                hint = "list core metrics only, or make it core in the catalogue (D2)"
                problem = f"lists a metric of class {entry['class']} at level {level.name}"
                yield Error(SITE, f"{path}.metrics", problem, got(metric), hint)
        yield from _too_often(level, metrics, periods)


def _too_often(level: Level, metrics: list[dict[str, Any]], periods: dict[str, str]) -> Iterator[Error]:
    for period, text in periods.items():
        names = [
            entry["name"]
            for entry in metrics
            if entry["period"] == period and any(overlaps(entry["name"], metric) for metric in level.metrics)
        ]
        if names and level.period < duration_seconds(text):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield Error(
                SITE,
                f"sideband_ladder.levels[{level.name}].period",
                f"is too short for {names[0]}{more}",
                got(f"{level.period}s"),
                f"lengthen it, or shorten the class {period} ({text})",
            )


@rule("labels")
def labels(facts: Facts) -> Iterator[Error]:
    seen: set[str] = set()
    for label in facts.optional("labels", []):
        path = f"sideband_labels[{label['name']}]"
        if label["name"] in seen:
            hint = "each label stands once; merge the two"
            yield Error(SITE, f"{path}.name", "is the name of two labels", got(label["name"]), hint)
        seen.add(label["name"])
        if label["name"] == "tenant":
            hint = "remove it; its values are the names of sideband_tenants"
            yield Error(SITE, f"{path}.name", "is no label to list", got("tenant"), hint)
        if label["name"] in RECEIVERS_OWN or label["name"].startswith("__"):
            hint = "remove it; receivers drop it as sent and set their own (B5)"
            yield Error(SITE, f"{path}.name", "is a label that receivers set", got(label["name"]), hint)
        long = [value for value in label.get("values", ()) if len(value.encode()) > label["max_length"]]
        if long:
            hint = f"raise max_length ({label['max_length']}), or shorten the value"
            yield Error(SITE, f"{path}.values", "has a value longer than max_length", got(long[0]), hint)
        if re.fullmatch(r"\^?\.[*+]\$?", label.get("pattern", "")):
            hint = "say which values there are, for example [a-z0-9-]{1,32}"
            yield Error(SITE, f"{path}.pattern", "admits any value", got(label["pattern"]), hint)
        if "pattern" in label and "max_values" not in label:
            hint = "how many values one node may have of it; a pattern alone bounds no cardinality (A2)"
            yield Error(SITE, f"{path}.max_values", "is missing", hint=hint)


@rule("catalogue", "labels")
def dimensions(facts: Facts) -> Iterator[Error]:
    known = [label["name"] for label in facts.optional("labels", [])]
    for entry in _entries(facts):
        for tier, kept in entry.get("keep", {}).items():
            for dimension in kept.get("dimensions", ()):
                path = f"sideband_catalogue.metrics[{entry['name']}].keep.{tier}.dimensions"
                of = entry.get("of", whose.NODE)
                if dimension in RECEIVERS_OWN or (of != whose.NODE and dimension in whose.LABELS):
                    hint = (
                        "node, rack and site always survive, and job and tenant of GPUs and jobs; remove it"
                    )
                    yield Error(SITE, path, "names what is kept anyway", got(dimension), hint)
                elif dimension not in known:
                    hint = nearest(dimension, known, "") or "add it there first, with its values"
                    yield Error(SITE, path, "is no label of sideband_labels", got(dimension), hint)
