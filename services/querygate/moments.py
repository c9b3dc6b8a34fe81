"""Times and durations: read strictly into numbers, printed from numbers. A store gets what is printed."""

from __future__ import annotations

import datetime
import math
import re

from .refusal import Refused

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_PART = r"(?:[0-9]{1,9}(?:ms|[smhdwy]))"
_DURATION = re.compile(rf"{_PART}{{1,7}}")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_RELATIVE = re.compile(rf"(?:now)?-({_PART}{{1,7}})")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_FAR = 4102444800.0  # 2100: a later end is a slip or a trick
# What people set as a step; a refusal proposes one of these.
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1800, 3600, 7200, 10800,
          14400, 21600, 43200, 86400)  # fmt: skip


def seconds_of(text: str) -> float:
    """`1h30m` in seconds."""
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return math.fsum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)(ms|[smhdwy])", text)
    )


def moment(name: str, text: str, now: float) -> float:
    """A Unix time from seconds, RFC 3339, `now`, `-10m` or `now-10m`."""
    value: float | None = None
    if _NUMBER.fullmatch(text):
        value = float(text)
    elif text == "now":
        value = now
    elif found := _RELATIVE.fullmatch(text):
        value = now - seconds_of(found.group(1))
    elif _RFC3339.fullmatch(text):
        shorter = re.sub(r"(\.\d{1,6})\d*", r"\1", text).replace("Z", "+00:00")
        try:
            value = datetime.datetime.fromisoformat(shorter).timestamp()
        except ValueError:
            value = None
    if value is None or not 0 <= value <= _FAR:
        raise Refused(
            400, "time", f"{name}: no time (got {text[:40]!r}); seconds, RFC 3339, now or -10m would pass"
        )
    return value


def span(name: str, text: str) -> float:
    """A positive duration: seconds, or `15s`."""
    try:
        value = float(text) if _NUMBER.fullmatch(text) else seconds_of(text)
    except ValueError:
        value = 0.0
    if not 0.001 <= value <= 100 * _UNITS["y"]:
        raise Refused(400, "time", f"{name}: no duration (got {text[:40]!r}); 60 or 1m would pass")
    return value


def plain(value: float) -> str:
    """A number of seconds as every store reads it: milliseconds at most, no exponent."""
    text = f"{value:.3f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """PromQL's form, exact to the millisecond."""
    total = round(seconds * 1000)
    if total % 1000:
        return f"{total}ms"
    return f"{total // 1000}s"


def spoken(seconds: float) -> str:
    """For people: the largest units that say it whole, `40d`, `1h30m`, `15s`."""
    left = round(seconds)
    if left <= 0:
        return f"{seconds:g}s"
    said = ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_UNITS[unit]))
        if count:
            said += f"{count}{unit}"
        if said and unit == "d" and count >= 10:
            break  # minutes do not matter beside ten days
    return said


def nice_step(seconds: float) -> float:
    """The smallest usual step that is not shorter."""
    for step in _STEPS:
        if step >= seconds:
            return float(step)
    return math.ceil(seconds / 86400) * 86400.0
