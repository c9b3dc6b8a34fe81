"""Print docs/reference/contract.md from the schemas: `python3 -m sideband.generate [--check]`.

With --check nothing is written; the exit code is 1 and the stale file is named. Controller only (PyYAML)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMAS = ROOT / "schemas"
REFERENCE = ROOT / "docs" / "reference" / "contract.md"
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


def rows(schema: Mapping[str, Any], path: str, required: bool) -> Iterator[tuple[str, str, str, str]]:
    """(path, what, need, description) of a schema and of everything below it."""
    need = "required" if required else "default " + repr(schema["default"]) if "default" in schema else ""
    if path:
        yield path, kind(schema), need, " ".join(str(schema.get("description", "")).split())
    inside = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        yield from rows(below, f"{path}.{name}" if path else name, name in inside)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from rows(schema["additionalProperties"], f"{path}.<name>" if path else "<name>", False)
    if isinstance(schema.get("items"), Mapping):
        yield from rows(schema["items"], f"{path}[]", False)


def section(schema: Mapping[str, Any]) -> str:
    scope = schema.get("x-sideband", {})
    where = "host variable" if scope.get("scope") == "host" else "site variable"
    lines = [f"## `{schema['title']}`", "", " ".join(str(schema["description"]).split())]
    lines[-1] += f" ({where}, {'required' if scope.get('required') else 'optional'})"
    table = list(rows(schema, "", False))
    if table:
        lines += ["", "| path | what | | meaning |", "|---|---|---|---|"]
        lines += [f"| `{path}` | {what} | {need} | {words} |" for path, what, need, words in table]
    return "\n".join(lines) + "\n"


def reference() -> str:
    nouns = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.yml"))]
    return "\n".join([HEAD, *(section(noun) for noun in nouns)])


def main(arguments: list[str]) -> int:
    wanted = reference()
    if "--check" not in arguments:
        REFERENCE.write_text(wanted, encoding="utf-8")
        return 0
    if REFERENCE.is_file() and REFERENCE.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{REFERENCE.relative_to(ROOT)} is stale; run make generate")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
