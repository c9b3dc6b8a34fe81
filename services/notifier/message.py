"""From Alertmanager's webhook to texts that fit: split on lines, cut on characters, every alert named.

Nothing here is a template: an alert with an odd label, or none, still becomes a text (case 73)."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LINE_BYTES = 240  # of one alert: to find the fault, and no more (Q4)
_ADVICE_BYTES = 300
_COMPACT_BYTES = 160
_NAMES_BYTES = 1_000  # of one line of bare names
_OLD_SECONDS = 900  # before the newest one: it has been told
_HARMLESS = str.maketrans("<>[]@`", "‹›()＠'")
_LISTED = 20  # alerts of one name, before the rest are only counted


class Malformed(Exception):
    """No notification of Alertmanager's."""


@dataclass(frozen=True)
class Alert:
    name: str
    firing: bool
    severity: str
    where: str
    summary: str
    advice: str
    link: str
    tenant: str
    since: float = 0.0  # seconds since 1970; 0 where it is not said


@dataclass(frozen=True)
class Notification:
    site: str
    alerts: tuple[Alert, ...]

    @property
    def firing(self) -> int:
        return sum(1 for one in self.alerts if one.firing)


@dataclass(frozen=True)
class Markup:
    """How a chat writes what we need, and what one message of it may hold."""

    bold: Callable[[str], str]
    link: Callable[[str, str], str]
    end: str  # of a line
    fits: Callable[[str], bool]


def read(raw: bytes) -> Notification:
    try:
        value = json.loads(raw)
        given = value["alerts"]
        alerts = tuple(_alert(one) for one in given)
        labels = [one["labels"] for one in given]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Malformed(f"no notification of Alertmanager's ({type(error).__name__})") from None
    sites = sorted({clean(str(one.get("site", ""))) for one in labels} - {""})
    return Notification(" ".join(sites[:3]) or "sideband", alerts)


def _alert(given: dict[str, object]) -> Alert:
    labels, notes = given["labels"], given.get("annotations") or {}
    if not isinstance(labels, dict) or not isinstance(notes, dict):
        raise TypeError

    def label(name: str) -> str:
        return clean(str(labels.get(name, "")))

    where = " ".join(label(name) for name in ("node", "host", "gpu", "job") if name in labels)
    return Alert(
        name=label("alertname") or "unnamed",
        firing=given.get("status") != "resolved",
        severity=label("severity") or "unknown",
        where=where,
        summary=clean(str(notes.get("summary", ""))),
        advice=clean(str(notes.get("try", ""))),
        link=str(notes.get("link", "")) if _plain_link(str(notes.get("link", ""))) else "",
        tenant=str(labels.get("tenant", "")),
        since=_time(str(given.get("startsAt", ""))),
    )


def _time(text: str) -> float:
    """An RFC 3339 time, to the second: its digits are read, in UTC as Alertmanager and vmalert write it."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.\d]*Z", text)
    return calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")) if match else 0.0


def clean(text: str) -> str:
    """One line, and nothing in it that a chat takes for a link or a mention: labels may be anybody's."""
    flat = " ".join(re.sub(r"[\x00-\x1f\x7f\u2028\u2029]", " ", text).split())
    flat = flat.encode("utf-8", "replace").decode("utf-8")
    return flat.translate(_HARMLESS)


