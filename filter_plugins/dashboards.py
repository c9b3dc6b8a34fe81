"""Filters of role dashboards."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def files(role: str, directory: str) -> list[dict[str, Any]]:
    """The role's dashboards for a fragment: `role_path | sideband_dashboards_files('/etc/…')`."""
    return [
        {"path": f"{directory}/{path.name}", "content": path.read_text(encoding="utf-8"), "mode": "0644"}
        for path in sorted(Path(str(role), "files").glob("*.json"))
    ]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"sideband_dashboards_files": files}
