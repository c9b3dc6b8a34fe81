"""querygate reads one form, in one place, of known names, each once (Q2, cases 68, 70)."""

from __future__ import annotations

from pathlib import Path

import pytest
from querygate.attempts import EXPRESSIONS, LINES
from querygate.kit import configuration

from services.querygate import config as configs
from services.querygate import form, logsql
from services.querygate.plan import Ask, plan_query
from services.querygate.refusal import Refused

KNOWN = {"query", "time", "match[]"}
TYPE = ("content-type", "application/x-www-form-urlencoded")
CONFIG = configs.parse(configuration(Path("/nowhere"), {}))
ALPHA = CONFIG.identities["tenant/alpha"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"query=up&query=up", "twice"),
        (b"query=up&%71uery=up", "twice"),
        (b"query=up&extra_filters={tenant=%22b%22}", "parameter"),
        (b"query=up&extra_filters%5B%5D=x", "parameter"),
        (b"query=up&extra_label=tenant=b", "parameter"),
        (b"query[]=up", "parameter"),
        (b"Query=up", "parameter"),
        (b"query=up&", "parameter"),
        (b"&query=up", "parameter"),
        (b"query", "parameter"),
        (b"query=", "parameter"),
        (b"query=up;extra_filters=x", "encoding"),
        (b"query=%", "encoding"),
        (b"query=%4", "encoding"),
        (b"query=%zz", "encoding"),
        (b"query=%00", "encoding"),
        (b"query=%1b", "encoding"),
        (b"query=%ff", "encoding"),
        (b"query=%ed%a0%80", "encoding"),
        (b"query=\xff", "encoding"),
        (b"&".join([b"query=up"] * 40), "parameter"),
    ],
)
def test_a_form_that_two_readers_could_read_differently(text: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        form.read(text, KNOWN)
    assert (refused.value.status, refused.value.reason) == (400, reason)


def test_a_sound_form() -> None:
    text = b"query=a%2bb+%26+c%3D%C3%A9&match%5B%5D=up&time=5"
    assert form.read(text, KNOWN) == {"query": "a+b & c=é", "match[]": "up", "time": "5"}
    assert form.read(b"query=%2565", KNOWN) == {"query": "%65"}  # decoded once
    assert form.read(b"", KNOWN) == {}


@pytest.mark.parametrize(
    ("method", "query", "body", "headers", "status"),
    [
        ("GET", b"query=up", b"", [], 0),
        ("GET", b"query=up", b"query=up", [], 400),
        ("GET", b"query=up", b"", [("transfer-encoding", "chunked")], 400),
        ("POST", b"", b"query=up", [TYPE], 0),
        ("POST", b"", b"query=up", [(TYPE[0], TYPE[1] + "; charset=UTF-8")], 0),
        ("POST", b"query=up", b"", [TYPE], 400),
        ("POST", b"x", b"query=up", [TYPE], 400),
        ("POST", b"", b"query=up", [], 415),
        ("POST", b"", b"query=up", [TYPE, TYPE], 415),
        ("POST", b"", b"query=up", [("content-type", "multipart/form-data; boundary=x")], 415),
        (
            "POST",
            b"",
            b"query=up",
            [("content-type", "application/x-www-form-urlencoded; charset=utf-7")],
            415,
        ),
        ("POST", b"", b"query=up", [TYPE, ("content-encoding", "gzip")], 415),
    ],
)
def test_one_place(
    method: str, query: bytes, body: bytes, headers: list[tuple[str, str]], status: int
) -> None:
    if status == 0:
        assert form.source(method, query, body, headers) == b"query=up"
        return
    with pytest.raises(Refused) as refused:
        form.source(method, query, body, headers)
    assert refused.value.status == status


@pytest.mark.parametrize(("text", "status"), EXPRESSIONS, ids=[text[:40] for text, _ in EXPRESSIONS])
def test_what_is_asked_of_series(text: str, status: int) -> None:
    """The same list that real stores see, judged without one."""
    try:
        plan_query(CONFIG, ALPHA, Ask(text, 1.8e9, 1.8e9), 1.8e9)
        got = 200
    except Refused as problem:
        got = problem.status
    assert got == status


@pytest.mark.parametrize(("text", "status"), LINES, ids=[text[:40] for text, _ in LINES])
def test_what_is_asked_of_lines(text: str, status: int) -> None:
    try:
        logsql.check(text, ALPHA.log_wall)
        got = 200
    except Refused as problem:
        got = problem.status
    assert got == status
