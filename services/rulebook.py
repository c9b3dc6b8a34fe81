"""The rule files of curves, read and checked when its archive is built: a host has no YAML.

A file is a framework: `rules`, tried in order, and `samples`, lines with what they must yield (its own test).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from services.curves import rules as runtime

FOLDER = Path(__file__).resolve().parent / "curves" / "rules"
_RULE = {"needle", "line", "bar", "take", "event"}
_TAKE = {"quantity", "pattern", "scale", "invert", "name", "shown"}
_KIND = re.compile(r"[a-z_]{1,32}")


class BadRule(ValueError):
    """A rule that cannot work; the text says which and why."""


def read(path: Path) -> dict[str, Any]:
    value = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict) or set(value) - {"framework", "last", "rules", "samples"}:
        raise BadRule(f"{path.name}: framework, last, rules and samples are known (got {value!r:.80})")
    if not value.get("rules") or not value.get("samples"):
        raise BadRule(f"{path.name}: rules and samples are both needed")
    for number, rule in enumerate(value["rules"], 1):
        _check(f"{path.name}: rule {number}", rule)
    return value


def _check(place: str, rule: Any) -> None:
    if not isinstance(rule, dict) or set(rule) - _RULE or not {"needle", "line"} <= set(rule):
        raise BadRule(f"{place}: {', '.join(sorted(_RULE))} are known, needle and line needed")
    if bool(rule.get("take")) == bool(rule.get("event")):
        raise BadRule(f"{place}: either take or event is needed")
    if rule["needle"] != rule["needle"].lower():
        raise BadRule(f"{place}: the needle is sought in lower case")
    if "event" in rule and not _KIND.fullmatch(rule["event"]):
        raise BadRule(f"{place}: an event is lower case letters (got {rule['event']!r})")
    for key in ("line", "bar"):
        if key in rule:
            _compiled(f"{place}: {key}", rule[key])
    if "bar" in rule and "step" not in _compiled(place, rule["bar"]).groupindex:
        raise BadRule(f"{place}: bar has no group step")
    for take in rule.get("take", ()):
        if set(take) - _TAKE or take.get("quantity") not in runtime.QUANTITIES:
            raise BadRule(f"{place}: take: {take!r}; quantities are {', '.join(runtime.QUANTITIES)}")
        groups = _compiled(f"{place}: {take['quantity']}", take["pattern"]).groupindex
        if "value" not in groups:
            raise BadRule(f"{place}: {take['quantity']}: {{number}} is missing")
        if take["quantity"] == "validation" and not take.get("name") and "name" not in groups:
            raise BadRule(f"{place}: validation: a name or a group name is needed")


def _compiled(place: str, text: str) -> re.Pattern[str]:
    try:
        return runtime.expression(text)
    except re.error as error:
        raise BadRule(f"{place}: {error}") from None


def compiled(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All rules in the order in which they are tried."""
    books = [read(path) for path in sorted(folder.glob("*.yml"))]
    books.sort(key=lambda book: bool(book.get("last")))
    return [{"framework": book["framework"], **rule} for book in books for rule in book["rules"]]
