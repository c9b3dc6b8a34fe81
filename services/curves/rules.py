"""What a line says, by rules that are data: rules/*.yml, compiled into JSON when the archive is built."""

from __future__ import annotations

import json
import math
import pkgutil
import re
from dataclasses import dataclass, field
from typing import Any

from services.curves.record import Line

QUANTITIES = (
    "loss",
    "learning_rate",
    "gradient_norm",
    "samples_per_second",
    "tokens_per_second",
    "step_seconds",
    "data_seconds",
    "validation",
)
UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0,
         "k": 1e3}  # fmt: skip
# Words that rules share. {number} also takes NaN and Inf: an alert needs to see those.
WORDS = {
    "{number}": (
        r"(?:tensor\()?(?P<value>[-+]?(?:"
        r"\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|(?:nan|inf(?:inity)?)\b))"
    ),
    "{is}": r"(?: ?[=:])?\s{0,4}",
    # Without = or : only before what looks like a measured number: "data 12 of 40" is none.
    "{measured}": r"(?: ?[=:]\s{0,4}|\s{1,4}(?=\d{1,12}(?:\.\d|ms)))",
}
_STEP_MAX = 2**53  # beyond it a float64 holds no whole numbers
_NAME = re.compile(r"[^A-Za-z0-9_.:/@-]+")
NAME_LENGTH = 64


@dataclass
class Reading:
    """What one line says: a step, if it names one, quantities, and events by kind."""

    step: int | None = None
    values: dict[str, float] = field(default_factory=dict)  # validation scores as validation/NAME
    events: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()  # of the values, what stands on every line until it changes

    def __bool__(self) -> bool:
        return bool(self.values or self.events)


@dataclass(frozen=True)
class Take:
    quantity: str
    pattern: re.Pattern[str]
    scale: float
    invert: bool
    name: str
    shown: bool


@dataclass(frozen=True)
class Rule:
    framework: str
    needle: str  # a word that every such line holds: most lines are turned away by it alone
    pattern: re.Pattern[str]
    bar: re.Pattern[str] | None  # where a progress bar on the same line holds the step
    takes: tuple[Take, ...]
    event: str


def expression(text: str) -> re.Pattern[str]:
    for word, meaning in WORDS.items():
        text = text.replace(word, meaning)
    return re.compile(text, re.IGNORECASE | re.ASCII)


class Rules:
    def __init__(self, compiled: list[dict[str, Any]]) -> None:
        self._rules = [
            Rule(
                framework=rule["framework"],
                needle=rule["needle"],
                pattern=expression(rule["line"]),
                bar=expression(rule["bar"]) if rule.get("bar") else None,
                takes=tuple(
                    Take(
                        take["quantity"],
                        expression(take["pattern"]),
                        float(take.get("scale", 1)),
                        bool(take.get("invert", False)),
                        take.get("name", ""),
                        bool(take.get("shown", False)),
                    )
                    for take in rule.get("take", ())
                ),
                event=rule.get("event", ""),
            )
            for rule in compiled
        ]

    def read(self, line: Line) -> Reading:
        """Events of every rule that sees one; quantities of the first rule that finds any."""
        reading = Reading()
        events = []
        folded = line.text.lower()
        for rule in self._rules:
            if rule.needle not in folded or (rule.takes and reading.values):
                continue
            found = rule.pattern.search(line.text)
            if found is None:
                continue
            if rule.event:
                events.append(rule.event)
                continue
            values, shown = _values(rule, line.text)
            if values:
                reading.values, reading.shown = values, shown
                reading.step = _step(found)
                if reading.step is None and rule.bar is not None:
                    reading.step = _bar_step(rule.bar, line.before)
        reading.events = tuple(dict.fromkeys(events))
        return reading


def _values(rule: Rule, text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    values: dict[str, float] = {}
    shown: list[str] = []
    for take in rule.takes:
        for found in take.pattern.finditer(text):
            named = found.groupdict()
            value = _number(named["value"], take, named.get("unit"))
            key = take.quantity
            if key == "validation":
                name = _NAME.sub("_", take.name or named.get("name") or "").strip("_")[:NAME_LENGTH]
                key = f"validation/{name}"
                if not name:
                    continue
            elif key in values:
                break  # the first of a line: later ones are averages, or other things
            if value is not None and key not in values:
                values[key] = value
                if take.shown:
                    shown.append(key)
    return values, tuple(shown)


def _number(text: str, take: Take, unit: str | None) -> float | None:
    value = float(text)
    if take.invert:
        if value == 0 or not math.isfinite(value):
            return None
        value = 1 / value
    return value * take.scale * (UNITS.get(unit.lower(), 1.0) if unit else 1.0)


def _step(found: re.Match[str]) -> int | None:
    named = found.groupdict()
    if named.get("step") is not None:
        return _whole(named["step"])
    # A bar that starts anew each epoch: steps go on from one epoch to the next.
    if all(named.get(name) is not None for name in ("epoch", "batch", "total")):
        epoch, batch, total = (_whole(named[name]) for name in ("epoch", "batch", "total"))
        if epoch is not None and batch is not None and total is not None and epoch * total <= _STEP_MAX:
            return epoch * total + batch
    return None


def _whole(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if len(digits) <= 15 else None


def _bar_step(bar: re.Pattern[str], before: tuple[str, ...]) -> int | None:
    for text in reversed(before):
        found = bar.search(text)
        if found is not None:
            return _whole(found.group("step"))
    return None


def built_in() -> Rules:
    """The rules that were compiled into this archive."""
    data = pkgutil.get_data("services.curves", "rules.json")
    if data is None:
        raise FileNotFoundError("rules.json: not in this archive; it is made by services/build.py")
    return Rules(json.loads(data))
