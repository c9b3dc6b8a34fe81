"""A program's configuration: one JSON file, made into what the program wants, every problem with its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

Made = TypeVar("Made")


class ConfigError(Exception):
    """The configuration cannot be used; the text says every reason."""


def load(path: str, parse: Callable[[Any], Made]) -> Made:
    """What `parse` makes of the file's value. `parse` says what is wrong without naming the file."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON ({error})") from None
    try:
        return parse(value)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
