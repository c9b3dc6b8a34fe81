"""What is printed from the schemas: every property of every noun and role, and staleness is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from contract_kit import ROOT
from sideband import generate, load, shape


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
    assert list(generate.rows(schema, "", False, {})) == [
        ("[]", "object", "", "One."),
        ("[].name", "name", "required", "Its name."),
        ("[].wide", "boolean", "default False", "Whether."),
    ]


def test_every_noun_has_its_section() -> None:
    text = generate.reference(generate.nouns())
    for variable in (*load.SITE_NOUNS, *load.HOST_NOUNS):
        assert f"## `{load.PREFIX}{variable}`" in text


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A house of one noun and one role."""
    schemas = tmp_path / "schemas"
    (schemas / "roles").mkdir(parents=True)
    (tmp_path / "roles" / "tool").mkdir(parents=True)
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "roles" / "tool" / "README.md").write_text("# tool\n\nBefore.\n", encoding="utf-8")
    (schemas / "removed.yml").write_text("{}\n", encoding="utf-8")
    (schemas / "site.yml").write_text(
        "{title: sideband_site, description: Its name., type: string}\n", encoding="utf-8"
    )
    (schemas / "roles" / "tool.yml").write_text(yaml.safe_dump(TOOL, sort_keys=False), encoding="utf-8")
    return tmp_path


TOOL = {
    "title": "role tool",
    "description": "A tool.",
    "type": "object",
    "additionalProperties": False,
    "required": ["sideband_tool_owner"],
    "properties": {
        "sideband_tool_owner": {"type": "string", "description": "Who."},
        "sideband_tool_wait": {
            "type": "integer",
            "default": 5,
            "x-unit": "seconds",
            "description": "How long.",
        },
        "sideband_tool_words": {
            "type": "array",
            "default": ["no", "1.10"],
            "description": "Text all the same.",
        },
        "sideband_tool_key": {
            "type": "string",
            "default": "",
            "x-secret": True,
            "description": "Shown nowhere.",
        },
        "__tool_inner": {"type": "array", "default": [], "x-internal": True, "description": "Ours."},
    },
}


def test_a_role_is_printed_four_times(house: Path) -> None:
    assert generate.main([], house) == 0
    role = house / "roles" / "tool"
    defaults = (role / "defaults" / "main.yml").read_text(encoding="utf-8")
    assert "# How long. In seconds.\nsideband_tool_wait: 5\n" in defaults
    assert yaml.safe_load(defaults) == {
        "sideband_tool_wait": 5, "sideband_tool_words": ["no", "1.10"],
        "sideband_tool_key": "", "__tool_inner": [],
    }  # fmt: skip
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    options = spec["argument_specs"]["main"]["options"]
    assert list(options) == [name for name in TOOL["properties"] if name.startswith("sideband_")]  # type: ignore[attr-defined]
    assert options["sideband_tool_owner"] == {"description": "Who.", "type": "str", "required": True}
    assert options["sideband_tool_key"]["no_log"] is True
    readme = (role / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# tool\n\nBefore.\n")
    assert "| `sideband_tool_wait` | `5` | How long. In seconds. |" in readme
    assert "## tool" in (house / "docs" / "reference" / "roles.md").read_text(encoding="utf-8")


def test_what_stands_around_the_table_stays(house: Path) -> None:
    generate.main([], house)
    page = house / "roles" / "tool" / "README.md"
    page.write_text(page.read_text(encoding="utf-8") + "\nAfter.\n", encoding="utf-8")
    assert generate.main(["--check"], house) == 0
    schema = house / "schemas" / "roles" / "tool.yml"
    schema.write_text(
        schema.read_text(encoding="utf-8").replace("How long.", "How long at most."), encoding="utf-8"
    )
    assert generate.main([], house) == 0
    text = page.read_text(encoding="utf-8")
    assert "How long at most." in text
    assert text.endswith("\nAfter.\n")


def test_every_stale_file_is_named(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"], house) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 7
    assert all(line.endswith(" is stale; run make generate") for line in said)
    assert generate.main([], house) == 0
    assert generate.main(["--check"], house) == 0
    place = house / "roles" / "tool" / "defaults" / "main.yml"
    place.write_text(place.read_text(encoding="utf-8").replace(": 5", ": 6"), encoding="utf-8")
    assert generate.main(["--check"], house) == 1
    assert capsys.readouterr().out == "roles/tool/defaults/main.yml is stale; run make generate\n"


def test_every_role_with_defaults_has_a_schema() -> None:
    words = generate.roles()
    for place in (generate.ROOT / "roles").glob("*/defaults/main.yml"):
        assert place.parent.parent.name in words, place


def test_every_default_fits_its_own_schema() -> None:
    for word, schema in generate.roles().items():
        jsonschema.Draft202012Validator.check_schema(schema)
        for name, part in schema["properties"].items():
            assert name.startswith((f"sideband_{word}_", f"__{word}_")), name
            assert part["description"], name
            text = str(part.get("default", ""))
            if "default" in part and "{{" not in text:
                jsonschema.validate(part["default"], part)


def test_every_noun_has_a_default_that_fits() -> None:
    for name, noun in generate.nouns().items():
        if "default" in noun:
            assert shape.check_noun(name[len(load.PREFIX) :], noun["default"], "all") == []


@pytest.mark.parametrize("path", sorted((ROOT / "schemas").rglob("*.yml")), ids=lambda path: path.stem)
def test_no_schema_holds_half_a_sentence(path: Path) -> None:
    """A comma within braces ends a text that is not quoted, and the rest becomes a key without value."""

    def empty(value: Any, place: str) -> list[str]:
        if isinstance(value, dict):
            here = [f"{place}.{name}" for name, inner in value.items() if inner is None]
            return here + [
                found for name, inner in value.items() for found in empty(inner, f"{place}.{name}")
            ]
        if isinstance(value, list):
            return [found for inner in value for found in empty(inner, place)]
        return []

    assert empty(yaml.safe_load(path.read_text(encoding="utf-8")), "") == []


def test_the_reference_says_what_each_place_takes() -> None:
    assert "| any |" not in (ROOT / "docs/reference/contract.md").read_text(encoding="utf-8")
