"""What a query reads, and its text as it goes to a store: written from the tree, never the asker's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .moments import duration, plain
from .promql_tree import (
    Aggregate,
    Binary,
    Call,
    Matcher,
    Minus,
    Node,
    Number,
    Parens,
    Place,
    Selector,
    Subquery,
    Text,
)
from .promql_words import quote
from .refusal import Refused

# A function's argument that names the label it writes.
_WRITES = {"label_replace": 1, "label_join": 1}


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (Subquery, Minus, Parens)):
        return (node.inner,)
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Aggregate):
        return (node.inner,) if node.parameter is None else (node.parameter, node.inner)
    if isinstance(node, Binary):
        return (node.left, node.right)
    return ()


def every(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from every(child)


def selectors(node: Node) -> list[Selector]:
    return [one for one in every(node) if isinstance(one, Selector)]


def forbid_writing(node: Node, labels: Sequence[str]) -> None:
    """An answer must not claim to be another tenant's: labels of the wall are written by no query."""
    for one in every(node):
        written: Node | None = None
        if isinstance(one, Call) and one.function in _WRITES and len(one.arguments) > _WRITES[one.function]:
            written = one.arguments[_WRITES[one.function]]
        elif isinstance(one, Aggregate) and one.op == "count_values":
            written = one.parameter
        while isinstance(written, Parens):
            written = written.inner
        if isinstance(written, Text) and written.value in labels:
            raise Refused(
                422, "label", f"label {written.value} says whose series these are: write into another label"
            )


# -- how far and how much


@dataclass
class Reach:
    """The time that a query reads: its ends, the widest piece, the longest row of inner evaluations.

    A comparison with last year reads two short pieces that lie far apart; only the pieces cost.
    """

    earliest: float = math.inf
    latest: float = -math.inf
    widest: float = 0.0
    inner_points: int = 0
    _ends: tuple[float, float] = field(default=(0.0, 0.0), repr=False)


def reach(node: Node, start: float, end: float, resolution: float) -> Reach:
    found = Reach(_ends=(start, end))
    _reach(node, start, end, resolution, found)
    return found


def _reach(node: Node, start: float, end: float, resolution: float, found: Reach) -> None:
    if isinstance(node, (Selector, Subquery)):
        at = node.place.at
        if at is not None:
            fixed = found._ends[0] if at == "start" else found._ends[1] if at == "end" else float(at)
            start = end = fixed
        start, end = start - node.place.offset - node.range, end - node.place.offset
        found.earliest, found.latest = min(found.earliest, start), max(found.latest, end)
        found.widest = max(found.widest, end - start)
    if isinstance(node, Subquery):
        step = node.step or resolution
        found.inner_points = max(found.inner_points, int((end - start) / step) + 1)
    for child in children(node):
        _reach(child, start, end, resolution, found)


# -- text


def write(node: Node, resolution: float, extra: Sequence[Matcher] = ()) -> str:
    """The query for a store. `extra` matchers stand in every selector, in every alternative of it."""
    if isinstance(node, Number):
        return _number(node.value)
    if isinstance(node, Text):
        return quote(node.value)
    if isinstance(node, Selector):
        text = write_selector(node, extra)
        if node.range:
            text += f"[{duration(node.range)}]"
        return text + _place(node.place)
    if isinstance(node, Subquery):
        step = duration(node.step or resolution)
        inside = write(node.inner, resolution, extra)
        if not isinstance(node.inner, (Call, Parens)):
            inside = f"({inside})"
        return f"{inside}[{duration(node.range)}:{step}]{_place(node.place)}"
    if isinstance(node, Call):
        return f"{node.function}({', '.join(write(one, resolution, extra) for one in node.arguments)})"
    if isinstance(node, Aggregate):
        inside = ", ".join(write(one, resolution, extra) for one in children(node))
        grouping = f" {node.grouping} ({', '.join(node.labels)}) " if node.grouping else ""
        return f"{node.op}{grouping}({inside})"
    if isinstance(node, Binary):
        return _binary(node, resolution, extra)
    if isinstance(node, Minus):
        return f"-{_atom(node.inner, resolution, extra)}"
    return f"({write(node.inner, resolution, extra)})"


def write_selector(node: Selector, extra: Sequence[Matcher] = ()) -> str:
    """Name and matchers alone. Where alternatives stand, each carries all that holds for all."""
    groups = node.alternatives or ((),)
    inside = " or ".join(
        ",".join(f"{m.label}{m.op}{quote(m.value)}" for m in (*node.matchers, *group, *extra))
        for group in groups
    )
    return f"{node.name}{{{inside}}}" if inside or not node.name else node.name


def _binary(node: Binary, resolution: float, extra: Sequence[Matcher]) -> str:
    words = [_atom(node.left, resolution, extra), node.op]
    if node.returns_bool:
        words.append("bool")
    if node.matching:
        words.append(f"{node.matching} ({', '.join(node.labels)})")
    if node.group:
        words.append(f"{node.group} ({', '.join(node.group_labels)})")
    words.append(_atom(node.right, resolution, extra))
    return " ".join(words)


def _atom(node: Node, resolution: float, extra: Sequence[Matcher]) -> str:
    """In parentheses wherever readers of PromQL could bind differently."""
    text = write(node, resolution, extra)
    if isinstance(node, (Binary, Minus)) or (isinstance(node, Number) and text.startswith("-")):
        return f"({text})"
    return text


def _place(place: Place) -> str:
    text = ""
    if isinstance(place.at, str):
        text += f" @ {place.at}()"
    elif place.at is not None:
        text += f" @ {plain(place.at)}"
    if place.offset:
        text += f" offset {'-' if place.offset < 0 else ''}{duration(abs(place.offset))}"
    return text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
