"""A secret is where it belongs and nowhere else: not in what a run prints at its most talkative, not in a
failure, not in logs, caches, the process list or a file that others may read (acceptance 6). The site's own
keys are the markers: each is random, so one line of it found anywhere is a leak."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / ".sideband/lab"
HOSTS = ("rack1", "node1", "mgmt1")


def inside(host: str, script: str, given: str = "") -> str:
    words = [str(ROOT / "lab/lab"), "exec", host, "sh", "-c", script]
    done = subprocess.run(words, input=given.encode(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, f"{host}: {script}\n{done.stderr!r}"
    return done.stdout.decode(errors="replace")


def secret_line(text: str) -> str:
    """The line that holds the secret itself: the first of an elliptic key, the fourth of an OpenSSH one. What
    stands around it is the public half, which is in certificates too."""
    lines = [line for line in text.splitlines() if line and not line.startswith("-----")]
    return lines[3 if "OPENSSH" in text else 0]


@pytest.fixture(scope="module")
def markers() -> list[str]:
    files = [*SITE.glob("pki/*.key"), *SITE.glob("secrets/*")]
    found = [secret_line(path.read_text()) for path in files]
    for path in ("/var/lib/sideband/policy/signing_key", "/var/lib/sideband/policy/rack_key"):
        found.append(secret_line(inside("mgmt1", f"cat {path}")))
    assert len(found) > 10
    assert min(map(len, found)) >= 16
    return found


def leaks(text: str, markers: list[str]) -> list[str]:
    return [marker[:6] + "…" for marker in markers if marker in text]


@contextmanager
def watched(markers: list[str]) -> Iterator[set[str]]:
    """Every command line on this machine, the lab's hosts included, ten times a second."""
    found: set[str] = set()
    over = threading.Event()
    wanted = [marker.encode() for marker in markers]

    def look() -> None:
        while not over.wait(0.1):
            for process in filter(str.isdigit, os.listdir("/proc")):
                try:
                    line = Path("/proc", process, "cmdline").read_bytes()
                except OSError:
                    continue
                if any(marker in line for marker in wanted):
                    found.add(line[:80].decode(errors="replace"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def play(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        ["ansible-playbook", "-i", "inventories/lab", *words, "-vvv", "--diff"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(markers: list[str]) -> dict[str, Any]:
    """What two runs said: one that writes every secret anew, and one that fails with all of them in hand."""
    lost = {"rack1": "/etc/sideband/rack/host.key /etc/sideband/rack/identity.env",
            "node1": "/etc/sideband/node/host.key"}  # fmt: skip
    for host, paths in lost.items():
        inside(host, f"for path in {paths}; do echo other > $path; done")
    books = [f"playbooks/{book}.yml" for book in ("contract", "pki", "policy", "rack", "node")]
    began = int(time.time())
    with watched(markers) as seen:
        code, written = play(*books, "--limit", "rack1,node1,mgmt1")
        assert code == 0, written[-3000:]
        config = inside("rack1", "ls /etc/sideband/rack/*.cfg").split()[0]
        inside("rack1", f"mv {config} /root/kept.cfg && mkdir {config}")
        inside("rack1", "echo other > /etc/sideband/rack/host.key")
        try:
            code, failed = play(*books, "--limit", "rack1,node1,mgmt1")
        finally:
            inside("rack1", f"rmdir {config} && mv /root/kept.cfg {config}")
        assert code != 0
        assert "a file is wanted here" in failed
    code, healed = play(*books, "--limit", "rack1,node1,mgmt1")
    assert code == 0, healed[-3000:]
    return {"written": written, "failed": failed, "healed": healed, "seen": seen, "began": began}


def test_no_output_shows_one(told: dict[str, Any], markers: list[str]) -> None:
    for kind in ("written", "failed", "healed"):
        assert leaks(told[kind], markers) == [], kind
    # The runs really had them in hand, and say that they changed.
    assert "secret /etc/sideband/rack/host.key: " in told["written"]
    assert "secret /etc/sideband/node/host.key: " in told["written"]


def test_no_command_line_held_one(told: dict[str, Any]) -> None:
    assert told["seen"] == set()


@pytest.mark.parametrize("host", HOSTS)
def test_no_log_of_a_host_holds_one(told: dict[str, Any], host: str, markers: list[str]) -> None:
    since = f"--since=@{told['began']}"
    lines = inside(
        host, f"journalctl --no-pager -o cat {since}; cat /var/log/*.log /var/log/*/* 2>/dev/null; true"
    )
    assert re.search("ansible|sideband", lines)  # it is the journal that the runs wrote to
    assert leaks(lines, markers) == []


@pytest.mark.parametrize("host", HOSTS)
def test_nobody_else_on_a_host_may_read_one(told: object, host: str, markers: list[str]) -> None:
    """Nor is one left in a temporary file, whoever may read it."""
    given = "\n".join(markers) + "\n"
    places = "/etc /opt /run /tmp /var /root /home /srv"
    script = (
        "cat > /dev/shm/markers; chmod 600 /dev/shm/markers; trap 'rm /dev/shm/markers' EXIT; "
        f"find {places} -xdev -type f \\( -perm -o+r -o -path '/tmp/*' -o -path '/root/*' \\) -size -8M "
        "-print0 2>/dev/null | xargs -0 -r grep -lFf /dev/shm/markers; true"
    )
    assert inside(host, script, given).split() == []
    kept = "find /etc/sideband /var/lib/sideband -type f -print0 | xargs -0 grep -lFf /dev/shm/markers; true"
    script = f"cat > /dev/shm/markers; chmod 600 /dev/shm/markers; trap 'rm /dev/shm/markers' EXIT; {kept}"
    assert inside(host, script, given).split() != []  # the search finds them where they belong


def test_the_controller_keeps_them_in_closed_rooms_alone(told: object, markers: list[str]) -> None:
    rooms = [
        ROOT / ".ansible",
        ROOT / ".lab/log",
        SITE / "probes",
        Path.home() / ".ansible",
        ROOT / "reports",
    ]
    rooms += Path("/tmp").glob(".ansible*")
    found = [
        str(path)
        for room in rooms
        for path in room.rglob("*")
        if path.is_file() and leaks(path.read_bytes().decode(errors="replace"), markers)
    ]
    found += [str(path) for path in SITE.glob("*.json") if leaks(path.read_text(), markers)]
    assert found == []
    for room in (SITE / "pki", SITE / "secrets"):
        assert room.stat().st_mode & 0o077 == 0, room
        for path in (*room.glob("*.key"), *room.glob("*.identity")):
            assert path.stat().st_mode & 0o077 == 0, path
