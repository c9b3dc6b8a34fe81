"""When a line was written and how grave it is, by what the line itself says."""

from __future__ import annotations

import datetime
import re
import time

_MICRO = 1_000_000
_AHEAD = 120 * _MICRO  # of the reader's clock; what is later was never read from a clock that runs right
_BACK = 400 * 86_400 * _MICRO
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_HEAD = 80
_WHOLE = re.compile(
    r"(?<!\d)(\d{4})([-/])(\d\d)\2(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|UTC)\b|([+-])(\d\d):?(\d\d)\b)?"
)
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: at for at, name in enumerate(_NAMES, 1)}
_SYSLOG = re.compile(r"\b(" + "|".join(_MONTHS) + r") [ \d]?(\d) (\d\d):(\d\d):(\d\d)\b")
_SYSLOG_DAY = re.compile(r" ([ \d]?\d) ")
_GLOG = re.compile(r"^\W{0,2}([IWEF])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,6})\b")
_LEVEL = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|ALERT|EMERG|PANIC)\b"
    r"|\blevel[=:] ?\"?(trace|debug|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|alert|emerg"
    r"|panic)\b"
)
SEVERITIES = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
_WORDS = {
    "TRACE": "debug", "DEBUG": "debug", "INFO": "info", "NOTICE": "notice", "WARN": "warning",
    "WARNING": "warning", "ERR": "error", "ERROR": "error", "CRIT": "critical", "CRITICAL": "critical",
    "FATAL": "critical", "PANIC": "critical", "ALERT": "alert", "EMERG": "emergency",
}  # fmt: skip
_GLOG_WORDS = {"I": "info", "W": "warning", "E": "error", "F": "critical"}


def now() -> int:
    return time.time_ns() // 1000


def own_time(text: str, read: int) -> int:
    """Microseconds since 1970; 0 where the line says none that can be believed (case 80)."""
    head = text[:_HEAD]
    found = _WHOLE.search(head)
    if found:
        year, month, day, hour, minute, second = (int(found.group(at)) for at in (1, 3, 4, 5, 6, 7))
        moment = _utc(year, month, day, hour, minute, second, found.group(8))
        if moment is None:
            return 0
        if found.group(9):
            return _believed([moment], read)
        if found.group(10):
            shift = (int(found.group(11)) * 60 + int(found.group(12))) * 60 * _MICRO
            return _believed([moment + shift if found.group(10) == "-" else moment - shift], read)
        return _believed([moment, _local(moment)], read)
    glog = _GLOG.match(head)
    if glog:
        return _without_year([int(glog.group(at)) for at in (2, 3, 4, 5, 6)], glog.group(7), read)
    old = _SYSLOG.search(head)
    if old:
        day_text = _SYSLOG_DAY.search(old.group(0))
        numbers = [_MONTHS[old.group(1)], int(day_text.group(1)) if day_text else 0]
        return _without_year([*numbers, *(int(old.group(at)) for at in (3, 4, 5))], None, read)
    return 0


def _utc(
    year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None
) -> int | None:
    try:
        moment = datetime.datetime(
            year, month, day, hour, minute, min(second, 59), tzinfo=datetime.timezone.utc
        )
    except ValueError:
        return None
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0")[:6])


def _local(moment: int) -> int:
    """The same digits, read in this machine's own zone."""
    digits = _EPOCH.replace(tzinfo=None) + datetime.timedelta(microseconds=moment)
    try:
        return int(time.mktime(digits.timetuple())) * _MICRO + moment % _MICRO
    except (OverflowError, ValueError):
        return moment


def _without_year(numbers: list[int], fraction: str | None, read: int) -> int:
    year = (_EPOCH + datetime.timedelta(microseconds=read)).year
    found = []
    for one in (year - 1, year, year + 1):
        month, day, hour, minute, second = numbers
        moment = _utc(one, month, day, hour, minute, second, fraction)
        if moment is not None:
            found += [moment, _local(moment)]
    return _believed(found, read)


def _believed(moments: list[int], read: int) -> int:
    """The one that lies nearest to when it was read. No zone stands in most lines: a container's is UTC, a
    machine's own may be another."""
    able = [one for one in moments if -_BACK <= one - read <= _AHEAD]
    return min(able, key=lambda one: abs(one - read)) if able else 0


def severity(text: str, otherwise: str = "info") -> str:
    found = _LEVEL.search(text[:160])
    if found:
        return _WORDS[(found.group(1) or found.group(2)).upper()]
    glog = _GLOG.match(text[:_HEAD])
    if glog:
        return _GLOG_WORDS[glog.group(1)]
    return "error" if "Traceback (most recent call last):" in text else otherwise
