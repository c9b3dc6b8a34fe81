"""What is printed from a role's schema (schemas/roles/<word>.yml): its defaults, its argument specification,
the table in its README and its part of the reference. Controller only (PyYAML)."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

BEGIN = "<!-- variables: written from schemas/roles/{word}.yml by make generate -->"
END = "<!-- end of variables -->"
WIDTH = 110
TYPES = {
    "string": "str", "integer": "int", "boolean": "bool", "array": "list", "object": "dict",
}  # fmt: skip

Schema = Mapping[str, Any]


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _head(word: str) -> str:
    return f"---\n# Written from schemas/roles/{word}.yml by make generate; edit there.\n"


def scalar(value: Any) -> str:
    """A value on one line, as a person would write it in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(scalar(item) for item in value) + "]"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*|[0-9]+[smhd]", value)
    if plain and yaml.safe_load(str(value)) == value:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _assignment(name: str, value: Any) -> str:
    line = f"{name}: {scalar(value)}"
    if len(line) <= WIDTH or not isinstance(value, list):
        return line
    return "\n".join([f"{name}:", *(f"  - {scalar(item)}" for item in value)])


def words(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split())


def _meaning(schema: Schema) -> str:
    unit = schema.get("x-unit")
    text = words(schema)
    return f"{text} In {unit}." if unit and str(unit) not in text else text


def defaults(word: str, schema: Schema, nouns: Mapping[str, Schema]) -> str:
    """roles/<word>/defaults/main.yml. The nouns that a site may leave out have theirs in role contract."""
    parts: dict[str, Schema] = {**schema["properties"], **(nouns if word == "contract" else {})}
    lines = []
    for name, part in parts.items():
        if "default" in part:
            lines += textwrap.wrap(_meaning(part), WIDTH, initial_indent="# ", subsequent_indent="# ")
            lines.append(_assignment(name, part["default"]))
    return _head(word) + "\n".join(lines) + "\n"


def _option(name: str, part: Schema, required: bool) -> dict[str, Any]:
    option: dict[str, Any] = {"description": _meaning(part), "type": TYPES[part["type"]]}
    if part["type"] == "array":
        option["elements"] = TYPES[part.get("items", {}).get("type", "string")]
    if "enum" in part:
        option["choices"] = list(part["enum"])
    if required:
        option["required"] = True
    elif "default" in part:
        option["default"] = part["default"]
    if part.get("x-secret"):
        option["no_log"] = True
    return option


def argument_specs(word: str, schema: Schema) -> str:
    """roles/<word>/meta/argument_specs.yml: types, needs and choices, checked before the role."""
    options = {
        name: _option(name, part, name in schema.get("required", ()))
        for name, part in schema["properties"].items()
        if not part.get("x-internal")
    }
    spec = {"argument_specs": {"main": {"short_description": words(schema), "options": options}}}
    return _head(word) + yaml.dump(spec, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)


def table(schema: Schema) -> list[str]:
    lines = ["| variable | default | what |", "|---|---|---|"]
    for name, part in schema["properties"].items():
        if part.get("x-internal"):
            continue
        default = f"`{scalar(part['default'])}`" if "default" in part else "required"
        if len(default) > 60:
            default = f"{len(part['default'])} entries" if isinstance(part["default"], list) else default
        kinds = " or ".join(f"`{choice}`" for choice in part.get("enum", ()))
        meaning = _meaning(part).replace("|", "\\|")
        lines.append(f"| `{name}` | {default} | {meaning}{f' One of {kinds}.' if kinds else ''} |")
    return lines


def readme(word: str, schema: Schema, before: str) -> str:
    """The README with its table written anew between the markers; appended where there are none yet."""
    begin = BEGIN.format(word=word)
    block = "\n".join([begin, "", *table(schema), "", END])
    if begin not in before:
        return before.rstrip("\n") + "\n\n" + block + "\n"
    head, rest = before.split(begin, 1)
    return head + block + rest.split(END, 1)[1]


def reference(roles: Mapping[str, Schema]) -> str:
    lines = [
        "# Variables of the roles",
        "",
        "Written from `schemas/roles/` by `make generate`; edit there. The site's contract is in",
        "[contract.md](contract.md); what stands here has a default that fits most sites.",
    ]
    for word, schema in roles.items():
        lines += ["", f"## {word}", "", words(schema), "", *table(schema)]
    return "\n".join(lines) + "\n"


def removed(names: Mapping[str, Mapping[str, str]]) -> str:
    """docs/reference/removed.md."""
    lines = [
        "# Names that were",
        "",
        "Written from `schemas/removed.yml` by `make generate`; edit there.",
        "",
    ]
    if not names:
        return "\n".join([*lines, "None so far."]) + "\n"
    lines += ["| name | use | since |", "|---|---|---|"]
    return (
        "\n".join(lines + [f"| `{old}` | `{e['successor']}` | {e['since']} |" for old, e in names.items()])
        + "\n"
    )
