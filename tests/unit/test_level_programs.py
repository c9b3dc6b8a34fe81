"""sideband-level: what may be issued, what is sent where, and how a dead rack shows (D7, D9, C6)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from control_kit import Signer
from sideband import documents
from sideband.documents import Verifier

from services import build
from services.level import issue, send
from services.level.ledger import Ledger

RACKS = [
    {"name": "rack1", "rack": "rack1", "address": "192.0.2.21", "port": 22, "nodes": ["node1", "node2"]},
    {"name": "rack2", "rack": "rack2", "address": "2001:db8::22", "port": 2222, "nodes": ["node3"]},
]


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


@pytest.fixture
def config(tmp_path: Path, signer: Signer) -> Path:
    path = tmp_path / "level.json"
    value = {
        "site": "lab",
        "order": ["full", "reduced", "core", "heartbeat"],
        "racks": RACKS,
        "signing_key": str(signer.key),
        "rack_key": "/nonexistent",
        "known_hosts": "/nonexistent",
        "user": "sideband-accept",
        "state_directory": str(tmp_path),
    }
    path.write_text(json.dumps(value))
    return path


class Racks:
    """Stands where SSH would: takes each rack's parcel and answers as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parcels: dict[str, list[dict[str, Any]]] = {}
        self.down: set[str] = set()
        monkeypatch.setattr(send, "send_one", self.send_one)

    def send_one(self, target: send.Target, bundle: str, words: Any, patience: float) -> send.Outcome:
        if target.name in self.down:
            return send.Outcome(target.name, "unreachable", time.time(), 0.1, "no route")
        texts = [text for text, _ in documents.bundle_pairs(bundle.encode())]
        self.parcels[target.name] = [json.loads(text) for text in texts]
        return send.Outcome(target.name, "ok", time.time(), 0.1, "", {"intake_bytes_per_second": 1})


@pytest.fixture
def racks(monkeypatch: pytest.MonkeyPatch) -> Racks:
    return Racks(monkeypatch)


def run(config: Path, *words: str) -> int:
    return issue.main([*words, "--config", str(config)])


def test_a_document_for_all_reaches_every_rack_and_is_truly_signed(
    config: Path, racks: Racks, signer: Signer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = int(time.time() * 1000)
    assert run(config, "core", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"]
    assert before <= result["generation"] <= time.time() * 1000
    assert result["seconds_to_clamp"] is not None
    assert (
        [one["level"] for one in racks.parcels["rack1"]]
        == ["core"]
        == [one["level"] for one in racks.parcels["rack2"]]
    )
    kept = Ledger(str(config.parent)).issued()
    verifier = Verifier(str(signer.allowed))
    documents.examine(kept[0].document.text(), kept[0].signature, "lab", verifier)


def test_a_rack_gets_what_concerns_it_and_nothing_else(config: Path, racks: Racks) -> None:
    run(config, "core")
    run(config, "heartbeat", "--scope", "rack:rack2")
    run(config, "reduced", "--scope", "node:node1")
    assert [one["level"] for one in racks.parcels["rack1"]] == ["reduced", "core"]
    assert [one["level"] for one in racks.parcels["rack2"]] == ["heartbeat", "core"]
    run(config, "full")
    assert [one["level"] for one in racks.parcels["rack1"]] == ["full"]


def test_generations_rise_though_the_clock_falls(
    config: Path, racks: Racks, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, "core")
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    run(config, "full")
    first, second = (one.document.generation for one in Ledger(str(config.parent)).issued())
    assert second == first + 1


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["kore"], "known, highest first: full, reduced, core, heartbeat"),
        (["focus", "--scope", "rack:rack1", "--until", "10m"], "unknown"),
        (["core", "--scope", "rack:rack9"], "known: rack1, rack2"),
        (["core", "--scope", "node:node9"], "known: node1, node2, node3"),
        (["core", "--scope", "everything"], "scope is all"),
        (["core", "--until", "soon"], "a span such as 30m"),
        (["core", "--until", "2001-01-01T00:00:00Z"], "past"),
        (["core", "--until", "0m"], "past"),
        (["core", "--until", ""], "a span such as 30m"),
        (["core", "--until", "\u0663m"], "a span such as 30m"),
        (["core", "--until", "9999999d"], "a span such as 30m"),
        (["core", "--until", "99999999999999999999d"], "a span such as 30m"),
        ([], "one of LEVEL"),
        (["core", "--resend"], "one of LEVEL"),
    ],
)
def test_a_request_that_makes_no_sense_signs_nothing(
    config: Path, racks: Racks, words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, *words) == 2
    assert hint in capsys.readouterr().err
    assert not racks.parcels
    assert not Ledger(str(config.parent)).issued()


def test_focus_needs_a_scope_a_short_until_and_full(
    config: Path, racks: Racks, capsys: pytest.CaptureFixture[str]
) -> None:
    value = json.loads(config.read_text())
    config.write_text(json.dumps({**value, "order": ["focus", *value["order"]]}))
    # Where `focus` is installed it is no rung of the ladder: the highest rung stays `full`.
    assert run(config, "focus", "--until", "10m") == 2
    assert run(config, "focus", "--scope", "rack:rack1") == 2
    assert run(config, "focus", "--scope", "rack:rack1", "--until", "31m") == 2
    assert run(config, "focus", "--scope", "rack:rack1", "--until", "30m") == 0
    run(config, "core", "--scope", "node:node1")
    capsys.readouterr()
    assert run(config, "focus", "--scope", "rack:rack1", "--until", "5m") == 2
    assert "node1 is at core" in capsys.readouterr().err
    assert run(config, "focus", "--scope", "rack:rack2", "--until", "5m") == 0


