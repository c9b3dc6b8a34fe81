"""Documents: strict reading, true signatures, who is named (D7, D9)."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from control_kit import Signer, bundle, bundle_of, document, make_key
from sideband import documents
from sideband.documents import Refused, Scope, Verifier

from services.level.issue import sign


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


def reason(call: object, *arguments: object) -> str:
    with pytest.raises(Refused) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value.reason


def test_a_document_survives_its_own_text() -> None:
    one = document(until="2031-01-01T00:00:00Z", scope=Scope("nodes", ("node1", "node2")))
    assert documents.parse_document(one.text()) == one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "[" * 5000,
        document().text()[:-1],  # truncated
        document().text() + " ",  # not canonical
        document().text().replace('"level":"core"', '"level":"core","level":"full"'),  # a key twice
        document().text().replace('"generation":1000', '"generation":1000.0'),
        document().text().replace('"generation":1000', '"generation":true'),
        document().text().replace('"generation":1000', '"generation":-1'),
        document().text().replace('"generation":1000', f'"generation":{2**53 + 1}'),
        document().text().replace('"generation":1000', '"generation":NaN'),
        document().text().replace('"kind":"all"', '"kind":"everything"'),
        document().text().replace('"kind":"all"', '"kind":"racks","names":[]'),
        document().text().replace('"kind":"all"', '"kind":"racks","names":["../etc"]'),
        document().text().replace('"level":"core"', '"level":"../../etc/passwd"'),
        document().text().replace('"actions":[]', '"actions":"all"'),
        document().text().replace('"issued":"2023', '"issued":"now'),
        document().text().replace('"site":"lab"', '"site":"lab","extra":1'),
    ],
)
def test_what_is_not_exactly_a_document_is_malformed(text: str) -> None:
    assert reason(documents.parse_document, text) == "malformed"


def test_an_oversize_document_is_refused_before_it_is_read() -> None:
    names = tuple(f"node{number:05d}" for number in range(1000))
    assert reason(documents.parse_document, document(scope=Scope("nodes", names)).text()) == "oversize"


def test_a_true_signature_holds_and_every_change_breaks_it(signer: Signer) -> None:
    one = signer.document()
    verifier = Verifier(str(signer.allowed))
    assert documents.examine(one.document.text(), one.signature, "lab", verifier) == one
    forged = one.document.text().replace('"level":"core"', '"level":"full"')
    assert reason(documents.examine, forged, one.signature, "lab", verifier) == "signature"
    assert reason(documents.examine, one.document.text(), one.signature[:-60], "lab", verifier) == "signature"
    assert reason(documents.examine, one.document.text(), "", "lab", verifier) == "signature"
    assert reason(documents.examine, one.document.text(), "x" * 5000, "lab", verifier) == "oversize"
    assert reason(documents.examine, one.document.text(), one.signature, "other", verifier) == "site"


def test_a_signature_for_another_purpose_is_refused(signer: Signer, tmp_path: Path) -> None:
    import subprocess

    path = tmp_path / "document"
    path.write_text(document().text())
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(signer.key), "-n", "file", str(path)], check=True
    )
    signature = (tmp_path / "document.sig").read_text()
    verifier = Verifier(str(signer.allowed))
    assert reason(documents.examine, document().text(), signature, "lab", verifier) == "signature"


def test_a_key_that_is_not_trusted_is_refused(signer: Signer, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    signature = sign(document().text(), str(tmp_path / "stranger"))
    verifier = Verifier(str(signer.allowed))
    assert reason(documents.examine, document().text(), signature, "lab", verifier) == "signature"


def test_a_key_that_loses_its_trust_is_refused_although_it_held_before(tmp_path: Path) -> None:
    signer = Signer(tmp_path)
    one = signer.document()
    verifier = Verifier(str(signer.allowed))
    assert verifier.holds(one.document.text(), one.signature)
    signer.allowed.write_text("# nobody\n")
    assert not verifier.holds(one.document.text(), one.signature)
    signer.allowed.unlink()
    assert not verifier.holds(one.document.text(), one.signature)


def test_verification_runs_once_per_document(signer: Signer) -> None:
    one = signer.document()
    verifier = Verifier(str(signer.allowed))
    assert verifier.holds(one.document.text(), one.signature)
    verifier.program = "/nonexistent"
    assert verifier.holds(one.document.text(), one.signature)
    assert not verifier.holds(one.document.text() + " ", one.signature)


def test_a_bundle_is_read_plain_and_in_base64(signer: Signer) -> None:
    raw = bundle_of(signer.document())
    assert documents.bundle_pairs(raw) == documents.bundle_pairs(base64.b64encode(raw) + b"\n")
    assert documents.bundle_pairs(b'{"documents":[]}') == []


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"garbage \xff", "malformed"),
        (b"<html>502</html>", "malformed"),
        (b'{"documents":{}}', "malformed"),
        (b'{"documents":[],"documents":[]}', "malformed"),
        (b'{"documents":[{"document":1,"signature":""}]}', "malformed"),
        (b'{"documents":[{"document":""}]}', "malformed"),
        (b'{"documents":[' + b" " * 11_000 + b"]}", "oversize"),
        (b"A" * 20_000, "oversize"),
        (json.dumps({"documents": [{"document": "", "signature": ""}] * 33}).encode(), "oversize"),
    ],
)
def test_a_bad_bundle_is_refused_with_its_reason(raw: bytes, wanted: str) -> None:
    assert reason(documents.bundle_pairs, raw) == wanted


def test_scope_as_typed() -> None:
    assert documents.scope_from_text("all") == Scope("all")
    assert documents.scope_from_text("rack:b,a,b") == Scope("racks", ("a", "b"))
    assert str(documents.scope_from_text("node:node1")) == "node:node1"
    for text in ("", "rack", "rack:", "rack: ,", "job:1", "node:a b", "racks:a"):
        with pytest.raises(ValueError, match="scope"):
            documents.scope_from_text(text)


RACKS = {"rack1": ["node1", "node2"], "rack2": ["node3"]}


def force(*given: tuple[str, int]) -> list[int]:
    signed = [
        documents.Signed(document(generation=g, scope=documents.scope_from_text(s)), "") for s, g in given
    ]
    return [one.document.generation for one in documents.in_force(signed, RACKS)]


def test_a_document_for_all_ends_older_narrower_ones() -> None:
    assert force(("rack:rack1", 1), ("node:node3", 2), ("all", 3)) == [3]


def test_a_newer_narrower_document_stands_beside_it() -> None:
    assert force(("all", 1), ("rack:rack1", 2), ("node:node3", 3)) == [1, 2, 3]
    assert force(("all", 1), ("rack:rack1", 2), ("rack:rack1", 3)) == [1, 3]


def test_a_rack_ends_its_own_nodes_documents_only() -> None:
    assert force(("node:node1,node3", 1), ("rack:rack1", 2)) == [1, 2]
    assert force(("node:node1", 1), ("rack:rack1", 2)) == [2]


def test_newest_that_names_a_place() -> None:
    texts = [("all", 1), ("rack:rack1", 2), ("node:node1", 3)]
    signed = [
        documents.Signed(document(generation=g, scope=documents.scope_from_text(s)), "") for s, g in texts
    ]

    def at(rack: str, node: str) -> int:
        found = documents.newest(signed, rack, node)
        return found.document.generation if found else 0

    assert (at("rack1", "node1"), at("rack1", "node2"), at("rack2", "node3")) == (3, 2, 1)
    assert documents.newest(signed[2:], "rack2", "node3") is None


def test_a_bundle_that_no_rack_could_serve_is_refused_where_it_is_made(signer: Signer) -> None:
    one = signer.document()
    many = [documents.Signed(document(generation=g), one.signature) for g in range(1, 40)]
    with pytest.raises(ValueError, match="wider scope"):
        documents.bundle_text(many)
    assert len(bundle(("", ""))) < documents.BUNDLE_BYTES


def test_the_largest_bundle_fits_into_one_haproxy_buffer() -> None:
    line = len("body ") + (documents.BUNDLE_BYTES + 2) // 3 * 4
    command = len("add map @18446744073709551615 /var/lib/sideband/rack/documents.map ") + line
    assert command < 16384 - 1024
