"""A process's configuration: a JSON object, checked whole against a table of fields, every problem named."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services import configuration
from services.configuration import ConfigError


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def _table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) and one for one in value.values())


def seconds(low: float, high: float) -> Kind:
    return Kind(f"seconds from {low:g} to {high:g}", _number(low, high))


def count(low: int, high: int) -> Kind:
    within = _number(low, high)
    return Kind(
        f"a whole number from {low} to {high}", lambda value: isinstance(value, int) and within(value)
    )


PATH = Kind("an absolute path", lambda value: isinstance(value, str) and value.startswith("/"))
PATH_OR_NONE = Kind("an absolute path, or an empty text", lambda value: value == "" or PATH.holds(value))
TEXTS = Kind("a list of texts", _texts)
TABLE = Kind("an object of texts", _table)


@dataclass(frozen=True)
class Field:
    kind: Kind
    default: Any


def parse(value: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Every field's value. Raises ConfigError with all that is wrong."""
    if not isinstance(value, dict):
        raise ConfigError("the configuration is no object")
    problems = []
    found = {name: field.default for name, field in fields.items()}
    for name, given in value.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            problems.append(f"{name}: unknown" + (f"; hint: {near[0]}" if near else ""))
        elif not fields[name].kind.holds(given):
            problems.append(f"{name}: {fields[name].kind.words} is needed (got {given!r})")
        else:
            found[name] = given
    if problems:
        raise ConfigError("; ".join(problems))
    return found


def load(path: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    return configuration.load(path, lambda value: parse(value, fields))