def test_a_dead_rack_shows_and_the_document_stays_for_it(
    config: Path, racks: Racks, capsys: pytest.CaptureFixture[str]
) -> None:
    racks.down = {"rack2"}
    assert run(config, "core") == 1
    assert "unreachable" in capsys.readouterr().out
    racks.down = set()
    assert run(config, "--resend", "--json") == 0
    assert racks.parcels["rack2"][0]["level"] == "core"
    assert len(Ledger(str(config.parent)).issued()) == 1


def test_show_says_what_is_in_force(config: Path, racks: Racks, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "--show") == 0
    assert "every node is at full" in capsys.readouterr().out
    run(config, "core", "--until", "1h")
    capsys.readouterr()
    assert run(config, "--show", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["level"] == "core"


def test_a_cut_ledger_line_loses_that_line_only(config: Path, racks: Racks) -> None:
    run(config, "core")
    path = config.parent / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    run(config, "reduced")
    run(config, "full")
    ledger = Ledger(str(config.parent))
    assert [one.document.level for one in ledger.issued()] == ["reduced", "full"]
    assert ledger.damaged == 1
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("line", ['{"document": 5, "signature": "x"}', "[" * 200_000, "null", "\ud800"])
def test_a_strange_ledger_line_loses_that_line_only(config: Path, racks: Racks, line: str) -> None:
    path = config.parent / "ledger.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogatepass") + b"\n")
    assert run(config, "core") == 0
    ledger = Ledger(str(config.parent))
    assert [one.document.level for one in ledger.issued()] == ["core"]
    assert ledger.damaged == 1


@pytest.mark.parametrize(
    "text",
    ["[]", "null", "[" * 200_000, '{"order": "full", "racks": []}', '{"order": ["focus"], "racks": []}',
     '{"order": ["full"], "racks": [{"name": "a", "rack": "a", "address": "a", "port": 1e999, "nodes": []}]}',
     '{"order": ["full"], "racks": [{"name": "a", "rack": "a", "address": "a", "port": 1, "nodes": "abc"}]}'],
)  # fmt: skip
def test_a_strange_configuration_is_said(config: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(text)
    assert issue.main(["--check", str(config)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {config}: ")


def test_a_missing_key_and_a_bad_configuration_are_said(
    config: Path, racks: Racks, signer: Signer, capsys: pytest.CaptureFixture[str]
) -> None:
    signer.key.unlink()
    assert run(config, "core") == 2
    assert "cannot sign" in capsys.readouterr().err
    config.write_text("{}")
    assert run(config, "core") == 2
    assert "missing" in capsys.readouterr().err
    assert run(config.parent / "none.json", "core") == 2


def test_ssh_asks_nobody_and_trusts_only_its_own_list() -> None:
    target = send.Target("rack1", "rack1", "2001:db8::21")
    words = send.command(target, "sideband-accept", "/k", "/h")
    for option in (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/h",
        "IdentityFile=/k",
        "ControlPath=none",
        "GlobalKnownHostsFile=/dev/null",
    ):
        assert option in words
    assert "Port=22" in words
    assert words[-2:] == ["2001:db8::21", "sideband-accept"]  # case 4: an address that needs no brackets


def test_a_dead_rack_delays_no_other() -> None:
    def words(target: send.Target) -> list[str]:
        return (
            ["sleep", "30"]
            if target.name == "dead"
            else ["echo", '{"accepted":[1],"applied":true,"refused":[]}']
        )

    parcels = [(send.Target(name, name, name), "") for name in ("dead", "live")]
    dead, live = send.send_all(parcels, words, patience=2.0)
    assert dead.outcome == "unreachable"
    assert "no answer" in dead.detail
    assert live.outcome == "ok"
    assert live.seconds < dead.seconds


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        ("echo ssh: no route >&2; exit 255", "unreachable", "no route"),
        ("echo Permission denied >&2; exit 1", "refused", "Permission denied"),
        ("""echo '{"accepted":[],"refused":[{"reason":"old","detail":"x"}]}'; exit 1""", "refused", "old: x"),
        ("""echo '{"accepted":[1],"refused":[],"problem":"socket"}'; exit 1""", "partial", "socket"),
        ("echo rubbish; exit 0", "refused", "exit 0"),
    ],
)
def test_what_a_rack_says_is_told_apart(script: str, outcome: str, detail: str) -> None:
    found = send.send_one(send.Target("r", "r", "a"), "x", ["sh", "-c", f"cat >/dev/null; {script}"])
    assert found.outcome == outcome
    assert detail in found.detail


def test_archives_are_reproducible_and_run(tmp_path: Path) -> None:
    assert set(build.build(tmp_path)) == set(build.PROGRAMS)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert build.build(tmp_path) == []
    (tmp_path / "level.pyz").unlink()
    assert build.build(tmp_path) == ["level"]
    assert first == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for words in (
        ["level.pyz", "--help"],
        ["accept.pyz", "--help"],
        ["curves.pyz", "--help"],
        ["nodeagent.pyz", "--help"],
        ["nodeagent.pyz", "policy", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, "-I", tmp_path / words[0], *words[1:]], capture_output=True, check=False
        )
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    assert (
        subprocess.run([sys.executable, "-I", tmp_path / "nodeagent.pyz"], capture_output=True).returncode
        == 2
    )
