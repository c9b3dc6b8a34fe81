"""The node's policy process against a real TLS rack: obeys, refuses, reports, survives (D7, D8)."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from control_kit import Authority, FakeRack, Signer, bundle, bundle_of, fake_rack, make_key, silent_port
from sideband.documents import Scope

from services import build
from services.level.issue import sign
from services.nodeagent import config as policy_config
from services.nodeagent import heartbeat, policy
from services.nodeagent.connection import Rack
from services.nodeagent.policy import Pace, Policy

ORDER = ["full", "reduced", "core", "heartbeat"]


@dataclass
class Node:
    directory: Path
    authority: Authority
    signer: Signer
    rack: FakeRack
    clock: float = 0.0
    value: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        certificate, key = self.authority.issue("node1")
        levels = {}
        for name in ORDER:
            path = self.directory / f"{name}.yml"
            path.write_text(f"# {name}\n")
            levels[name] = {"poll_seconds": 10 if name == "heartbeat" else 2, "scrape": str(path)}
        (self.directory / "state").mkdir()
        self.value = {
            "site": "lab",
            "rack": "rack1",
            "node": "node1",
            "racks_url": [self.rack.url],
            "ca": str(self.authority.path),
            "certificate": str(certificate),
            "key": str(key),
            "allowed_signers": str(self.signer.allowed),
            "levels": levels,
            "order": ORDER,
            "default_level": "full",
            "scrape_path": str(self.directory / "state" / "scrape.yml"),
            "state_directory": str(self.directory / "state"),
            "always_period_seconds": 10,
            "filesystems": ["/"],
        }

    def policy(self) -> Policy:
        config = policy_config.parse(self.value)
        rack = Rack(config.racks_url, config.ca, config.certificate, config.key, timeout=1.0)
        return Policy(config, rack, clock=lambda: self.clock, chance=lambda low, high: 1.0)

    @property
    def scrape(self) -> str:
        return Path(self.value["scrape_path"]).read_text()

    def state(self, name: str) -> Path:
        return self.directory / "state" / name

    @property
    def series(self) -> dict[str, float]:
        lines = self.rack.pushed[-1].splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    @property
    def config_path(self) -> Path:
        path = self.directory / "policy.json"
        path.write_text(json.dumps(self.value))
        return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture
def node(tmp_path: Path, authority: Authority, signer: Signer) -> Iterator[Node]:
    with fake_rack(authority) as rack:
        yield Node(tmp_path, authority, signer, rack)


# -- obeying ----------------------------------------------------------------------------------------------


def test_a_node_starts_at_the_default_and_obeys_what_names_it(node: Node) -> None:
    process = node.policy()
    process.apply()
    assert node.scrape == "# full\n"
    node.rack.serve(node.signer.document("core", 7))
    assert process.fetch()
    assert node.scrape == "# core\n"
    assert process.push()
    assert node.series['sideband_policy_level{job="policy",level="core"}'] == 2
    assert node.series['sideband_policy_generation{job="policy"}'] == 7


def test_the_answer_may_be_base64(node: Node) -> None:
    raw = base64.b64encode(bundle_of(node.signer.document("core", 7)))
    node.rack.policy = (200, raw, '"x"')
    process = node.policy()
    assert process.fetch()
    assert node.scrape == "# core\n"


def test_the_newest_document_that_names_the_node_wins(node: Node) -> None:
    node.rack.serve(
        node.signer.document("core", 7),
        node.signer.document("reduced", 8, scope=Scope("racks", ("rack1",))),
        node.signer.document("heartbeat", 9, scope=Scope("nodes", ("node2",))),
    )
    process = node.policy()
    process.fetch()
    assert node.scrape == "# reduced\n"
    assert not process.refused


def test_an_unchanged_answer_is_asked_for_once(node: Node) -> None:
    node.rack.serve(node.signer.document("core", 7))
    process = node.policy()
    process.fetch()
    assert process.fetch()
    assert process.fetch()
    assert node.rack.fetched == [None, '"one"', '"one"']
    assert node.rack.connections == 1


BAD = {
    "forged": "signature",
    "stranger": "signature",
    "namespace": "signature",
    "truncated": "malformed",
    "twice": "malformed",
    "half a character": "malformed",
    "site": "site",
    "scope": "scope",
    "old": "old",
    "level": "level",
    "oversize": "oversize",
    "cut bundle": "malformed",
    "garbage": "malformed",
    "oversize bundle": "oversize",
}


def bad_answer(node: Node, kind: str, directory: Path) -> bytes:
    good = node.signer.document("heartbeat", 100)
    text = good.document.text()
    if kind == "stranger":
        make_key(directory / "stranger")
        return bundle((text, sign(text, str(directory / "stranger"))))
    if kind == "namespace":
        (directory / "d").write_text(text)
        subprocess.run(
            [
                "ssh-keygen",
                "-q",
                "-Y",
                "sign",
                "-f",
                str(node.signer.key),
                "-n",
                "file",
                str(directory / "d"),
            ],
            check=True,
        )
        return bundle((text, (directory / "d.sig").read_text()))
    names = tuple(f"node{number}" for number in range(700))
    return {
        "forged": lambda: bundle((text.replace('"heartbeat"', '"reduced"'), good.signature)),
        "truncated": lambda: bundle((text[:-9], good.signature)),
        "twice": lambda: bundle((text.replace("{", '{"level":"full",', 1), good.signature)),
        "half a character": lambda: bundle((text, "\ud800")),
        "site": lambda: bundle_of(node.signer.document("heartbeat", 100, site="elsewhere")),
        "scope": lambda: bundle_of(node.signer.document("heartbeat", 100, scope=Scope("racks", ("rack2",)))),
        "old": lambda: bundle_of(node.signer.document("heartbeat", 6)),
        "level": lambda: bundle_of(node.signer.document("turbo", 100)),
        "oversize": lambda: bundle_of(node.signer.document("heartbeat", 100, scope=Scope("nodes", names))),
        "cut bundle": lambda: bundle_of(good)[:-40],
        "garbage": lambda: b"\x00\xffnot at all",
        "oversize bundle": lambda: b"A" * 40_000,
    }[kind]()


@pytest.mark.parametrize("kind", BAD)
def test_what_must_not_be_obeyed_is_refused_counted_and_reported(
    node: Node, kind: str, tmp_path: Path
) -> None:
    process = node.policy()
    node.rack.serve(node.signer.document("core", 7))
    process.fetch()
    node.rack.policy = (200, bad_answer(node, kind, tmp_path), '"bad"')
    process.fetch()
    assert node.scrape == "# core\n"
    assert process.state.generation == 7
    assert process.refused == {BAD[kind]: 1}
    process.push()
    assert node.series[f'sideband_policy_refused_total{{job="policy",reason="{BAD[kind]}"}}'] == 1
    # Served on and on, it is one refusal; and a sound document is still obeyed afterwards.
    process.fetch()
    assert sum(process.refused.values()) == 1
    node.rack.serve(node.signer.document("reduced", 200), etag='"two"')
    process.fetch()
    assert node.scrape == "# reduced\n"


def test_a_second_document_of_the_same_generation_is_refused(node: Node) -> None:
    process = node.policy()
    node.rack.serve(node.signer.document("core", 7))
    process.fetch()
    node.rack.serve(node.signer.document("full", 7), etag='"two"')
    process.fetch()
    assert node.scrape == "# core\n"
    assert process.refused == {"old": 1}


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_rack_that_answers_an_error_changes_nothing(node: Node, status: int) -> None:
    process = node.policy()
    node.rack.serve(node.signer.document("core", 7))
    process.fetch()
    node.rack.policy = (status, b"no", None)
    assert not process.fetch()
    assert node.scrape == "# core\n"
    assert not process.refused
    assert process.push()  # the heartbeat flows all the same


def test_unchanged_to_a_first_question_is_no_answer(node: Node) -> None:
    node.rack.policy = (304, b"", None)
    assert not node.policy().fetch()


def test_a_level_never_rises_by_itself_when_until_passes(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = node.policy()
    node.rack.serve(node.signer.document("core", 7, until="2023-11-14T23:00:00Z"))
    for moment in (1_700_000_000.0, 1_900_000_000.0, 10.0, 1_900_000_000.0):  # the clock jumps both ways
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        node.clock += 60
        process.step()
        assert node.scrape == "# core\n"
    assert capsys.readouterr().err.count("has passed") == 1


def test_a_jumping_clock_neither_stops_nor_hurries_the_process(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = node.policy()
    process.step()
    asked = len(node.rack.fetched)
    for moment in (0.0, 4_000_000_000.0, -5.0):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        assert 0 < process.step() <= 2
    assert len(node.rack.fetched) == asked
    node.clock += 2.1
    process.step()
    assert len(node.rack.fetched) == asked + 1


# -- state ------------------------------------------------------------------------------------------------


def obey(node: Node, *levels: str) -> None:
    process = node.policy()
    for number, level in enumerate(levels, start=7):
        node.rack.serve(node.signer.document(level, number), etag=f'"{number}"')
        process.fetch()


def test_a_restart_neither_raises_nor_forgets(node: Node) -> None:
    obey(node, "core")
    node.rack.policy = (503, b"", None)
    process = node.policy()
    process.apply()
    assert node.scrape == "# core\n"
    assert process.state.generation == 7
    node.rack.serve(node.signer.document("full", 6))
    process.fetch()
    assert node.scrape == "# core\n"
    assert process.refused == {"old": 1}


HALF = b'{"document":"{}","signature":"\\ud800"}'


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"\xff" * 50_000, b'{"document":"{}","signature":""}', b"[1]", HALF]
)
def test_damaged_state_falls_back_to_the_one_before_and_says_so(
    node: Node, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    obey(node, "reduced", "core")
    node.state("obeyed.json").write_bytes(damage)
    process = node.policy()
    assert process.state.level == "reduced"
    assert process.state.floor == 8
    assert "damaged" in capsys.readouterr().err
    # The rack's document is the one that was lost: it is obeyed again, though its generation is not higher.
    process.fetch()
    assert process.state.level == "core"
    assert not process.refused


def test_a_floor_that_no_document_can_reach_is_damage(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    obey(node, "reduced", "core")
    node.state("generation").write_bytes(b"9" * 40)
    process = node.policy()
    assert process.state.floor == 8
    assert "generation is damaged" in capsys.readouterr().err


def test_damage_to_everything_keeps_the_level_that_the_sampler_runs_at(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    obey(node, "reduced", "core")
    for name in ("obeyed.json", "obeyed.previous.json", "generation"):
        node.state(name).write_bytes(b"\x00rubbish")
    process = node.policy()
    assert process.state.level == "core"
    assert "staying at level core" in capsys.readouterr().err
    process.fetch()
    assert process.state.level == "core"
    assert process.state.generation == 8


def test_a_document_that_was_stored_by_hand_is_not_obeyed(node: Node) -> None:
    obey(node, "core")
    stored = json.loads(node.state("obeyed.json").read_text())
    stored["document"] = stored["document"].replace('"core"', '"full"')
    node.state("obeyed.json").write_text(json.dumps(stored))
    assert node.policy().state.level == "core"  # the scrape file in use says so


def test_an_unwritable_state_directory_stops_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from services import durable

    def full(path: str, data: bytes, mode: int = 0o644) -> None:
        raise OSError(28, "No space left on device")

    process = node.policy()
    process.apply()
    monkeypatch.setattr(durable, "write", full)
    node.rack.serve(node.signer.document("core", 7))
    assert not process.fetch()
    assert process.push()
    monkeypatch.undo()
    assert process.fetch()
    assert node.scrape == "# core\n"


def test_a_level_file_that_a_deployment_replaced_is_taken_up(node: Node) -> None:
    process = node.policy()
    process.step()
    (node.directory / "full.yml").write_text("# full, newer\n")
    node.clock += 10.1
    process.step()
    assert node.scrape == "# full, newer\n"


# -- reporting and pace -----------------------------------------------------------------------------------


def test_the_series_of_every_level_are_there(node: Node) -> None:
    process = node.policy()
    process.fetch()
    process.push()
    names = {name.partition("{")[0] for name in node.series}
    assert names >= {
        "up",
        "node_cpu_count",
        "node_memory_MemTotal_bytes",
        "node_filesystem_size_bytes",
        "node_vmstat_oom_kill",
        "node_filesystem_readonly",
        "sideband_policy_level",
        "sideband_policy_generation",
        "sideband_policy_refused_total",
        "sideband_policy_last_fetch_age_seconds",
    }
    assert node.series['up{job="policy"}'] == 1
    assert node.series['node_cpu_count{job="policy"}'] == os.cpu_count()
    assert all('job="policy"' in name for name in node.series)


def test_what_cannot_be_read_is_missing_and_never_zero(tmp_path: Path) -> None:
    odd = tmp_path / "vmstat"
    odd.write_text("nr_free_pages 1\noom_kill many\n")
    assert heartbeat.oom_kills(str(odd)) is None
    assert heartbeat.memory_bytes(str(tmp_path / "none")) is None
    text = heartbeat.exposition(heartbeat.Filesystems(["/nonexistent"]), 'a"b\\', 0, 0, {}, None)
    assert "filesystem" not in text
    assert "last_fetch" not in text
    assert 'level="a\\"b\\\\"' in text


def test_a_hanging_mount_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 49."""
    real = os.statvfs
    asked: list[str] = []

    def slow(path: str) -> os.statvfs_result:
        asked.append(path)
        if path == "/hung":
            time.sleep(0.5)
        return real("/")

    monkeypatch.setattr(os, "statvfs", slow)
    filesystems = heartbeat.Filesystems(["/hung", "/"], patience=0.05)
    for _ in range(3):
        assert set(filesystems.read()) == {"/"}
    assert asked.count("/hung") == 1  # one thread waits, not one a round


