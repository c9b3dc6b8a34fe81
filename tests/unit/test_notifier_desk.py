"""Where notifications go, what tenants wish for (N2), what the rules are told, and the program itself."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notifier_kit import URLS, World, alert, webhook

from services.configuration import ConfigError
from services.notifier import config as configuration
from services.notifier import message, render, wishes
from services.notifier.config import Receiver
from services.notifier.deliver import Channel, Later, Never
from services.notifier.desk import TENANTS, Desk
from services.notifier.facts import Facts
from services.notifier.server import Server
from services.notifier.wishes import Book, Wish

HOSTS = ("qyapi.weixin.qq.com", "hooks.slack.com", "http://10.90.0.61:8090")


def wishes_config(tmp_path: Path) -> configuration.Wishes:
    return configuration.Wishes(
        "https://10.30.0.51:8445/api/v1/wishes", "/ca", "/crt", "/key", str(tmp_path / "wishes.json"), 60,
        HOSTS, ("gpu_utilisation_low_percent",),
    )  # fmt: skip


def whole(**changes: Any) -> dict[str, Any]:
    return {
        "listen": "127.0.0.1:8553",
        "receivers": {"chat": {"kind": "wecom", "secret_file": "/etc/sideband/alerts/secrets/wecom-chat"}},
        "facts_file": "/etc/sideband/alerts/facts.prom",
        "facts_urls": ["http://127.0.0.1:8551/api/v1/import/prometheus"],
        "facts_seconds": 30,
        "wishes": None,
        **changes,
    }


def test_a_configuration_is_read_whole() -> None:
    made = configuration.parse(whole())
    assert made.listen == ("127.0.0.1", 8553)
    assert made.receivers == {"chat": Receiver("wecom", "/etc/sideband/alerts/secrets/wecom-chat")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"listen": "8553"}, "listen: an address and a port are needed (got '8553')"),
        ({"receivers": {"chat": {"kind": "fax", "secret_file": "/x"}}},
         "receivers.chat.kind: one of wecom, dingtalk, slack is needed (got 'fax')"),
        ({"receivers": {"chat": {"kind": "wecom", "secret_file": "x"}}},
         "secret_file: an absolute path is needed (got 'x')"),
        ({"facts_seconds": 0}, "facts_seconds: seconds from 1 to 3600 are needed (got 0)"),
        ({"facts_urls": "http://x"}, "facts_urls: a list of texts is needed (got 'http://x')"),
        ({"wishes": {}}, "wishes: has or lacks ca, certificate, hosts, key, seconds, state, tunable, url; "
         "its keys are url, ca, certificate, key, state, seconds, hosts, tunable"),
        ({"more": 1}, "the configuration: has or lacks more; its keys are listen, receivers, facts_file, "
         "facts_urls, facts_seconds, wishes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        configuration.parse(whole(**change))
    assert str(raised.value) == said


# -- the desk ---------------------------------------------------------------------------------------------


def desk(world: World, tmp_path: Path, known: dict[str, Wish] | None = None) -> tuple[Desk, list[str]]:
    secret = tmp_path / "wecom-chat"
    secret.write_text(URLS["wecom"] + "\n")
    said: list[str] = []

    def channel(kind: str, url: Any) -> Channel:
        return Channel(kind, url, world.send, world.clock, world.clock.sleep)

    made = Desk({"chat": Receiver("wecom", str(secret))}, lambda: known or {}, said.append, channel)
    return made, said


def test_a_receiver_is_told_by_the_secret_in_its_file(tmp_path: Path) -> None:
    world = World()
    made, said = desk(world, tmp_path)
    made.take("chat", message.read(webhook([alert()])))
    assert [(one["kind"], one["key"]) for one in world.seen] == [("wecom", "lab-s3cr3t")]
    # A changed secret counts at once.
    (tmp_path / "wecom-chat").write_text(URLS["wecom"].replace("lab-", "gone-"))
    with pytest.raises(Never):
        made.take("chat", message.read(webhook([alert()])))
    assert said == ["wecom chat: errcode 93000: invalid webhook url, hint: (1), from ip: 10.0.0.1"]
    assert (made.sent["wecom", "chat"], made.failed["wecom", "chat"]) == (1, 1)


def test_a_tenant_hears_of_its_own_and_not_of_what_it_has_quieted(tmp_path: Path) -> None:
    world = World()
    known = {
        "alpha": Wish(channel=("wecom", URLS["wecom"]), quiet=frozenset({"TrainingGone"})),
        "beta": Wish(),
    }
    made, _ = desk(world, tmp_path, known)
    alerts = [
        alert("TrainingGone", labels={"tenant": "alpha"}),
        alert("LossJumps", labels={"tenant": "alpha"}),
        alert("GpuMemoryFull", labels={"tenant": "beta"}),
        alert("GpuWarm"),
    ]
    made.take(TENANTS, message.read(webhook(alerts)))
    (told,) = world.texts()
    assert "LossJumps" in told
    assert not {name for name in ("TrainingGone", "GpuMemoryFull", "GpuWarm") if name in told}


def test_a_tenants_wrong_channel_is_its_own_affair(tmp_path: Path) -> None:
    world = World()
    known = {"alpha": Wish(channel=("wecom", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=nobodys"))}
    made, said = desk(world, tmp_path, known)
    made.take(TENANTS, message.read(webhook([alert(labels={"tenant": "alpha"})])))
    assert made.failed["tenant", ""] == 1
    assert "nobodys" not in "".join(said)
    world.failures.append(TimeoutError("timed out"))
    with pytest.raises(Later):
        made.take(TENANTS, message.read(webhook([alert(labels={"tenant": "alpha"})])))


# -- wishes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/cgi-bin/webhook/send?key=x",
        "https://qyapi.weixin.qq.com.evil.example/",
        "https://qyapi.weixin.qq.com@evil.example/",
        "https://user:qyapi.weixin.qq.com/",
        "https://evil.example/?qyapi.weixin.qq.com",
        "http://qyapi.weixin.qq.com/",
        "http://127.0.0.1:8552/api/v2/alerts",
        "https://qyapi.weixin.qq.com:1/",
        "file:///etc/passwd",
        "https://qyapi.weixin.qq.com\\@evil.example/",
        "https://qyapi.weixin.qq.com/\r\nHost: evil",
        "https://[::1",
    ],
)
def test_a_channel_leads_to_a_chats_host_only(url: str, tmp_path: Path) -> None:
    given = {"alpha": {"channel": {"kind": "wecom", "url": url}}}
    assert wishes.parse(given, wishes_config(tmp_path))["alpha"].channel is None


def test_wishes_are_read_with_what_is_right_in_them(tmp_path: Path) -> None:
    given = {
        "alpha": {
            "thresholds": {"gpu_utilisation_low_percent": 50, "gpu_temperature_high_celsius": 1},
            "channel": {"kind": "slack", "url": URLS["slack"]},
            "quiet": ["TrainingGone", 3, "not a name"],
        },
        "beta": {"thresholds": {"gpu_utilisation_low_percent": float("nan")}, "channel": "x", "quiet": "all"},
        "Gamma": {},
        "delta": [],
    }
    made = wishes.parse(given, wishes_config(tmp_path))
    assert made == {
        "alpha": Wish(
            {"gpu_utilisation_low_percent": 50.0}, ("slack", URLS["slack"]), frozenset({"TrainingGone"})
        ),
        "beta": Wish(),
    }


def test_what_was_heard_last_stays_in_force(tmp_path: Path) -> None:
    config, said = wishes_config(tmp_path), list[str]()
    answers: list[Any] = [
        b'{"data": {"wishes": {"alpha": {"thresholds": {"gpu_utilisation_low_percent": 50}}}}}',
        OSError(111, "Connection refused"),
        OSError(111, "Connection refused"),
        b"no JSON",
    ]

    def fetch(_: configuration.Wishes) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    book = Book(config, said.append, fetch)
    for _ in range(4):
        book.refresh()
    line = 'sideband_alert_wish{tenant="alpha",threshold="gpu_utilisation_low_percent"} 50.0'
    assert book.series() == [line]
    assert said == ["wishes: Connection refused; those heard last stay in force"]
    assert Book(config, said.append, fetch).series() == [line]
    assert (tmp_path / "wishes.json").stat().st_mode & 0o777 == 0o600


# -- facts ------------------------------------------------------------------------------------------------


def test_every_store_is_told_and_one_that_is_down_is_said_once(tmp_path: Path) -> None:
    path, said, told = tmp_path / "facts.prom", list[str](), list[tuple[str, bytes]]()
    path.write_text('sideband_expected_node{node="node1"} 1\n')
    down = True

    def push(url: str, body: bytes) -> None:
        if url == "http://b" and down:
            raise urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
        told.append((url, body))

    facts = Facts(str(path), ["http://a", "http://b"], lambda: ["more 2"], said.append, push)
    facts.tell()
    facts.tell()
    assert said == ["facts: http://b: Connection refused"]
    assert facts.failed == 2
    down = False
    facts.tell()
    assert told[-1] == ("http://b", b'sideband_expected_node{node="node1"} 1\nmore 2\n')


# -- the listener -----------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, World]]:
    world = World()
    made, _ = desk(world, tmp_path)
    running = Server(("127.0.0.1", 0), made, lambda: 3)
    threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}", world
    running.shutdown()
    running.server_close()


def post(url: str, body: bytes) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_alertmanager_learns_whether_to_try_again(server: tuple[str, World]) -> None:
    base, world = server
    assert post(f"{base}/send/chat", webhook([alert()])) == (200, "delivered\n")
    assert post(f"{base}/send/tenants", webhook([alert()])) == (200, "delivered\n")
    assert post(f"{base}/send/nobody", webhook([alert()])) == (404, "no such receiver\n")
    assert post(f"{base}/send/chat", b"{}")[0] == 400
    world.failures.append(TimeoutError("timed out"))
    assert post(f"{base}/send/chat", webhook([alert()]))[0] == 503
    with urllib.request.urlopen(f"{base}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    assert 'sideband_notifier_sent_total{integration="wecom",receiver="chat"} 1' in lines
    assert 'sideband_notifier_failed_total{integration="wecom",receiver="chat"} 1' in lines
    assert 'sideband_notifier_failed_total{integration="tenant",receiver=""} 0' in lines
    assert "sideband_notifier_facts_failed_total 3" in lines


def test_every_template_of_a_configuration_is_found() -> None:
    config = {
        "name": "slack",
        "slack_configs": [{"text": '{{ template "a" . }}', "n": 1}],
        "x": {"y": "{{ .Z }}"},
    }
    assert list(render.texts(config, "slack")) == [
        ("slack.slack_configs[0].text", '{{ template "a" . }}'),
        ("slack.x.y", "{{ .Z }}"),
    ]
    assert len(json.dumps(render.samples()["120 alerts"], ensure_ascii=False).encode()) > 40_000
