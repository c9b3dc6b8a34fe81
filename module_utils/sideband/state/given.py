"""A value that a fragment gives, with its place in it: what it has to be, and what is said where it is not.

No method raises. A problem goes to the list that all values of a fragment share, and a stand-in comes back:
everything wrong is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Linux takes 4095 and 255; the next content of a path is written beside it, as `.NAME.sideband`.
PATH_BYTES = 4000
NAME_BYTES = 240
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HALF = re.compile(r"[\ud800-\udfff]")


def kind(value: Any) -> str:
    """What a value is, where its content is nobody's business or too long."""
    known: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        (str, "text"),
        (Mapping, "a mapping"),
        ((list, tuple), "a list"),
        ((int, float), "a number"),
    )
    for types, name in known:
        if isinstance(value, types):
            return name
    return "nothing" if value is None else type(value).__name__


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        return kind(value)
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:100]}… of {len(text)} characters"


class Given:
    def __init__(self, value: Any, place: str, problems: list[str]) -> None:
        self.value = value
        self.place = place  # files[0].mode; empty for the fragment itself
        self.problems = problems

    def refuse(self, problem: str, got: bool = True) -> None:
        self.problems.append(
            f"{self.place or 'fragment'}: {problem}" + (f" (got {shown(self.value)})" if got else "")
        )

    # what is inside

    def at(self, key: str, default: Any = None) -> Given:
        """Of a mapping. What is not there is the default."""
        return self.inside(key, self.value.get(key, default))

    def filled(self, key: str, default: Any) -> Given:
        """The default also where there is nothing or an empty text, as templates leave it."""
        value = self.value.get(key)
        return self.inside(key, default if value is None or value == "" else value)

    def inside(self, key: str, value: Any) -> Given:
        return Given(value, f"{self.place}.{key}" if self.place else key, self.problems)

    def spelled(self) -> Given:
        """A number counts as its digits."""
        number = isinstance(self.value, int) and not isinstance(self.value, bool)
        return Given(str(self.value), self.place, self.problems) if number else self

    def mapping(self, known: Sequence[str] | None, required: Sequence[str] = ()) -> bool:
        if not isinstance(self.value, Mapping):
            self.refuse(f"must be a mapping (got {kind(self.value)})", got=False)
            return False
        strange = sorted(shown(key) for key in self.value if known is not None and key not in known)
        if strange:
            self.refuse(f"unknown key {', '.join(strange)}; known are {', '.join(known or ())}", got=False)
        lost = [key for key in required if self.value.get(key) is None]
        for key in lost:
            self.refuse(f"{key} is required", got=False)
        return not strange and not lost

    def items(self) -> list[Given]:
        if self.value is None:
            return []
        if not isinstance(self.value, (list, tuple)):
            hint = "" if isinstance(self.value, Mapping) else "; put it in brackets"
            self.refuse(f"must be a list (got {kind(self.value)}){hint}", got=False)
            return []
        return [
            Given(value, f"{self.place}[{number}]", self.problems) for number, value in enumerate(self.value)
        ]

    def entries(self, known: Sequence[str] | None, required: Sequence[str] = ()) -> Iterator[Given]:
        """The mappings of a list that have what they need and nothing else."""
        return (entry for entry in self.items() if entry.mapping(known, required))

    # what it is

    def _text(self, line: bool = False) -> str | None:
        if not isinstance(self.value, str):
            self.refuse("must be text")
        elif "\0" in self.value:
            self.refuse("must hold no NUL character")
        elif _HALF.search(self.value):
            self.refuse("must hold whole characters only; half of a surrogate pair is none")
        elif line and not self.value.strip():
            self.refuse("must not be empty")
        elif line and _CONTROL.search(self.value):
            self.refuse("must be one line without control characters")
        else:
            return str(self.value)
        return None

    def text(self) -> str:
        return self._text() or ""

    def content(self) -> bytes:
        """Any text, and no message shows it."""
        if not isinstance(self.value, str):
            hint = "; to_json makes text of it" if isinstance(self.value, (Mapping, list)) else ""
            self.refuse(f"must be text (got {kind(self.value)}){hint}", got=False)
        elif _HALF.search(self.value):
            self.refuse("must hold whole characters only; half of a surrogate pair is none", got=False)
        else:
            return self.value.encode()
        return b""

    def line(self) -> str:
        return self._text(line=True) or ""

    def matching(self, pattern: str, what: str) -> str:
        text = self._text(line=True)
        if text is not None and not re.fullmatch(pattern, text):
            self.refuse(f"must be {what}")
        return text or ""

    def one_of(self, known: Sequence[str]) -> str:
        text = self._text()
        if text is not None and text not in known:
            self.refuse(f"must be one of {', '.join(filter(None, known))}")
        return text or ""

    def path(self) -> str:
        text = self._text(line=True)
        if text is None:
            return ""
        names = text.split("/")
        if names[0] or any(name in ("", ".", "..") for name in names[1:] or [""]):
            self.refuse("must be an absolute path without `.`, `..`, `//` or a trailing slash")
        elif len(text.encode()) > PATH_BYTES or max(len(name.encode()) for name in names) > NAME_BYTES:
            self.refuse(f"must have at most {PATH_BYTES} bytes, and each name in it at most {NAME_BYTES}")
        return text

    def paths(self) -> tuple[str, ...]:
        return tuple(each.path() for each in self.items())

    def device(self) -> str:
        return self.matching(r"(?!\.\.?$)[^\s/:]{1,15}", "a network device's name, at most 15 characters")

    def octal(self, example: str) -> int:
        if not isinstance(self.value, str):
            # YAML 1.1 reads 0644 as 420 and 644 as 644: only text is unambiguous.
            self.refuse(f'must be quoted text such as "{example}"')
        elif not re.fullmatch(r"[0-7]{3,4}", self.value):
            self.refuse(f'must be three or four octal digits such as "{example}"')
        else:
            return int(self.value, 8)
        return 0

    def number(self, least: int, most: int) -> int:
        """Also as text, as `-e name=40` gives it."""
        digits = isinstance(self.value, str) and re.fullmatch(r"[0-9]{1,18}", self.value)
        whole = digits or (isinstance(self.value, int) and not isinstance(self.value, bool))
        if whole and least <= int(self.value) <= most:
            return int(self.value)
        self.refuse(f"must be a whole number between {least} and {most}")
        return least

    def flag(self) -> bool:
        """Real booleans only: the text "false" is true to a naive reader (case 7)."""
        if not isinstance(self.value, bool):
            self.refuse("must be true or false")
        return self.value is True