def _plain_link(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9:/._#?=&%+-]{1,400}", text) is not None


def cut(text: str, most: int) -> str:
    """At most so many bytes of UTF-8, never half a character."""
    raw = text.encode()
    return text if len(raw) <= most else raw[: most - 3].decode("utf-8", "ignore") + "…"


def compose(notification: Notification, markup: Markup, most: int) -> list[str]:
    """The texts, at most `most` of them: with every alert's line; else a line for each name; else bare
    names."""
    for lines in (_full, _compact, _names):
        parts = _parts(notification, lines(notification, markup), markup)
        if len(parts) <= most:
            return parts
    left = sum(part.count(markup.end) for part in parts[most:])
    return [*parts[: most - 1], cut(parts[most - 1], 2_000) + f"{markup.end}and {left} lines more"]


def _by_name(notification: Notification) -> dict[str, list[Alert]]:
    found: dict[str, list[Alert]] = {}
    for one in sorted(notification.alerts, key=lambda one: (not one.firing, one.name)):
        found.setdefault(one.name, []).append(one)
    return found


def _full(notification: Notification, markup: Markup) -> list[tuple[str, str]]:
    """(heading, line): a line that begins a new message gets its heading again. A chat is told of all alerts
    of a severity together: those that go on, beside news, are one line."""
    newest = max((one.since for one in notification.alerts if one.firing), default=0.0)
    news = [one for one in notification.alerts if not one.firing or newest - one.since <= _OLD_SECONDS]
    old = [one for one in notification.alerts if one not in news]
    lines = _told(Notification(notification.site, tuple(news)), markup)
    if old:
        counted = _by_name(Notification(notification.site, tuple(old))).items()
        words = [f"{name} ×{len(alerts)}" if len(alerts) > 1 else name for name, alerts in counted]
        lines += [("", f"still: {line}") for line in _joined(words)]
    return lines


def _told(notification: Notification, markup: Markup) -> list[tuple[str, str]]:
    lines = []
    for name, alerts in _by_name(notification).items():
        heading = markup.bold(f"{name} ×{len(alerts)}" if len(alerts) > 1 else name)
        texts = [_said(one) for one in alerts[:_LISTED]]
        if len(alerts) > _LISTED:
            texts.append(cut("also: " + ", ".join(one.where for one in alerts[_LISTED:]), _LINE_BYTES))
        advice, link = alerts[0].advice, alerts[0].link
        if advice or link:
            # A bare path is no link anywhere: it is shown as it is.
            more = markup.link("more", link) if "://" in link else link
            texts.append(" ".join(part for part in ("→", cut(advice, _ADVICE_BYTES), more) if part))
        lines += [(heading, text) for text in texts]
    return lines


def _said(alert: Alert) -> str:
    text = alert.summary or alert.where or "no summary"
    return cut(("" if alert.firing else "resolved: ") + text, _LINE_BYTES)


def _compact(notification: Notification, markup: Markup) -> list[tuple[str, str]]:
    return [
        ("", cut(f"{name} ×{len(alerts)}: " + ", ".join(one.where for one in alerts), _COMPACT_BYTES))
        for name, alerts in _by_name(notification).items()
    ]


def _names(notification: Notification, markup: Markup) -> list[tuple[str, str]]:
    return [("", line) for line in _joined(list(_by_name(notification)))]


def _joined(words: Sequence[str]) -> list[str]:
    """With commas, on lines that are not too long to fit."""
    lines = [""]
    for word in words:
        word = cut(word, _NAMES_BYTES // 2)
        whole = f"{lines[-1]}, {word}" if lines[-1] else word
        if len(whole.encode()) > _NAMES_BYTES:
            lines.append(word)
        else:
            lines[-1] = whole
    return lines


def _parts(notification: Notification, lines: Sequence[tuple[str, str]], markup: Markup) -> list[str]:
    counted = [f"{notification.firing} firing"] if notification.firing else []
    resolved = len(notification.alerts) - notification.firing
    counted += [f"{resolved} resolved"] if resolved else []
    severities = "/".join(sorted({one.severity for one in notification.alerts if one.severity != "none"}))
    title = cut(f"[sideband {notification.site}] {severities}: {', '.join(counted)}", _LINE_BYTES)
    parts: list[list[str]] = [[]]
    above = ""
    for heading, line in lines:
        wanted = [line] if heading == above or not heading else [heading, line]
        whole = markup.end.join([_title(title, 99, 99, markup), *parts[-1], *wanted])
        if parts[-1] and not markup.fits(whole):
            parts.append([])
            wanted = [heading, line] if heading else [line]
        parts[-1] += wanted
        above = heading
    return [
        markup.end.join([_title(title, at, len(parts), markup), *part]) for at, part in enumerate(parts, 1)
    ]


def _title(title: str, at: int, count: int, markup: Markup) -> str:
    return markup.bold(title if count == 1 else f"{title} ({at}/{count})")
