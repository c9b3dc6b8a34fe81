"""Alert rules as data (roles/alerts/files/rules), made into what vmalert reads.

A group says where it is computed: `judge` near (the small store beside the judge, raw samples) or lake (the
one-minute tier), on `hosts` of role region, of role lake, or on every host that alerts. An alert is an
`expr`, or a `value` with a `threshold` that may differ by GPU model and kind of job, and by tenant where it
is `tunable`. Raw expressions are plain PromQL; what is made of them is MetricsQL (`WITH`, `label_match`):
both judges ask VictoriaMetrics. Controller only (PyYAML).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).resolve().parent.parent.parent / "roles/alerts/files/rules"
JUDGES = ("near", "lake")
HOSTS = ("region", "lake", "every")
SEVERITIES = ("critical", "warning", "info", "none")
WISHES = "sideband_alert_wish"
# Where a judge finds a job's kind, for thresholds that differ by it.
JOB_INFO = {"near": "sideband_job_info", "lake": "sideband_job_info:1m_max"}
_PLACE = re.compile(r"\$\{(\w+)\}")
_GROUP = ("group", "judge", "hosts", "every", "reads", "numbers", "define", "alerts")
_ALERT = (
    "name", "severity", "expr", "value", "threshold", "also", "for", "labels", "summary", "try",
)  # fmt: skip
_THRESHOLD = ("name", "default", "below", "tunable")


@dataclass(frozen=True)
class Threshold:
    name: str
    default: float
    below: bool = False
    tunable: bool = False

    @property
    def sign(self) -> str:
        return "<" if self.below else ">"


@dataclass(frozen=True)
class Alert:
    name: str
    severity: str
    expr: str  # as written, its names put in; a value where there is a threshold
    threshold: Threshold | None
    also: str
    hold: str  # vmalert's `for`
    labels: Mapping[str, str]
    summary: str
    advice: str


@dataclass(frozen=True)
class Group:
    name: str
    judge: str
    hosts: str
    every: str
    reads: tuple[str, ...]
    numbers: Mapping[str, float]
    alerts: tuple[Alert, ...]


@dataclass(frozen=True)
class Limit:
    """A number of the site's own, for a model of GPU, a kind of job, or all."""

    name: str
    value: float
    model: str = ""
    kind: str = ""


@dataclass
class Limits:
    """What the site says of thresholds, by their names."""

    entries: dict[str, list[Limit]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[Mapping[str, Any]]) -> Limits:
        found = cls()
        for one in given:
            limit = Limit(
                str(one["name"]), float(one["value"]), str(one.get("model", "")), str(one.get("kind", ""))
            )
            found.entries.setdefault(limit.name, []).append(limit)
        return found

    def number(self, name: str, otherwise: float) -> float:
        """Of one that holds for all: the last word on it."""
        plain = [one.value for one in self.entries.get(name, ()) if not (one.model or one.kind)]
        return plain[-1] if plain else otherwise

    def special(self, name: str) -> list[Limit]:
        return [one for one in self.entries.get(name, ()) if one.model or one.kind]


def load(directory: Path = DIRECTORY, limits: Limits | None = None) -> list[Group]:
    """Every group, with the site's numbers put in. Raises ValueError with the file."""
    return [
        parse(yaml.safe_load(path.read_text(encoding="utf-8")), path.name, limits or Limits())
        for path in sorted(directory.glob("*.yml"))
    ]


def parse(raw: Mapping[str, Any], file: str, limits: Limits) -> Group:
    _known(raw, _GROUP, file)
    numbers = {name: limits.number(name, value) for name, value in raw.get("numbers", {}).items()}
    names: dict[str, str] = {name: number(value) for name, value in numbers.items()}
    for name, text in raw.get("define", {}).items():
        names[name] = _filled(text, names, file)
    if raw["judge"] not in JUDGES or raw["hosts"] not in HOSTS:
        raise ValueError(f"{file}: judge is one of {JUDGES}, hosts one of {HOSTS}")
    return Group(
        raw["group"],
        raw["judge"],
        raw["hosts"],
        raw["every"],
        tuple(raw["reads"]),
        numbers,
        tuple(_alert(one, names, f"{file}: {one.get('name', '?')}") for one in raw["alerts"]),
    )


def _alert(raw: Mapping[str, Any], names: Mapping[str, str], where: str) -> Alert:
    _known(raw, _ALERT, where)
    if ("expr" in raw) == ("value" in raw) or ("value" in raw) != ("threshold" in raw):
        raise ValueError(f"{where}: give an expr, or a value and a threshold")
    if raw["severity"] not in SEVERITIES:
        raise ValueError(f"{where}: severity is one of {', '.join(SEVERITIES)}")
    threshold = None
    if "threshold" in raw:
        _known(raw["threshold"], _THRESHOLD, where)
        threshold = Threshold(**raw["threshold"])
    return Alert(
        raw["name"],
        raw["severity"],
        _filled(raw.get("expr") or raw["value"], names, where),
        threshold,
        _filled(raw.get("also", ""), names, where),
        raw.get("for", ""),
        raw.get("labels", {}),
        raw["summary"],
        raw["try"],
    )


