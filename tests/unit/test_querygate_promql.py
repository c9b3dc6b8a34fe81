"""querygate reads PromQL into its own tree and writes from it: the wall stands in every selector (Q5)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.querygate import promql
from services.querygate.promql_tree import Matcher, Selector, Unreadable, parse
from services.querygate.promql_words import quote
from services.querygate.refusal import Refused

WALL = Matcher("tenant", "=", "alpha")
VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
    st.sampled_from(
        ['"', "\\", '\\"', "`", "'", "\n", "\x7f", '"} or {tenant="beta"}', "#", "[5m]", "é", "\U0001f600"]
    ),
)
LABELS = st.sampled_from(["tenant", "rack", "node", "job", "__name__", "le", "a_b1"])
NAMES = st.sampled_from(["up", "gpu_util", "node_load1:1m_max", "x:y", "by", "sum", "on", "start", "inf_x"])
SPANS = st.sampled_from(["5m", "1h", "90s", "1d", "1500ms", "1h30m"])


def literal(text: str) -> str:
    return quote(text)


@st.composite
def matchers(draw: st.DrawFn) -> str:
    def one() -> str:
        return f"{draw(LABELS)}{draw(st.sampled_from(['=', '!=']))}{literal(draw(VALUES))}"

    groups = [",".join(one() for _ in range(draw(st.integers(1, 3)))) for _ in range(draw(st.integers(1, 3)))]
    return " or ".join(groups)


@st.composite
def selector_texts(draw: st.DrawFn) -> str:
    name = draw(st.one_of(NAMES.filter(lambda one: one not in ("by", "sum", "on", "start")), st.just("up")))
    return draw(st.sampled_from([name, f"{name}{{{draw(matchers())}}}"]))


@st.composite
def places(draw: st.DrawFn) -> str:
    at = draw(st.sampled_from(["", " @ 5", " @ 1700000000.25", " @ start()", " @ end()"]))
    return at + draw(st.sampled_from(["", " offset 5m", " offset -1h"]))


def vectors(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def build(parts: tuple[str, str, str, str]) -> st.SearchStrategy[str]:
        a, b, span, place = parts
        return st.sampled_from(
            [
                f"({a})", f"-({a})", f"sum({a})", f"sum by (tenant) ({a})", f"avg without (node, le) ({a})",
                f"topk(3, {a})", f"quantile(0.9, {a})", f"abs({a})", f"clamp({a}, 0, 1.5)", f"({a}) + ({b})",
                f"({a}) / on (node) group_left (job) ({b})", f"({a}) > bool ({b})", f"({a}) and ({b})",
                f"({a}) unless ignoring (le) ({b})", f"({a}) ^ 2", f"2 * ({a})", f"-({a}) ^ 2",
                f"max_over_time(({a})[{span}:1m]{place})", f"rate(({a})[{span}:]{place})",
                f'label_replace({a}, "new", "$1", "node", "(.*)")', f"absent({a})", f"vector(scalar({a}))",
                f'count_values("v", {a})', f"histogram_quantile(0.9, {a})",
            ]
        )  # fmt: skip

    return st.tuples(inner, inner, SPANS, places()).flatmap(build)


LEAVES = st.one_of(
    selector_texts(),
    st.tuples(selector_texts(), places()).map("".join),
    st.tuples(selector_texts(), SPANS, places()).map(lambda p: f"rate({p[0]}[{p[1]}]{p[2]})"),
)
QUERIES = st.recursive(LEAVES, vectors, max_leaves=6)


@given(QUERIES)
@settings(max_examples=120, deadline=None)
def test_what_is_written_reads_as_the_same_tree(text: str) -> None:
    try:
        tree = parse(text)
    except Unreadable:
        return
    once = promql.write(tree, 60)
    again = parse(once)
    assert promql.write(again, 60) == once
    assert [s.matchers for s in promql.selectors(again)] == [s.matchers for s in promql.selectors(tree)]
    assert promql.reach(again, 1e9, 1.1e9, 60) == promql.reach(tree, 1e9, 1.1e9, 60)


@given(QUERIES)
@settings(max_examples=120, deadline=None)
def test_the_wall_stands_in_every_alternative_of_every_selector(text: str) -> None:
    """Whatever a client writes: read the injected text again and look at each selector."""
    try:
        tree = parse(text)
    except Unreadable:
        return
    walled = parse(promql.write(tree, 60, [WALL]))
    before, after = promql.selectors(tree), promql.selectors(walled)
    assert len(before) == len(after)
    for own, made in zip(before, after):
        groups = made.alternatives or ((),)
        assert all(WALL in (*made.matchers, *group) for group in groups)
        assert len(groups) == len(own.alternatives or ((),))
        assert made.name == own.name


@given(VALUES)
@settings(max_examples=120, deadline=None)
def test_a_string_never_ends_early(value: str) -> None:
    tree = parse(f"up{{a={quote(value)}}}")
    assert isinstance(tree, Selector)
    assert tree.matchers == (Matcher("a", "=", value),)


@given(st.text(max_size=200))
@settings(max_examples=120, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tree = parse(text)
    except (Unreadable, Refused):
        return
    assert parse(promql.write(tree, 60)) is not None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("up", "up"),
        ("up{}", "up"),
        ("{'up'}", '{__name__="up"}'),
        ('up{a="1" or b="2"}', 'up{a="1",tenant="alpha" or b="2",tenant="alpha"}'),
        ('up{tenant="beta"}', 'up{tenant="beta",tenant="alpha"}'),
        ("up # {tenant='beta'}", 'up{tenant="alpha"}'),
        ("up[5m] @ 1.5 offset -1500ms", 'up{tenant="alpha"}[300s] @ 1.5 offset -1500ms'),
        ("max_over_time(up[1h:] @ end())", 'max_over_time((up{tenant="alpha"})[3600s:60s] @ end())'),
        ("-up ^ 2", '-(up{tenant="alpha"} ^ 2)'),
        ("2 - -1", "2 - (-1)"),
        ("1e300 + Inf", "1e+300 + Inf"),
        (
            "sum by (a) (up) / on (a) group_left (b) up",
            'sum by (a) (up{tenant="alpha"}) / on (a) group_left (b) up{tenant="alpha"}',
        ),
        ("topk by (a) (3, up)", 'topk by (a) (3, up{tenant="alpha"})'),
        ('up{a=~"x{2}[0-9]{1,3}\\\\x41"}', 'up{a=~"x{2}[0-9]{1,3}\\\\x41"}'),
        (r"up{a=~`\d+\.x`}", r'up{a=~"\\d+\\.x"}'),
        ("up == bool 1", 'up{tenant="alpha"} == bool 1'),
        ('up{a=`b"c`}', 'up{a="b\\"c",tenant="alpha"}'),
    ],
)
def test_written(text: str, written: str) -> None:
    extra = [] if "alpha" not in written else [WALL]
    assert promql.write(parse(text), 60, extra) == written


@pytest.mark.parametrize(
    "text",
    ["info(up)", "rollup(up[5m])", "limitk(1, up)", "WITH (x = up) x", "{}", "up{", 'up{"a b"="c"}',
     "up offset 99999999999y", "up[0s]", "double_exponential_smoothing(up[5m], 0.5, 0.5)"],
)  # fmt: skip
def test_what_is_not_on_the_list_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["up @ -1", "up @ 1e400", "up @ 99999999999", "(" * 41 + "up" + ")" * 41, "up" + " + up" * 250,
     'up{a=~"' + "x?" * 4001 + '"}', 'up{a=~"(a{50}){50}"}', "up{a=~`\\w{900}`,b!~`\\w{900}`}",
     'up{a=~"w\\x7b9999}"}',
     'up{a=~"\\\\\\u007b900}"}', "abs(" * 5000 + "up" + ")" * 5000, "up{" + 'a="b",' * 200 + "}"],
)  # fmt: skip
def test_what_would_hurt_the_parser_is_refused_before(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("text", "earliest", "latest", "widest", "inner"),
    [
        ("up", 1000, 2000, 1000, 0),
        ("up offset 100", 900, 1900, 1000, 0),
        ("up offset -100", 1100, 2100, 1000, 0),
        ("rate(up[500])", 500, 2000, 1500, 0),
        ("up @ 10", 10, 10, 0, 0),
        ("rate(up[5] @ 10 offset 2)", 3, 8, 5, 0),
        ("up @ start()", 1000, 1000, 0, 0),
        ("rate(up[100] @ end())", 1900, 2000, 100, 0),
        ("max_over_time(up[600:60])", 400, 2000, 1600, 27),
        ("max_over_time(up[600:])", 400, 2000, 1600, 17),
        ("max_over_time(rate(up[100])[600:60] offset 50)", 250, 1950, 1700, 27),
        ("max_over_time(up[600:60] @ 5000)", 4400, 5000, 600, 11),
        ("max_over_time((up @ start())[600:60])", 400, 2000, 1600, 27),
        ("up - up offset 1d", 1000 - 86400, 2000, 1000, 0),
    ],
)
def test_reach(text: str, earliest: float, latest: float, widest: float, inner: int) -> None:
    found = promql.reach(parse(text), 1000, 2000, 100)
    assert (found.earliest, found.latest, found.widest, found.inner_points) == (
        earliest,
        latest,
        widest,
        inner,
    )


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('label_replace(up, "tenant", "x", "", "")', False),
        ('label_replace(up, ("tenant"), "x", "", "")', False),
        ('abs(label_join(up, "rack", "", "a"))', False),
        ('count_values("tenant", up)', False),
        ('count_values(("rack"), up)', False),
        ('label_replace(up, "owner", "$1", "tenant", "(.*)")', True),
        ('count_values("v", up)', True),
        ('sum by (tenant) (up{tenant="beta"})', True),
    ],
)
def test_labels_of_the_wall_are_not_written(text: str, passes: bool) -> None:
    if passes:
        promql.forbid_writing(parse(text), ("rack", "tenant"))
    else:
        with pytest.raises(Refused, match="whose series"):
            promql.forbid_writing(parse(text), ("rack", "tenant"))
