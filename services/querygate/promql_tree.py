"""PromQL as our own small tree. What is in it was looked at; what is not in it cannot be asked.

promql-parser reads, within the bounds of promql_words; this module takes over only what is listed here: a
function or form that a later parser learns stays refused until somebody has thought about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import promql_parser

from .promql_words import bound, without_raw
from .refusal import Refused

METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without `info`: it reads series that no selector in the query names.
_FUNCTIONS = words(
    "abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp"
    " clamp_max clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg"
    " delta deriv exp floor histogram_avg histogram_count histogram_fraction histogram_quantile"
    " histogram_stddev histogram_stdvar histogram_sum holt_winters hour idelta increase irate label_join"
    " label_replace last_over_time ln log10 log2 max_over_time min_over_time minute month pi predict_linear"
    " present_over_time quantile_over_time rad rate resets round scalar sgn sin sinh sort sort_desc sqrt"
    " stddev_over_time stdvar_over_time sum_over_time tan tanh time timestamp vector year"
)
_AGGREGATES = words("sum min max avg group stddev stdvar count count_values bottomk topk quantile")
_OPERATORS = words("+ - * / % ^ atan2 == != > < >= <= and or unless")
_MATCHES = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class Unreadable(Exception):
    """Not PromQL: MetricsQL, a slip, or something that nobody should send."""


@dataclass(frozen=True)
class Matcher:
    label: str
    op: str
    value: str


@dataclass(frozen=True)
class Place:
    """Where in time a selector or subquery looks: shifted back by `offset`, or fixed."""

    offset: float = 0.0
    at: float | str | None = None  # seconds, "start" or "end"


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Selector:
    name: str
    matchers: tuple[Matcher, ...]
    alternatives: tuple[tuple[Matcher, ...], ...]  # MetricsQL's `or` between matchers
    place: Place
    range: float = 0.0  # 0: an instant vector


@dataclass(frozen=True)
class Subquery:
    inner: Node
    range: float
    step: float  # 0: the tier's resolution
    place: Place


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Aggregate:
    op: str
    inner: Node
    parameter: Node | None
    grouping: str  # "", "by" or "without"
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Binary:
    op: str
    left: Node
    right: Node
    returns_bool: bool
    matching: str  # "", "on" or "ignoring"
    labels: tuple[str, ...]
    group: str  # "", "group_left" or "group_right"
    group_labels: tuple[str, ...]


@dataclass(frozen=True)
class Minus:
    inner: Node


@dataclass(frozen=True)
class Parens:
    inner: Node


Node = Union[Number, Text, Selector, Subquery, Call, Aggregate, Binary, Minus, Parens]


def parse(text: str) -> Node:
    """The tree of a query. Raises Unreadable for what is no PromQL, Refused for what nobody may send."""
    bound(text)
    try:
        return _node(promql_parser.parse(without_raw(text)))
    except (ValueError, OverflowError) as error:
        raise Unreadable(" ".join(str(error).split())[:200]) from None
    except RecursionError:
        raise Refused(422, "expression", "nested too deeply: split it") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the parser's own way to give up; no Exception
            raise
        raise Unreadable("the parser gave up") from None


def _node(e: Any) -> Node:
    if isinstance(e, promql_parser.VectorSelector):
        return _selector(e, 0.0)
    if isinstance(e, promql_parser.MatrixSelector):
        return _selector(e.vector_selector, _seconds(e.range))
    if isinstance(e, promql_parser.NumberLiteral):
        return Number(e.val)
    if isinstance(e, promql_parser.StringLiteral):
        return Text(e.val)
    if isinstance(e, promql_parser.ParenExpr):
        return Parens(_node(e.expr))
    if isinstance(e, promql_parser.UnaryExpr):
        return Minus(_node(e.expr))
    if isinstance(e, promql_parser.Call):
        name = e.func.name
        _listed(name, _FUNCTIONS, "function")
        return Call(name, tuple(_node(argument) for argument in e.args))
    if isinstance(e, promql_parser.AggregateExpr):
        return _aggregate(e)
    if isinstance(e, promql_parser.BinaryExpr):
        return _binary(e)
    if isinstance(e, promql_parser.SubqueryExpr):
        return Subquery(_node(e.expr), _seconds(e.range), _seconds(e.step), _place(e))
    raise Unreadable(f"{type(e).__name__} is not known here")


def _listed(name: str, allowed: frozenset[str], what: str) -> None:
    if name not in allowed:
        raise Unreadable(f"{what} {name} is not on the list")


def _place(e: Any) -> Place:
    at: float | str | None = None
    if e.at is not None:
        kind = str(e.at.type).rsplit(".", 1)[-1]
        at = {"Start": "start", "End": "end"}.get(kind) or e.at.at.timestamp()
    return Place(_seconds(e.offset), at)


def _seconds(value: Any) -> float:
    return float(value.total_seconds()) if value else 0.0


def _selector(e: Any, seconds: float) -> Selector:
    if e.name and not METRIC.fullmatch(e.name):
        raise Unreadable(f"metric name {e.name[:40]!r}")
    return Selector(
        e.name or "",
        _matchers(e.matchers.matchers),
        tuple(_matchers(group) for group in e.matchers.or_matchers),
        _place(e),
        seconds,
    )


def _matchers(found: Sequence[Any]) -> tuple[Matcher, ...]:
    return tuple(Matcher(_label(m.name), _MATCHES[str(m.op).rsplit(".", 1)[-1]], m.value) for m in found)


def _label(name: str) -> str:
    if not LABEL.fullmatch(name):
        raise Unreadable(f"label name {name[:40]!r}")
    return name


def _labels(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(_label(name) for name in names or ())


def _aggregate(e: Any) -> Aggregate:
    op = str(e.op)
    _listed(op, _AGGREGATES, "aggregation")
    grouping, labels = "", _labels(e.modifier.labels if e.modifier else ())
    if e.modifier:
        grouping = str(e.modifier.type).rsplit(".", 1)[-1].lower()
    return Aggregate(op, _node(e.expr), None if e.param is None else _node(e.param), grouping, labels)


def _binary(e: Any) -> Binary:
    op = str(e.op)
    _listed(op, _OPERATORS, "operator")
    left, right, modifier = _node(e.lhs), _node(e.rhs), e.modifier
    if modifier is None:
        return Binary(op, left, right, False, "", (), "", ())
    if modifier.fill_values and (modifier.fill_values.lhs, modifier.fill_values.rhs) != (None, None):
        raise Unreadable("fill modifiers are not on the list")
    matching, labels = "", ()  # type: str, tuple[str, ...]
    if modifier.matching:
        include = str(modifier.matching.type).endswith("Include")
        matching, labels = "on" if include else "ignoring", _labels(modifier.matching.labels)
    card = str(modifier.card).rsplit(".", 1)[-1]
    group = {"ManyToOne": "group_left", "OneToMany": "group_right"}.get(card, "")
    return Binary(
        op, left, right, modifier.return_bool, matching, labels, group, _labels(modifier.group_labels)
    )
