"""The reference is printed from the schemas: every property of every noun is in it, and staleness is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from sideband import generate


def test_a_property_becomes_a_row_with_its_need_and_meaning() -> None:
    schema = {
        "type": "array",
        "items": {
            "type": "object",
            "description": "One.",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "format": "name", "description": "Its name."},
                "wide": {"type": "boolean", "default": False, "description": "Whether."},
            },
        },
    }
    assert list(generate.rows(schema, "", False)) == [
        ("[]", "object", "", "One."),
        ("[].name", "name", "required", "Its name."),
        ("[].wide", "boolean", "default False", "Whether."),
    ]


def test_every_schema_has_its_section() -> None:
    text = generate.reference()
    for path in generate.SCHEMAS.glob("*.yml"):
        assert f"## `sideband_{path.stem}`" in text


def test_a_stale_reference_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "REFERENCE", tmp_path / "contract.md")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "contract.md is stale; run make generate\n"
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
