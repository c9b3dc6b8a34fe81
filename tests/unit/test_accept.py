"""sideband-accept: a rack takes what is signed, its own and not older, clamps, counts the rest (D6, D7)."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_kit import FakeRuntime, Signer, bundle, bundle_of, make_key
from sideband import documents
from sideband.documents import Scope

from services import build
from services.level import accept, runtime


class Rack:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.signer = Signer(directory)
        self.haproxy = FakeRuntime(directory / "admin.sock")
        self.config = directory / "accept.json"
        self.configure("rack1", ["node1", "node2"])

    def configure(self, rack: str, nodes: list[str]) -> None:
        value = {
            "site": "lab",
            "rack": rack,
            "nodes": nodes,
            "order": ["full", "reduced", "core", "heartbeat"],
            "levels": {"full": 0, "reduced": 3000, "core": 1000, "heartbeat": 100},
            "admin_socket": str(self.directory / "admin.sock"),
            "documents_map": self.map("documents"),
            "intake_map": self.map("intake"),
            "allowed_signers": str(self.signer.allowed),
            "state_directory": str(self.directory),
        }
        self.config.write_text(json.dumps(value))

    def map(self, name: str) -> str:
        return str(self.directory / f"{name}.map")

    def take(self, raw: bytes) -> tuple[int, dict[str, Any]]:
        return accept.run(str(self.config), io.BytesIO(raw))

    @property
    def refused(self) -> dict[str, int]:
        path = self.directory / "refused.json"
        found: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @property
    def limit(self) -> str:
        return self.haproxy.maps[self.map("intake")]["bytes_per_second"]

    @property
    def served(self) -> list[str]:
        body = base64.b64decode(self.haproxy.maps[self.map("documents")]["body"])
        return [json.loads(text)["level"] for text, _ in documents.bundle_pairs(body)]


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    found = Rack(tmp_path)
    yield found
    found.haproxy.close()


def test_a_sound_document_is_served_and_clamps(rack: Rack) -> None:
    code, answer = rack.take(bundle_of(rack.signer.document("core", 5)))
    assert code == 0
    assert answer["applied"]
    assert answer["accepted"] == [5]
    assert answer["clamp_seconds"] < 3
    assert rack.limit == "1000"
    assert rack.served == ["core"]
    assert rack.refused == {}
    # The same on disk, for the front's next start.
    lines = dict(line.split(" ", 1) for line in Path(rack.map("documents")).read_text().splitlines())
    assert lines == rack.haproxy.maps[rack.map("documents")]
    assert set(lines) == {"body", "etag"}
    assert Path(rack.map("intake")).read_text() == "bytes_per_second 1000\n"
    # The clamp comes first: it is what saves the network.
    assert [one.rsplit("/", 1)[1] for one in rack.haproxy.commands if one.startswith("commit")] == [
        "intake.map",
        "documents.map",
    ]


def test_full_is_no_limit(rack: Rack) -> None:
    rack.take(bundle_of(rack.signer.document("core", 5)))
    rack.take(bundle_of(rack.signer.document("full", 6)))
    assert rack.limit == "0"
    assert rack.served == ["full"]


def test_forged_truncated_old_and_misplaced_documents_are_refused_and_counted(
    rack: Rack, tmp_path: Path
) -> None:
    good = rack.signer.document("core", 100)
    assert rack.take(bundle_of(good))[0] == 0
    before = dict(rack.haproxy.maps)
    text = good.document.text()
    make_key(tmp_path / "stranger")
    from services.level.issue import sign

    strange = rack.signer.document("full", 200).document
    for raw in (
        bundle((text.replace("core", "full"), good.signature)),
        bundle((strange.text(), sign(strange.text(), str(tmp_path / "stranger")))),
        bundle((text[:-20], good.signature)),
        bundle((text.replace('"core"', '"core","level":"full"'), good.signature)),
        bundle((text, "\ud800")),
        bundle_of(good)[:-30],
        b"A" * 30_000,
        bundle_of(rack.signer.document("full", 200, site="other")),
        bundle_of(rack.signer.document("full", 200, scope=Scope("racks", ("rack2",)))),
        bundle_of(rack.signer.document("full", 200, scope=Scope("nodes", ("node3",)))),
        bundle_of(rack.signer.document("turbo", 200)),
        bundle_of(rack.signer.document("full", 99)),
    ):
        code, answer = rack.take(raw)
        assert (code, answer["accepted"], answer["applied"]) == (1, [], False), raw
    assert rack.refused == {
        "signature": 2,
        "malformed": 4,
        "oversize": 1,
        "site": 1,
        "scope": 2,
        "level": 1,
        "old": 1,
    }
    assert rack.haproxy.maps == before
    assert rack.limit == "1000"


def test_a_document_for_rack1_is_refused_by_rack2(rack: Rack) -> None:
    rack.configure("rack2", ["node3"])
    code, answer = rack.take(bundle_of(rack.signer.document("core", 5, scope=Scope("racks", ("rack1",)))))
    assert code == 1
    assert answer["refused"][0]["reason"] == "scope"
    assert rack.refused == {"scope": 1}


def test_the_sound_part_of_a_bundle_is_taken(rack: Rack) -> None:
    good, bad = rack.signer.document("core", 5), rack.signer.document("full", 6, site="other")
    code, answer = rack.take(bundle_of(good, bad))
    assert code == 1
    assert answer["applied"]
    assert answer["accepted"] == [5]
    assert rack.limit == "1000"


def test_sending_again_changes_nothing_and_is_no_refusal(rack: Rack) -> None:
    raw = bundle_of(rack.signer.document("core", 5))
    rack.take(raw)
    before = dict(rack.haproxy.maps)
    assert rack.take(raw)[0] == 0
    assert rack.haproxy.maps == before
    assert rack.refused == {}


def test_what_is_in_force_stays_though_a_bundle_omits_it(rack: Rack) -> None:
    rack.take(bundle_of(rack.signer.document("core", 5)))
    rack.take(bundle_of(rack.signer.document("heartbeat", 6, scope=Scope("nodes", ("node1",)))))
    assert rack.served == ["heartbeat", "core"]
    rack.take(bundle_of(rack.signer.document("full", 7)))
    assert rack.served == ["full"]


def test_one_limit_for_a_rack_is_the_widest_that_a_node_needs(rack: Rack) -> None:
    rack.take(bundle_of(rack.signer.document("heartbeat", 5, scope=Scope("nodes", ("node1",)))))
    assert rack.limit == "0"  # node2 is still at full
    rack.take(bundle_of(rack.signer.document("core", 6, scope=Scope("nodes", ("node2",)))))
    assert rack.limit == "1000"


def test_a_deaf_front_is_said_and_the_disk_has_it(rack: Rack) -> None:
    rack.haproxy.deaf = True
    code, answer = rack.take(bundle_of(rack.signer.document("core", 5)))
    assert code == 1
    assert not answer["applied"]
    assert "prepare map" in answer["problem"]
    assert Path(rack.map("intake")).read_text() == "bytes_per_second 1000\n"
    rack.haproxy.deaf = False
    assert rack.take(bundle_of(rack.signer.document("core", 5)))[0] == 0
    assert rack.limit == "1000"


def test_a_dead_front_is_said(rack: Rack) -> None:
    rack.haproxy.close()
    code, answer = rack.take(bundle_of(rack.signer.document("core", 5)))
    assert code == 1
    assert "admin.sock" in answer["problem"]


def test_a_front_that_holds_other_entries_is_noticed(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "read_map", lambda path, name: {"bytes_per_second": "7"})
    code, answer = rack.take(bundle_of(rack.signer.document("core", 5)))
    assert code == 1
    assert "holds other entries" in answer["problem"]


def test_damaged_state_is_said_and_replaced(rack: Rack) -> None:
    rack.take(bundle_of(rack.signer.document("core", 5)))
    for name in ("bundle.json", "refused.json"):
        (rack.directory / name).write_text("{")
    code, answer = rack.take(bundle_of(rack.signer.document("reduced", 6)))
    assert code == 0
    assert "bundle.json" in answer["damaged"]
    assert rack.served == ["reduced"]


def test_a_document_of_a_key_that_lost_its_trust_leaves_and_the_others_stay(rack: Rack) -> None:
    rack.take(bundle_of(rack.signer.document("core", 5)))
    path = rack.directory / "bundle.json"
    good = json.loads(path.read_text())["documents"][0]
    bad = {"document": rack.signer.document("heartbeat", 4).document.text(), "signature": good["signature"]}
    path.write_text(json.dumps({"documents": [bad, good]}))
    code, answer = rack.take(bundle_of(rack.signer.document("reduced", 6, scope=Scope("nodes", ("node1",)))))
    assert code == 0
    assert "signature" in answer["damaged"]
    assert rack.served == ["reduced", "core"]


def test_the_largest_bundle_passes_the_socket(rack: Rack) -> None:
    names = tuple(sorted(["node1", *(f"node{number:04d}" for number in range(400))]))
    big = rack.signer.document("core", 5, scope=Scope("nodes", names))
    more = rack.signer.document("core", 6, scope=Scope("nodes", ("node2", *names[:320])))
    raw = bundle_of(big, more)
    assert 9000 < len(raw) < documents.BUNDLE_BYTES
    assert rack.take(raw)[0] == 0
    assert len(rack.served) == 2


def test_the_program_answers_rubbish_with_a_reason_and_no_traceback(rack: Rack, tmp_path: Path) -> None:
    build.build(tmp_path / "build")
    program = tmp_path / "build" / "accept.pyz"
    for raw, config in ((b"\x00\xff" * 100, rack.config), (b"", tmp_path / "none.json")):
        done = subprocess.run(
            [sys.executable, "-I", program, config], input=raw, capture_output=True, check=False
        )
        answer = json.loads(done.stdout)
        assert done.returncode in (1, 2)
        assert not done.stderr
        assert not answer["applied"]
    rack.directory.joinpath("accept.json").write_text('{"site": 3}')
    done = subprocess.run(
        [sys.executable, "-I", program, rack.config], input=b"", capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "missing" in json.loads(done.stdout)["problem"]
    assert not done.stderr


@pytest.mark.parametrize(
    "change", [{"levels": {"full": float("inf")}}, {"nodes": "node1"}, {"order": "full"}, {"levels": []}]
)
def test_a_strange_configuration_is_said(
    rack: Rack, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    rack.config.write_text(json.dumps({**json.loads(rack.config.read_text()), **change}))
    assert accept.main(["--check", str(rack.config)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {rack.config}: ")


@pytest.mark.parametrize("words", [["--check"], ["--chek", "a"], ["a", "b"]])
def test_arguments_that_make_no_sense_are_no_files(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert accept.main(words) == 2
    assert "usage: sideband-accept" in capsys.readouterr().err


def test_a_closed_standard_input_is_said(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert accept.main([str(rack.config)]) == 2
    assert json.loads(capsys.readouterr().out)["problem"] == "the standard input is closed"


def test_a_peer_that_holds_the_line_open_is_given_up(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "_PATIENCE_SECONDS", 1)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb"):
        code, answer = accept.run(str(rack.config), stream)
    assert code == 2
    assert "nothing more came" in answer["problem"]