def _known(raw: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    odd = sorted(set(raw) - set(keys))
    if odd:
        raise ValueError(f"{where}: unknown {', '.join(odd)}; known are {', '.join(keys)}")


def _filled(text: str, names: Mapping[str, str], where: str) -> str:
    def put(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise ValueError(f"{where}: ${{{match[1]}}} is defined nowhere")
        return names[match[1]]

    flat = _PLACE.sub(put, " ".join(str(text).split()))
    return flat.replace("( ", "(").replace(" )", ")")


def number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def expression(alert: Alert, judge: str, limits: Limits) -> str:
    """What is asked: the value against the first threshold that fits, of the tenant's own wish first."""
    threshold = alert.threshold
    if threshold is None:
        return alert.expr
    sign, default = threshold.sign, number(limits.number(threshold.name, threshold.default))
    special = limits.special(threshold.name)
    defined, cases, rest = [f"v = ({alert.expr})"], [], "v"
    for at, one in enumerate(special):
        defined += [f"m{at} = ({_fitting(rest, one, judge)})", f"r{at} = ({rest} unless m{at})"]
        cases.append(f"(m{at} {sign} {number(one.value)})")
        rest = f"r{at}"
    fixed = " or ".join([*cases, f"({rest} {sign} {default})"])
    if not special and not threshold.tunable:
        return _and(f"({alert.expr}) {sign} {default}", alert.also)
    if not threshold.tunable:
        return _and(f"WITH ({', '.join(defined)}) ({fixed})", alert.also)
    own = f'max by (tenant) (last_over_time({WISHES}{{threshold="{threshold.name}"}}[10m]))'
    defined += [f"w = ({own})", f"f = ({fixed})"]
    chosen = f"((f unless on (tenant) w) or (v {sign} on (tenant) group_left () w))"
    return _and(f"WITH ({', '.join(defined)}) {chosen}", alert.also)


def _and(text: str, also: str) -> str:
    return f"{text} {also}" if also else text


def _fitting(vector: str, limit: Limit, judge: str) -> str:
    text = vector
    if limit.model:
        text = f"label_match({text}, {_quoted('modelName')}, {_quoted(limit.model)})"
    if limit.kind:
        text = f"({text} and on (site, node, job) {JOB_INFO[judge]}{{kind=~{_quoted(limit.kind)}}})"
    return text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def anchor(name: str) -> str:
    """Where docs/reference/alerts.md speaks of it."""
    return name.lower()


def vmalert(groups: Iterable[Group], limits: Limits, link: str) -> str:
    """A rule file. `link`: what the place of an alert on the page of all alerts is put behind."""
    made = [
        {
            "name": group.name,
            "interval": group.every,
            "rules": [_rule(alert, group.judge, limits, link) for alert in group.alerts],
        }
        for group in groups
    ]
    text: str = yaml.safe_dump({"groups": made}, sort_keys=False, allow_unicode=True, width=10_000)
    return text


def _rule(alert: Alert, judge: str, limits: Limits, link: str) -> dict[str, Any]:
    made: dict[str, Any] = {"alert": alert.name, "expr": expression(alert, judge, limits)}
    if alert.hold:
        made["for"] = alert.hold
    made["labels"] = {"severity": alert.severity, **alert.labels}
    made["annotations"] = {
        "summary": alert.summary,
        "try": alert.advice,
        "link": f"{link}#{anchor(alert.name)}",
    }
    return made


def thresholds(groups: Iterable[Group]) -> Iterator[tuple[str, float, bool]]:
    """(name, default, whether a tenant may tune it) of every number that a site may set, each once."""
    seen: set[str] = set()
    for group in groups:
        own = [
            (one.threshold.name, one.threshold.default, one.threshold.tunable)
            for one in group.alerts
            if one.threshold
        ]
        for name, default, tunable in [
            *own,
            *((name, value, False) for name, value in group.numbers.items()),
        ]:
            if name not in seen:
                seen.add(name)
                yield name, default, tunable


def reads(groups: Iterable[Group], judge: str, hosts: Sequence[str]) -> list[str]:
    """The metrics that a judge of such a host reads."""
    found = {
        name for group in groups if group.judge == judge and group.hosts in hosts for name in group.reads
    }
    return sorted(found | {JOB_INFO[judge]})
