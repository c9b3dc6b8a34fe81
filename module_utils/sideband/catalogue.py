"""The nouns `catalogue` and `labels`: which metrics there are, and what a tier keeps of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .units import duration_seconds

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
