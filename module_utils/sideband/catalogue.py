"""The nouns `catalogue` and `labels`: which metrics there are, and what a tier keeps of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .units import duration_seconds

# Receivers set these themselves, whatever a sender says, and every tier keeps them.
RECEIVERS_OWN = ("node", "rack", "site")
# What the region makes of a metric that no entry restricts.
COUNTER_STATISTICS = ("increase",)
GAUGE_STATISTICS = ("sum_samples", "count_samples", "min", "max")


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
    some first, then all other counters (known by their ending) and all other metrics."""
    own = [entry for entry in metrics if tier in entry["keep"]]
    rules = []
    for entry in own:
        longer = [other["name"] for other in metrics if _inside(other["name"], entry["name"])]
        kept = entry["keep"][tier]
        counted = [one for one in kept["statistics"] if one == "increase"]
        measured = [one for one in kept["statistics"] if one != "increase"]
        kinds: list[tuple[str, list[str]]] = [("", counted or measured)]
        if entry["kind"] == "mixed":
            kinds = [('=~".+_total"', counted), ('!~".+_total"', measured)]
        rules += [
            _rule(entry["name"], longer, ending, says, kept["dimensions"]) for ending, says in kinds if says
        ]
    names = [entry["name"] for entry in own]
    rules += [
        _rule("", names, '=~".+_total"', list(COUNTER_STATISTICS), None),
        _rule("", names, '!~".+_total"', list(GAUGE_STATISTICS), None),
    ]
    return rules


def _inside(name: str, pattern: str) -> bool:
    return name != pattern and covers(pattern, name)


def _rule(
    name: str, without: Sequence[str], ending: str, outputs: list[str], dimensions: list[str] | None
) -> dict[str, Any]:
    matchers = [f'=~"{_regex([name])}"' if name.endswith("*") else f'="{name}"'] if name else []
    matchers += [ending] if ending else []
    matchers += [f'!~"{_regex(without)}"'] if without else []
    return {
        "match": "{" + ",".join(f"__name__{matcher}" for matcher in matchers) + "}",
        "outputs": outputs,
        "by": [] if dimensions is None else [*RECEIVERS_OWN, *dimensions],
        "counter": outputs == list(COUNTER_STATISTICS),
    }


def _regex(names: Sequence[str]) -> str:
    """Metric names need no escaping; the stores anchor by themselves."""
    return "|".join(name.replace("*", ".*") for name in names)