def test_a_change_is_reported_at_once_and_else_every_period(node: Node) -> None:
    process = node.policy()
    process.step()
    assert len(node.rack.pushed) == 1
    node.clock += 2.1
    process.step()
    assert len(node.rack.pushed) == 1
    node.rack.serve(node.signer.document("core", 7))
    node.clock += 2.1
    process.step()
    assert len(node.rack.pushed) == 2
    assert node.series['sideband_policy_generation{job="policy"}'] == 7


def test_policy_is_fetched_also_while_pushes_fail(node: Node) -> None:
    process = node.policy()
    node.rack.push_status = 503
    node.rack.serve(node.signer.document("core", 7))
    process.step()
    assert node.scrape == "# core\n"
    for _ in range(20):
        node.clock += 2.1
        process.step()
    assert len(node.rack.fetched) == 21
    assert len(node.rack.pushed) <= 4


def test_tries_slow_down_while_they_fail_and_have_a_ceiling(node: Node) -> None:
    process = node.policy()
    node.rack.policy = (503, b"", None)
    waits = []
    for _ in range(8):
        process.fetch()
        waits.append(process._fetch.due - node.clock)
    assert waits[:3] == [4, 8, 15]
    assert max(waits) == 15


def test_the_pace_follows_the_level(node: Node) -> None:
    process = node.policy()
    node.rack.serve(node.signer.document("heartbeat", 7))
    process.fetch()
    assert process._fetch.due - node.clock == 10


