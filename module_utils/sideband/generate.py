"""Print from the schemas what is printed from them: `python3 -m sideband.generate [--check]`.

The contract's reference from schemas/, and for each role its defaults, argument specification, README table
and reference from schemas/roles/. With --check nothing is written; the exit code is 1 and each stale file is
named. Controller only (PyYAML)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from . import alert_pages, alert_rules, role_pages

ROOT = Path(__file__).resolve().parent.parent.parent
# In schemas/, and no noun.
OTHERS = ("removed",)
HEAD = """# The contract

Written from `schemas/` by `make generate`; edit there. A site's contract is one file per noun in
`inventories/<site>/group_vars/all/`; what belongs to one host stands in its `host_vars`.
"""


def kind(schema: Mapping[str, Any]) -> str:
    """What may stand there, in a few words."""
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    words = str(schema.get("format") or schema.get("type", "any"))
    if "minimum" in schema or "maximum" in schema:
        words += f" {schema.get('minimum', '')}..{schema.get('maximum', '')}"
    return words


def followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema with what its `$ref` names; its own words win."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    return {**definitions[name], **schema} if name else schema


def rows(
    schema: Mapping[str, Any], path: str, required: bool, definitions: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    """(path, what, need, description) of a schema and of everything below it."""
    schema = followed(schema, definitions)
    need = "required" if required else "default " + repr(schema["default"]) if "default" in schema else ""
    if path:
        yield path, kind(schema), need, " ".join(str(schema.get("description", "")).split())
    inside = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        yield from rows(below, f"{path}.{name}" if path else name, name in inside, definitions)
    if isinstance(schema.get("additionalProperties"), Mapping):
        below = f"{path}.<name>" if path else "<name>"
        yield from rows(schema["additionalProperties"], below, False, definitions)
    if isinstance(schema.get("items"), Mapping):
        yield from rows(schema["items"], f"{path}[]", False, definitions)


def section(schema: Mapping[str, Any]) -> str:
    scope = schema.get("x-sideband", {})
    where = "host variable" if scope.get("scope") == "host" else "site variable"
    lines = [f"## `{schema['title']}`", "", " ".join(str(schema["description"]).split())]
    lines[-1] += f" ({where}, {'required' if scope.get('required') else 'optional'})"
    table = list(rows(schema, "", False, schema.get("$defs", {})))
    if table:
        lines += ["", "| path | what | | meaning |", "|---|---|---|---|"]
        lines += [f"| `{path}` | {what} | {need} | {words} |" for path, what, need, words in table]
    return "\n".join(lines) + "\n"


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def nouns(root: Path = ROOT) -> dict[str, Any]:
    """Variable -> schema of every noun of the contract."""
    paths = sorted(path for path in (root / "schemas").glob("*.yml") if path.stem not in OTHERS)
    return {f"sideband_{path.stem}": _load(path) for path in paths}


def roles(root: Path = ROOT) -> dict[str, Any]:
    """Word -> schema of every role that has variables."""
    return {path.stem: _load(path) for path in sorted((root / "schemas" / "roles").glob("*.yml"))}


def reference(listed: Mapping[str, Any]) -> str:
    return "\n".join([HEAD, *(section(noun) for noun in listed.values())])


def files(root: Path = ROOT) -> dict[Path, str]:
    """Every printed file and what belongs into it."""
    contract, words = nouns(root), roles(root)
    pages = root / "docs" / "reference"
    found = {
        pages / "contract.md": reference(contract),
        pages / "roles.md": role_pages.reference(words),
        pages / "alerts.md": alert_pages.page(alert_rules.load(root / "roles/alerts/files/rules")),
        pages / "removed.md": role_pages.removed(_load(root / "schemas" / "removed.yml")),
    }
    optional = {name: noun for name, noun in contract.items() if "default" in noun}
    for word, schema in words.items():
        role = root / "roles" / word
        before = (role / "README.md").read_text(encoding="utf-8")
        found[role / "defaults" / "main.yml"] = role_pages.defaults(word, schema, optional)
        found[role / "meta" / "argument_specs.yml"] = role_pages.argument_specs(word, schema)
        found[role / "README.md"] = role_pages.readme(word, schema, before)
    return found


def main(arguments: list[str], root: Path = ROOT) -> int:
    stale = [
        (path, text)
        for path, text in files(root).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(root)} is stale; run make generate")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
