"""What is wrong with a contract, said the same way everywhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


def got(value: object, limit: int = 60) -> str:
    """The value as an error names it: quoted where it is text, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return "a value that contains itself"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def hidden(value: object) -> str:
    """Of what may be a secret, an error says only how long it is."""
    return f"{len(value)} characters" if isinstance(value, str) else type(value).__name__


@dataclass(frozen=True)
class Error:
    """One fault. `host` is `all` where the fault belongs to the site and not to one host."""

    host: str
    path: str
    problem: str
    value: str = ""
    hint: str = ""

    def __str__(self) -> str:
        value = f" (got {self.value})" if self.value else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.host}: {self.path}: {self.problem}{value}{hint}"


class ContractError(Exception):
    """Every fault of a contract at once."""

    def __init__(self, errors: Iterable[Error]) -> None:
        self.errors = list(errors)
        super().__init__("\n".join(str(error) for error in self.errors))


def nearest(word: object, known: Iterable[object], otherwise: str) -> str:
    """A next step for a word that is not known: the nearest one, else the known ones after `otherwise`."""
    words = [str(name) for name in known]
    close = difflib.get_close_matches(str(word), words, 1, 0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"{otherwise}{', '.join(words)}" if otherwise else ""
