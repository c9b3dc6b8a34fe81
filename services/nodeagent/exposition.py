"""Prometheus text: written from families, and read again before it replaces what was there (case 47)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services import durable

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_KINDS = ("gauge", "counter")

Labels = Mapping[str, str]


class LintError(Exception):
    """The text must not be published; it says why."""


@dataclass
class Family:
    """One metric name. Its samples stand together, or node_exporter refuses the file."""

    name: str
    kind: str
    help: str
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """What could not be read is no sample: never 0, never a word (case 40)."""
        if value is not None:
            self.samples.append((labels, value))


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def render(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in family.samples:
            pairs = ",".join(f'{key}="{quoted(text)}"' for key, text in labels.items())
            lines.append(f"{family.name}{{{pairs}}} {value!r}" if pairs else f"{family.name} {value!r}")
    return "".join(line + "\n" for line in lines)


def lint(text: str) -> None:
    """Raise LintError for what would make a scrape fail: one bad line takes the whole node's metrics
    along."""
    if text and not text.endswith("\n"):
        raise LintError("the last line has no end")
    helped: set[str] = set()
    typed: set[str] = set()
    series: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    current = ""
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            if line.startswith("# "):
                current = _lint_comment(line, helped, typed)
            else:
                one = _lint_sample(line)
                if one[0] != current or current not in typed or current not in helped:
                    raise LintError(f"{one[0]}: a sample that its HELP and TYPE do not precede")
                if one in series:
                    raise LintError(f"{one[0]}: the same series twice")
                series.add(one)
        except LintError as problem:
            raise LintError(f"line {number}: {problem}") from None


def _lint_comment(line: str, helped: set[str], typed: set[str]) -> str:
    words = line.split(" ", 3)
    if len(words) < 4 or words[1] not in ("HELP", "TYPE") or not _NAME.fullmatch(words[2]):
        raise LintError("neither HELP nor TYPE of a name")
    name, seen = words[2], helped if words[1] == "HELP" else typed
    if name in seen:
        raise LintError(f"{name}: {words[1]} twice")
    if words[1] == "TYPE" and words[3] not in _KINDS:
        raise LintError(f"{name}: no kind of metric (got {words[3]})")
    seen.add(name)
    return name


def _lint_sample(line: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise LintError("no sample")
    name, inside, value = found.groups()
    labels: list[tuple[str, str]] = []
    position = 0
    while inside and position < len(inside):
        pair = _LABEL.match(inside, position)
        if pair is None:
            raise LintError(f"{name}: a label that nobody can read")
        labels.append((pair.group(1), pair.group(2)))
        position = pair.end()
    if len({label for label, _ in labels}) != len(labels):
        raise LintError(f"{name}: one label twice")
    try:
        if not math.isfinite(float(value)):
            raise ValueError
    except ValueError:
        raise LintError(f"{name}: no finite number (got {value})") from None
    return name, tuple(sorted(labels))


def publish(path: str, families: Iterable[Family]) -> None:
    """Put the text where node_exporter's textfile collector reads: whole, sound, or not at all."""
    text = render(families)
    lint(text)
    durable.write(path, text.encode())
