"""Texts that fit: byte limits on character borders, every alert's name (case 71), short with a link (Q4)."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from notifier_kit import LONG, World, alert, storm, text, webhook

from services.notifier import message
from services.notifier.deliver import MOST_PARTS, Later, Never
from services.notifier.forms import FORMS

KINDS = sorted(FORMS)


@pytest.mark.parametrize("kind", KINDS)
def test_case_71_a_hundred_and_twenty_alerts_all_arrive(kind: str) -> None:
    world = World()
    sent = world.channel(kind).deliver(message.read(webhook(storm())))
    assert [one["answer"] for one in world.seen if not one["ok"]] == []
    assert sent == len(world.seen) <= MOST_PARTS
    whole = "\n".join(world.texts())
    assert [n for n in range(120) if f"Overheated{n:03d}" not in whole] == []
    # Cut between characters: nothing is half, and what was cut says so.
    assert "�" not in whole
    assert "节点温度过高" in whole
    assert LONG not in whole
    assert "…" in whole


def test_wecom_needs_several_messages_and_says_which_is_which() -> None:
    world = World()
    count = world.channel("wecom").deliver(message.read(webhook(storm())))
    assert count > 1
    heads = [one.splitlines()[0] for one in world.texts()]
    assert heads == [f"**[sideband lab] critical: 120 firing ({at}/{count})**" for at in range(1, count + 1)]
    assert max(len(one["body"]["markdown"]["content"].encode()) for one in world.seen) <= 4_096


def test_one_alert_is_a_few_short_lines_and_a_link() -> None:
    world = World()
    world.channel("wecom").deliver(message.read(webhook([alert(summary="GPU 3 of node1 is at 96 °C")])))
    assert world.texts() == [
        "**[sideband lab] critical: 1 firing**\n"
        "**GpuHot**\n"
        "GPU 3 of node1 is at 96 °C\n"
        "→ Look at the fans. [more](https://docs.example/alerts#gpuhot)"
    ]


def test_many_of_one_name_are_listed_and_then_counted() -> None:
    world = World()
    alerts = [alert(summary=f"GPU of n{n} is hot", labels={"node": f"n{n}"}) for n in range(60)]
    alerts[0]["status"] = "resolved"
    world.channel("slack").deliver(message.read(webhook(alerts)))
    (told,) = world.texts()
    assert "*[sideband lab] critical: 59 firing, 1 resolved*" in told
    assert "*GpuHot ×60*" in told
    assert "also: n21, n22, " in told
    assert told.count("is hot") == 20


def test_what_goes_on_is_one_line_beside_the_news() -> None:
    """A chat is told of all alerts of a severity together, and not of all again with each."""
    world = World()
    old = [alert(f"Old{n:03d}", labels={"node": "n1"}) for n in range(120)]
    for one in old:
        one["startsAt"] = "2026-01-01T00:00:00.123Z"
    new = alert("New", summary="It is new")
    new["startsAt"] = "2026-01-01T04:00:00Z"
    world.channel("wecom").deliver(message.read(webhook([*old, new])))
    (told,) = world.texts()
    assert "**New**\nIt is new" in told
    assert "\nstill: Old000, Old001" in told
    assert "Old119" in told
    world.channel("wecom").deliver(message.read(webhook(old)))
    assert LONG[:20] in world.texts()[1]  # repeated by themselves, they are told whole


def test_beyond_what_a_chat_takes_names_alone_are_told() -> None:
    world = World()
    alerts = [alert(f"Alert{n:04d}" + "x" * 60, labels={"node": "node" * 20}) for n in range(600)]
    count = world.channel("wecom").deliver(message.read(webhook(alerts)))
    whole = "\n".join(world.texts())
    assert count <= MOST_PARTS
    assert [n for n in range(600) if f"Alert{n:04d}" not in whole] == []


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\nb\x00c\u2028d", "a b c d"),
        ("<@everyone> [click](http://evil)", "‹＠everyone› (click)(http://evil)"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
        ("`code`", "'code'"),
    ],
)
def test_labels_are_no_markup(given: str, shown: str) -> None:
    assert message.clean(given) == shown


def test_a_link_that_is_none_is_left_out() -> None:
    made = message.read(webhook([alert(link="https://x/) [y](javascript:1")]))
    assert made.alerts[0].link == ""


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"alerts": 3}', b'{"alerts": [3]}', b'{"alerts": [{"labels": 1}]}', b"[" * 99_999],
)
def test_what_is_no_notification_is_refused(raw: bytes) -> None:
    with pytest.raises(message.Malformed, match="no notification of Alertmanager's"):
        message.read(raw)


def test_an_alert_without_labels_is_told_too() -> None:
    """Case 73: no template of ours can fail on it."""
    world = World()
    world.channel("dingtalk").deliver(message.read(b'{"alerts": [{"labels": {}, "annotations": {}}]}'))
    assert "**unnamed**\n\nno summary" in world.texts()[0]


odd = st.text(st.characters(codec="utf-8"), max_size=300)


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    alerts=st.lists(
        st.builds(
            lambda name, summary, node, status, start: {
                **alert(name, status, summary=summary, labels={"node": node}),
                "startsAt": start,
            },
            st.text("ABCdef节点", min_size=1, max_size=80),
            odd,
            odd,
            st.sampled_from(["firing", "resolved"]),
            st.sampled_from(["", "2026-01-01T00:00:00.5Z", "2026-01-02T00:00:00Z", "yesterday"]),
        ),
        min_size=1,
        max_size=150,
    ),
)
def test_whatever_comes_fits_and_names_every_alert(kind: str, alerts: list[dict[str, object]]) -> None:
    form = FORMS[kind]
    parts = message.compose(message.read(webhook(alerts)), form.markup, MOST_PARTS)
    assert 1 <= len(parts) <= MOST_PARTS
    assert all(form.markup.fits(part) for part in parts)
    assert all(json.loads(form.body(part)) for part in parts)
    whole = "\n".join(parts)
    for one in alerts:
        assert message.clean(str(one["labels"]["alertname"])) in whole  # type: ignore[index]


def test_cut_never_splits_a_character() -> None:
    for most in range(3, 30):
        cut = message.cut("温度abc过高" * 3, most)
        assert len(cut.encode()) <= most
        assert re.fullmatch(r"[温度abc过高]*…", cut)


# -- pace, retries, secrets -------------------------------------------------------------------------------


def test_a_chat_is_told_no_faster_than_it_listens() -> None:
    """Twenty messages a minute; beyond them DingTalk would be deaf for ten."""
    world = World()
    channel = world.channel("dingtalk")
    for number in range(40):
        channel.deliver(message.read(webhook([alert(f"A{number}")])))
        world.clock.now += 2
    assert all(one["ok"] for one in world.seen)
    assert world.clock.slept > 0


def test_what_cannot_be_told_soon_is_left_to_alertmanager() -> None:
    world = World()
    channel = world.channel("wecom")
    for number in range(18):
        channel.deliver(message.read(webhook([alert(f"A{number}")])))
    with pytest.raises(Later, match="too many messages for one minute"):
        channel.deliver(message.read(webhook([alert("Another")])))
    assert all(one["ok"] for one in world.seen)


def test_a_notification_that_broke_off_goes_on_where_it_was() -> None:
    world = World()
    channel, whole = world.channel("wecom"), message.read(webhook(storm()))
    send, count = world.send, 0

    def flaky(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        nonlocal count
        count += 1
        if count == 3:
            raise ConnectionResetError(104, "Connection reset by peer")
        return send(url, body, headers)

    channel._send = flaky
    with pytest.raises(Later, match="Connection reset by peer"):
        channel.deliver(whole)
    assert len(world.seen) == 2
    total = channel.deliver(whole)
    assert len(world.seen) == total
    assert len({text(one["body"]) for one in world.seen}) == total
    world.clock.now += 3600
    channel.deliver(whole)
    assert len(world.seen) == 2 * total  # told again, it is told whole


@pytest.mark.parametrize(
    ("kind", "status", "answer", "outcome"),
    [
        ("wecom", 200, b'{"errcode":45009,"errmsg":"api freq out of limit"}', Later),
        ("wecom", 200, b'{"errcode":40058,"errmsg":"exceed max length 4096"}', Never),
        ("wecom", 200, b'{"errcode":93000,"errmsg":"invalid webhook url"}', Never),
        ("wecom", 200, b"<html>captive portal</html>", Later),
        ("wecom", 502, b"", Later),
        ("wecom", 404, b"", Never),
        ("dingtalk", 200, b'{"errcode":130101,"errmsg":"send too fast"}', Later),
        ("dingtalk", 200, b'{"errcode":310000,"errmsg":"keywords not in content"}', Never),
        ("slack", 429, b"", Later),
        ("slack", 400, b"invalid_payload", Never),
        ("slack", 302, b"", Never),
    ],
)
def test_answers(kind: str, status: int, answer: bytes, outcome: type[Exception]) -> None:
    channel = World().channel(kind)
    channel._send = lambda url, body, headers: (status, answer)
    with pytest.raises(outcome):
        channel.deliver(message.read(webhook([alert()])))


@pytest.mark.parametrize(
    "url",
    ["htp://chat/?key=s3cr3t", "s3cr3t", "", "http://chat:s3cr3t/", "http://[s3cr3t/",
     "http://127.0.0.1:1/s3cr3t x", "https://127.0.0.1:1/?key=s3cr3t"],
)  # fmt: skip
def test_no_error_shows_the_url(url: str) -> None:
    """By the real client: texts of its errors repeat what was asked (case 71: the secret is not logged)."""
    from services.notifier.deliver import Channel

    channel = Channel("wecom", lambda: url)
    with pytest.raises((Later, Never)) as raised:
        channel.deliver(message.read(webhook([alert()])))
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.__cause__ is None
