"""A query's words, looked at before the parser sees them: how many, how deep, which strings.

promql-parser's time grows with the square of the length, very deep nesting ends its process, it compiles
every regular expression, and it reads escapes inside back quotes, where PromQL has none.
"""

from __future__ import annotations

import re

from .refusal import Refused

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_TOKENS, _DEPTH = 400, 40
_PATTERNS = 8000  # characters of regular expressions, times their counted repetitions: 0.05 s of parsing
_CLASS = 80  # characters that one class of Unicode's costs like: it stands for hundreds of ranges
_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)|[A-Za-z_:][\w:]*|[0-9.][\w.]*|.""",
    re.DOTALL,
)
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}")
# Hides a brace from us; `\\\\` is the regular expression's own backslash.
_HIDDEN = re.compile(r"(?<!\\)(?:\\\\)*\\[xuU0-7]")
_CLASSES = re.compile(r"\\[pPwWdDsSbB]")
_AT = re.compile(r"[0-9]{1,10}(\.[0-9]*)?|start|end")


def bound(text: str) -> None:
    tokens = depth = patterns = 0
    repeated = 1
    previous = ""
    for found in _TOKEN.finditer(without_raw(text)):
        token = found.group()
        if token.isspace() or token.startswith("#"):
            continue
        tokens += 1
        # A time before 1970 or after 2286 makes the parser panic.
        if previous == "@" and not _AT.fullmatch(token):
            raise Refused(
                422, "expression", f"@ takes seconds since 1970, start() or end() (got {token[:20]!r})"
            )
        if previous == "~" and found.group("string"):
            patterns += len(token) + _CLASS * len(_CLASSES.findall(token))
            repeated *= _repeats(token)
            if patterns * repeated > _PATTERNS:
                raise Refused(
                    422, "expression", "regular expressions too long or repeated too often: shorten"
                )
        previous = token
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        if tokens > _TOKENS or depth > _DEPTH:
            raise Refused(
                422,
                "expression",
                f"more than {_TOKENS} words or {_DEPTH} levels in one query: split it",
            )


def _repeats(literal: str) -> int:
    """How often the counted repetitions of a regular expression multiply it. The parser compiles each one."""
    if _HIDDEN.search(literal):
        raise Refused(422, "expression", "a regular expression is written without \\x, \\u or octal escapes")
    product = 1
    for least, most in _REPEATED.findall(literal):
        product *= max(1, min(10_000, int(least[:6])), min(10_000, int((most or "0")[:6])))
    return product


def without_raw(text: str) -> str:
    """Strings in back quotes as plain ones, so that the parser reads what is meant."""
    return _TOKEN.sub(_plain, text)


def _plain(found: re.Match[str]) -> str:
    token = found.group()
    return quote(token[1:-1]) if found.group("string") and token[0] == "`" else token


def quote(text: str) -> str:
    """A string literal that every store reads alike: control characters by number, the rest as it is."""
    made = "".join(
        _ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 32 or ord(char) == 127 else char)
        for char in text
    )
    return f'"{made}"'
