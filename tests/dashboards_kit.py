"""The questions of the dashboards as they stand in the printed files, with their variables chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "roles" / "dashboards" / "files"
EVERYTHING: Mapping[str, str] = dict.fromkeys(("rack", "node", "gpu", "tenant", "job", "training"), ".*")


@dataclass(frozen=True)
class Question:
    page: str
    panel: str
    query: str
    instant: bool


def pages() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FILES.glob("*.json"))}


def panels(page: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in page["panels"]:
        yield panel
        yield from panel.get("panels", [])


def chosen(query: str, values: Mapping[str, str] = EVERYTHING) -> str:
    return re.sub(r"\$(\w+)", lambda match: values[match.group(1)], query)


def questions(values: Mapping[str, str] = EVERYTHING) -> Iterator[Question]:
    for name, page in pages().items():
        for panel in panels(page):
            for target in panel.get("targets", []):
                yield Question(
                    name, panel["title"], chosen(target["expr"], values), bool(target.get("instant"))
                )
        for variable in page["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
                assert found is not None, variable["query"]
                text = f"count by ({found.group(2)}) ({chosen(found.group(1), values)})"
                yield Question(name, f"${variable['name']}", text, True)
