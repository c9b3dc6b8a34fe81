"""The nouns `catalogue` and `labels`: which metrics there are, and what a tier keeps of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import whose
from .units import duration_seconds

# Receivers set these themselves, whatever a sender says, and every tier keeps them.
RECEIVERS_OWN = ("node", "rack", "site")
# What the region makes of a metric that no entry restricts.
COUNTER_STATISTICS = ("increase",)
GAUGE_STATISTICS = ("sum_samples", "count_samples", "min", "max")
# What is left of a GPU's labels where a job's GPUs are added up.
OF_A_JOB = ("site", "tenant", "job")


def parse(noun: Mapping[str, Any] | None) -> dict[str, Any]:
    given = noun or {}
    periods = {name: duration_seconds(text) for name, text in given.get("periods", {}).items()}
    return {
        "periods": periods,
        "metrics": [
            {
                "name": entry["name"],
                "class": entry["class"],
                "kind": entry["kind"],
                "of": entry.get("of", whose.NODE),
                "period_seconds": periods.get(entry["period"], 0),
                "series": entry.get("series", 0),
                "keep": {
                    tier: {"statistics": list(kept["statistics"]), "dimensions": kept.get("dimensions")}
                    for tier, kept in entry.get("keep", {}).items()
                },
            }
            for entry in given.get("metrics", ())
        ],
    }


def parse_labels(noun: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    return [
        {
            "name": label["name"],
            "values": list(label.get("values", ())),
            "pattern": label.get("pattern", ""),
            "max_length": label["max_length"],
            "max_values": label.get("max_values", len(label.get("values", ()))),
        }
        for label in noun or ()
    ]


def covers(pattern: str, metric: str) -> bool:
    """Whether an entry's name takes a level's name or pattern whole."""
    return metric.startswith(pattern[:-1]) if pattern.endswith("*") else metric == pattern


def overlaps(pattern: str, metric: str) -> bool:
    """Whether the two have any name in common."""
    return covers(pattern, metric) or covers(metric, pattern)


def entry_of(metrics: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """The entry that holds for a name: the longest that takes it."""
    fitting = [entry for entry in metrics if covers(entry["name"], name)]
    return max(fitting, key=lambda entry: len(entry["name"].rstrip("*")), default=None)


def statistics(entry: Mapping[str, Any] | None, name: str, tier: str) -> Sequence[str]:
    """What a downsampled tier keeps of a metric; of names of both kinds, what a gauge has."""
    if entry and tier in entry["keep"]:
        kept: Sequence[str] = entry["keep"][tier]["statistics"]
        return kept
    counter = entry["kind"] == "counter" if entry else name.endswith("_total")
    return COUNTER_STATISTICS if counter else GAUGE_STATISTICS


def aggregation(metrics: Sequence[Mapping[str, Any]], tier: str) -> list[dict[str, Any]]:
    """The rules by which a region makes a tier's samples, each name under one: what the catalogue keeps of
    some first, then all other counters (known by their ending) and all other metrics. Beside these, what
    GPUs carry is added up by job (`for_jobs`)."""
    own = [entry for entry in metrics if tier in entry["keep"]]
    rules = []
    for entry in own:
        kept = entry["keep"][tier]
        kinds = _kinds(entry, kept["statistics"])
        by = None if kept["dimensions"] is None else _survivors(entry, kept["dimensions"])
        rules += [_rule([entry["name"]], _longer(metrics, entry), ending, says, by) for ending, says in kinds]
    names = [entry["name"] for entry in own]
    rules += [
        _rule([], names, '=~".+_total"', list(COUNTER_STATISTICS), None),
        _rule([], names, '!~".+_total"', list(GAUGE_STATISTICS), None),
    ]
    return rules + for_jobs(metrics, tier)


def for_jobs(metrics: Sequence[Mapping[str, Any]], tier: str) -> list[dict[str, Any]]:
    """Each job's GPUs together, wherever they are: what is left of them when a job is long over."""
    groups: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for entry in metrics:
        if entry["of"] != whose.GPU:
            continue
        if tier in entry["keep"] or entry["kind"] != "mixed":
            says = list(statistics(entry, entry["name"], tier))
        else:
            says = [*COUNTER_STATISTICS, *GAUGE_STATISTICS]
        for ending, outputs in _kinds(entry, says):
            groups.setdefault((ending, tuple(outputs)), []).append(entry)
    rules = []
    for (ending, kept), entries in groups.items():
        names = [entry["name"] for entry in entries]
        without = {name for entry in entries for name in _longer(metrics, entry)} - set(names)
        rule = _rule(names, sorted(without), ending, list(kept), list(OF_A_JOB), 'job!=""')
        rules.append({**rule, "of_jobs": True})
    return rules


def _kinds(entry: Mapping[str, Any], says: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(what the names end in, statistics): of a beginning that has both kinds, each by its ending."""
    counted = [one for one in says if one == "increase"]
    measured = [one for one in says if one not in ("increase", whose.SAMPLES)]
    kinds: list[tuple[str, list[str]]] = [("", counted or measured)]
    if entry["kind"] == "mixed":
        kinds = [('=~".+_total"', counted), ('!~".+_total"', measured)]
    return [(ending, outputs) for ending, outputs in kinds if outputs]


def _longer(metrics: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> list[str]:
    """The entries that hold for some of this one's names."""
    return [other["name"] for other in metrics if _inside(other["name"], entry["name"])]


def _survivors(entry: Mapping[str, Any], dimensions: Sequence[str]) -> list[str]:
    """A series that lost its tenant on the way would be everybody's."""
    of = () if entry["of"] == whose.NODE else whose.LABELS
    return [*RECEIVERS_OWN, *of, *(name for name in dimensions if name not in of)]


def _inside(name: str, pattern: str) -> bool:
    return name != pattern and covers(pattern, name)


def _rule(
    names: Sequence[str],
    without: Sequence[str],
    ending: str,
    outputs: list[str],
    by: list[str] | None,
    more: str = "",
) -> dict[str, Any]:
    matchers = []
    if names:
        one = len(names) == 1 and not names[0].endswith("*")
        matchers = [f'="{names[0]}"' if one else f'=~"{whose.pattern(names)}"']
    matchers += [ending] if ending else []
    matchers += [f'!~"{whose.pattern(without)}"'] if without else []
    said = [*(f"__name__{matcher}" for matcher in matchers), *([more] if more else [])]
    return {
        "match": "{" + ",".join(said) + "}",
        "outputs": outputs,
        "by": by or [],
        "counter": outputs == list(COUNTER_STATISTICS),
        "of_jobs": False,
    }