def test_nodes_never_fall_into_step() -> None:
    pace = Pace(lambda: 0.0, lambda low, high: high)
    pace.succeeded(10)
    assert pace.due == pytest.approx(12)
    pace = Pace(lambda: 0.0, lambda low, high: low)
    pace.failed(2)
    assert pace.due == pytest.approx(3.2)


def test_a_night_without_a_rack_fills_no_journal(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    process = node.policy()
    node.rack.policy = (503, b"", None)
    for _ in range(50):
        process.fetch()
    assert capsys.readouterr().err.count("policy answered 503") == 1


# -- connection -------------------------------------------------------------------------------------------


def test_one_connection_is_kept_and_renewed_when_the_rack_had_closed_it(node: Node) -> None:
    process = node.policy()
    process.fetch()
    process.push()
    assert node.rack.connections == 1
    process.rack._connection.sock.close()  # type: ignore[union-attr]
    assert process.fetch()
    assert process.push()
    assert node.rack.connections == 2


def test_a_rack_with_another_authority_or_address_is_not_talked_to(node: Node, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with fake_rack(Authority(tmp_path / "other")) as stranger:
        node.value["racks_url"] = [stranger.url]
        assert not node.policy().fetch()
        assert stranger.fetched == []
    with fake_rack(node.authority, "elsewhere", "192.0.2.1") as elsewhere:
        node.value["racks_url"] = [elsewhere.url]
        assert not node.policy().fetch()
        assert elsewhere.fetched == []


def test_the_next_rack_is_asked_when_one_is_dead_or_silent(node: Node) -> None:
    listener, port = silent_port()
    with listener:
        node.value["racks_url"] = [f"https://127.0.0.1:{port}", node.rack.url]
        node.rack.serve(node.signer.document("core", 7))
        process = node.policy()
        started = time.monotonic()
        assert not process.fetch()
        assert time.monotonic() - started < 3
        assert process.fetch()
        assert node.scrape == "# core\n"


def test_a_replaced_certificate_is_used_and_a_half_replaced_pair_is_not(node: Node) -> None:
    """Case 62."""
    process = node.policy()
    process.fetch()
    certificate, key = node.authority.issue("node1-renewed")
    Path(node.value["certificate"]).write_bytes(certificate.read_bytes())
    assert process.fetch()
    assert node.rack.peers == ["node1"]
    Path(node.value["key"]).write_bytes(key.read_bytes())
    assert process.fetch()
    assert node.rack.peers == ["node1", "node1-renewed"]
    Path(node.value["key"]).unlink()
    assert process.fetch()


def test_an_ipv6_rack_is_understood(node: Node) -> None:
    """Case 4."""
    config = policy_config.parse({**node.value, "racks_url": ["https://[fd00:5b:21::21]:8427"]})
    assert config.racks_url == ("https://[fd00:5b:21::21]:8427",)


# -- the program ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    build.build(directory)
    return directory / "nodeagent.pyz"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", program, "policy", *words], capture_output=True, text=True, timeout=20
    )


def test_once_fetches_obeys_and_reports(node: Node, program: Path) -> None:
    node.rack.serve(node.signer.document("core", 7))
    done = run(program, "--once", "--config", str(node.config_path))
    assert done.returncode == 0, done.stderr
    assert node.scrape == "# core\n"
    assert len(node.rack.pushed) == 1


def test_a_missing_pem_is_named(node: Node, program: Path) -> None:
    node.value["key"] = "/nonexistent/host.key"
    done = run(program, "--once", "--config", str(node.config_path))
    assert done.returncode == 1
    assert "/nonexistent/host.key" in done.stderr
    assert "Traceback" not in done.stderr
    assert node.scrape == "# full\n"  # the sampler has its level all the same


def test_a_bad_configuration_names_every_problem(node: Node, program: Path) -> None:
    node.value.update(site=None, order=["full", "none"], racks_url=["http://x"])
    done = run(program, "--check", str(node.config_path))
    assert done.returncode == 2
    assert "site" in done.stderr
    assert "Traceback" not in done.stderr
    node.value.update(site="lab")
    done = run(program, "--check", str(node.config_path))
    assert "levels.none" in done.stderr
    assert "racks_url" in done.stderr
    assert run(program, "--config", "/nonexistent.json").returncode == 2
    node.config_path.write_text("[" * 200_000)
    done = run(program, "--check", str(node.config_path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_good_configuration_passes_its_check(node: Node, program: Path) -> None:
    assert run(program, "--check", str(node.config_path)).returncode == 0


def test_sigterm_ends_it_cleanly_even_while_a_rack_is_silent(node: Node, program: Path) -> None:
    listener, port = silent_port()
    with listener:
        node.value["racks_url"] = [f"https://127.0.0.1:{port}"]
        words = [sys.executable, "-I", str(program), "policy", "--config", str(node.config_path)]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 10
        while not Path(node.value["scrape_path"]).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=10)
        assert process.returncode == 0
        assert "Traceback" not in said
        assert time.monotonic() - started < 4  # the rack's patience is 5 s


def test_process_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        policy.main(["--help"])
    assert ended.value.code == 0
    assert "--once" in capsys.readouterr().out
