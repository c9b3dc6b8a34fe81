"""What a change needs on other hosts is asked before anything is done, and only where it counts (O5)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sideband.state import packages, services
from sideband.state.system import Result, StateError, System
from state_kit import FakeHost

FILES: dict[str, Any] = {"files": [{"path": "/etc/x", "content": "x"}]}


@pytest.fixture
def closed() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def need(port: int, **more: Any) -> dict[str, Any]:
    return {"name": "relay of region1", "address": "127.0.0.1", "port": port, **more}


def test_a_silent_service_stops_the_change_before_it_begins(tmp_path: Path, closed: int) -> None:
    host = FakeHost(tmp_path)
    answer = host.present({**FILES, "masked": ["a.service"], "packages": ["p"], "needs": [need(closed)]})
    assert answer["missing"]["services"] == [
        {"name": "relay of region1", "address": "127.0.0.1", "port": closed}
    ]
    assert answer["changed"] is False
    assert not host.exists("/etc/x")
    assert not host.exists("/etc/systemd/system/a.service")


def test_one_that_answers_is_no_obstacle(tmp_path: Path, open_port: int) -> None:
    host = FakeHost(tmp_path)
    answer = host.present({**FILES, "needs": [need(open_port)]})
    assert answer["missing"]["services"] == []
    assert host.content("/etc/x") == b"x"


def test_where_nothing_changes_nobody_is_asked(tmp_path: Path, open_port: int, closed: int) -> None:
    host = FakeHost(tmp_path)
    host.present({**FILES, "needs": [need(open_port)]})
    assert host.present({**FILES, "needs": [need(closed)]})["missing"]["services"] == []


@pytest.mark.parametrize("occasion", ["packages", "archives"])
def test_a_mirror_is_asked_only_for_what_has_to_come(tmp_path: Path, closed: int, occasion: str) -> None:
    host = FakeHost(tmp_path)
    assert host.present({**FILES, "needs": [need(closed, only_for=occasion)]})["missing"]["services"] == []
    more = {
        "packages": {"packages": ["p"]},
        "archives": {"archives": [{"path": "/opt/x", "url": "http://127.0.0.1:1/x", "sha256": "ab" * 32}]},
    }[occasion]
    answer = host.present({**FILES, **more, "needs": [need(closed, only_for=occasion)]})
    assert [each["port"] for each in answer["missing"]["services"]] == [closed]


def test_check_mode_asks_nobody(tmp_path: Path, closed: int) -> None:
    answer = FakeHost(tmp_path).perform("present", {**FILES, "needs": [need(closed)]}, check=True)
    assert answer["missing"]["services"] == []


@pytest.mark.parametrize("name", ["a..b", "a" * 64])
def test_a_name_that_is_none_in_the_dns_does_not_answer(name: str) -> None:
    assert not services.answers(services.Need("x", name, 1))


def test_a_need_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    for wrong, said in (({"port": 0}, "between 1 and 65535"), ({"only_for": "x"}, "must be one of packages")):
        with pytest.raises(StateError, match=said):
            host.present({"needs": [{**need(1), **wrong}]})


def test_a_host_says_whose_packages_it_has_and_rpm_gives_up_only_what_nothing_needs() -> None:
    class Rpm(System):
        def run(self, argv: Any, stdin: str | None = None, timeout: float = 120) -> Result:
            words = list(argv)
            if words[0] in ("dpkg-query", "apt-get"):
                return Result(127, "", "no such program")
            if words[:2] == ["rpm", "-q"]:
                return Result(0, "haproxy\nnginx\n", "")
            assert words[:3] == ["rpm", "-e", "--test"]
            return Result(0 if words[3] == "haproxy" else 1, "", "")

    assert packages.manager(Rpm()) == "dnf"
    assert packages.removable(Rpm(), ["haproxy", "nginx"], ["haproxy", "nginx"]) == ["haproxy"]
