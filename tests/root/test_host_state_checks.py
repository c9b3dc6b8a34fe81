"""Candidates are checked where they will be, together, before anything is written."""

from __future__ import annotations

import functools
import hashlib
import http.server
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sideband.state.system import Result, StateError, System
from state_kit import FakeHost, tree

pytestmark = pytest.mark.root


class CheckingHost(FakeHost):
    """Programs of the checks and of unpacking are real."""

    def run(self, argv: Any, stdin: str | None = None, timeout: float = 120) -> Result:
        if argv[0] in ("sh", "mount", "dpkg-deb", "tar", "no-such-daemon"):
            return System.run(self, argv, stdin, timeout)
        return super().run(argv, stdin, timeout)


@pytest.fixture
def host(tmp_path: Path) -> CheckingHost:
    return CheckingHost(tmp_path / "host")


def wanted(host: CheckingHost, content: str = "good\n", key: str = "key\n") -> dict[str, Any]:
    check = f"sh -c 'grep -q good $0 && grep -q key {host.base}/etc/sideband/host.key' %s"
    return {
        "directories": [{"path": "/etc/sideband", "mode": "0750"}],
        "files": [
            {"path": "/etc/sideband/a.cfg", "content": content, "check": check},
            {"path": "/etc/sideband/host.key", "content": key},
        ],
    }


def test_a_check_sees_the_other_candidates_before_any_is_written(host: CheckingHost) -> None:
    before = tree(host.base)
    host.present(wanted(host), check=True)
    assert tree(host.base) == before
    host.present(wanted(host))
    assert not host.present(wanted(host))["changed"]


@pytest.mark.parametrize("faulty", [{"content": "bad\n"}, {"key": "none\n"}])
def test_a_failed_check_changes_nothing_at_all(host: CheckingHost, faulty: dict[str, str]) -> None:
    host.present(wanted(host))
    before = tree(host.base)
    changed = wanted(host, **{"content": "good again\n", "key": "key 2\n", **faulty})
    changed["files"].append({"path": "/etc/other", "content": "x"})
    with pytest.raises(StateError, match="nothing was changed"):
        host.present(changed)
    assert tree(host.base) == before
    mounts = Path("/proc/self/mounts").read_text()
    assert str(host.base) not in mounts


def test_a_check_whose_program_comes_with_a_missing_package_is_announced_only(host: CheckingHost) -> None:
    fragment = {
        "packages": ["daemon"],
        "files": [{"path": "/etc/d.cfg", "content": "x", "check": "no-such-daemon -t %s"}],
    }
    answer = host.present(fragment, check=True)
    assert "file /etc/d.cfg: cannot be checked before no-such-daemon is installed" in answer["plan"]
    assert host.present(fragment)["missing"]["packages"] == ["daemon"]
    host.packages.add("daemon")
    with pytest.raises(StateError, match="its check needs no-such-daemon"):
        host.present(fragment)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """The address of a web server over tmp_path."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def archive(tmp_path: Path, text: str, mirror: str) -> dict[str, str]:
    place = tmp_path / f"src-{text}"
    (place / "usr/bin").mkdir(parents=True)
    program = place / "usr/bin/tool"
    program.write_text(f"#!/bin/sh\necho {text}\n")
    program.chmod(0o755)
    packed = tmp_path / f"{text}.tar"
    subprocess.run(["tar", "-cf", str(packed), "-C", str(place), "."], check=True)
    return {
        "path": "/opt/sideband/tool",
        "url": f"{mirror}/{packed.name}",
        "format": "tar",
        "sha256": hashlib.sha256(packed.read_bytes()).hexdigest(),
    }


def test_an_archive_is_unpacked_checked_by_its_sum_replaced_and_brought_back(
    host: CheckingHost, tmp_path: Path, mirror: str
) -> None:
    before = tree(host.base)
    one, two = archive(tmp_path, "one", mirror), archive(tmp_path, "two", mirror)

    def says() -> str:
        store = host.base / str((host.base / "opt/sideband/tool").readlink()).lstrip("/")
        return subprocess.run(
            [store / "usr/bin/tool"], capture_output=True, text=True, check=True
        ).stdout.strip()

    host.present({"archives": [one]})
    assert says() == "one"
    assert not host.present({"archives": [one]})["changed"]
    with pytest.raises(StateError, match="sha256 is"):
        host.present({"archives": [{**two, "sha256": "0" * 64}]})
    assert says() == "one"
    host.present({"archives": [two]})
    assert says() == "two"
    host.perform("reverted")
    assert says() == "one"
    host.perform("absent")
    assert tree(host.base) == before


@pytest.mark.parametrize("answer", [b"", b"nonsense\n\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
def test_a_mirror_that_does_not_answer_as_one_is_named(
    host: CheckingHost, tmp_path: Path, answer: bytes
) -> None:
    class Odd(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        lost = archive(tmp_path, "one", f"http://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(StateError, match="is the site's mirror up"):
            host.present({"archives": [lost]})
