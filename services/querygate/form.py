"""Reading a question: known names only, each once, in one place. Whatever else is sent is refused, not
ignored: a store that also reads it would answer another question than the one that was judged (case 68)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote_to_bytes

from .refusal import Refused

BODY_BYTES = 65536
_FIELDS = 16
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FORM_TYPE = re.compile(r"application/x-www-form-urlencoded(?:\s*;\s*charset=utf-8)?", re.IGNORECASE)


def source(method: str, query: bytes, body: bytes, headers: Sequence[tuple[str, str]]) -> bytes:
    """The one place that holds the question: the query string of a GET, the body of a POST."""
    names = [name for name, _ in headers]
    if method == "GET":
        if body or "transfer-encoding" in names:
            raise Refused(
                400, "mixed", "a GET has no body: send the question as query string, or POST a form"
            )
        return query
    if query:
        raise Refused(400, "mixed", "a POST has no query string: send every parameter in the form")
    kinds = [value for name, value in headers if name == "content-type"]
    if len(kinds) != 1 or not _FORM_TYPE.fullmatch(kinds[0].strip()):
        raise Refused(415, "type", "a POST carries Content-Type: application/x-www-form-urlencoded, once")
    if "content-encoding" in names:
        raise Refused(415, "type", "a form comes as it is, without Content-Encoding")
    return body


def read(text: bytes, known: Collection[str]) -> Mapping[str, str]:
    """The parameters of a question; `known` are all that its endpoint has."""
    values: dict[str, str] = {}
    if not text:
        return values
    parts = text.split(b"&")
    if len(parts) > _FIELDS:
        raise Refused(400, "parameter", f"{len(parts)} parameters, {_FIELDS} may be")
    for part in parts:
        if b";" in part:
            raise Refused(400, "encoding", "an unencoded ; ends a value for some readers: encode it as %3B")
        raw_name, equals, raw_value = part.partition(b"=")
        name, value = _decoded(raw_name), _decoded(raw_value)
        if name not in known or not equals:
            raise Refused(
                400,
                "parameter",
                f"parameter {name[:40]!r} does not exist here: {', '.join(sorted(known))} do",
            )
        if name in values:
            raise Refused(400, "twice", f"parameter {name} is given twice: send it once")
        if not value:
            raise Refused(400, "parameter", f"parameter {name} is empty: give it a value or leave it out")
        values[name] = value
    return values


def _decoded(raw: bytes) -> str:
    if _BROKEN_ESCAPE.search(raw):
        raise Refused(400, "encoding", "no valid percent-encoding: encode % as %25")
    try:
        text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(400, "encoding", "no valid UTF-8 after percent-decoding") from None
    if _CONTROL.search(text):
        raise Refused(400, "encoding", "control characters are not part of any question")
    return text


def needed(values: Mapping[str, str], name: str) -> str:
    if name not in values:
        raise Refused(400, "missing", f"parameter {name} is missing")
    return values[name]


def count(values: Mapping[str, str], name: str, most: int) -> int:
    """A positive whole number, never above the bound."""
    text = values.get(name)
    if text is None:
        return most
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise Refused(400, "parameter", f"{name}: no positive whole number (got {text[:40]!r})")
    return min(int(text), most)
