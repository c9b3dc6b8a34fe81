"""Filters that hand sideband.logs to the roles `node`, `rack` and `logs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

from sideband import logs


def secret(export: Any) -> str:
    """KEY:SECRET of the object storage, from the file that the contract names."""
    from ansible.errors import AnsibleFilterError

    path = Path(str((export or {}).get("secret_file") or ""))
    if not path.is_file():
        raise AnsibleFilterError(
            f"sideband_logs.export.secret_file: {path} is missing; "
            "hint: one line, KEY:SECRET, readable by you alone"
        )
    text = path.read_text(encoding="utf-8").strip()
    if text.count(":") != 1 or any(character in text for character in '\n\r"\\'):
        raise AnsibleFilterError("sideband_logs.export.secret_file: must hold one line, KEY:SECRET")
    return text


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_logs_reader": logs.reader,
            "sideband_logs_relay": logs.relay,
            "sideband_logs_lookup": logs.lookup,
            "sideband_logs_keeper": logs.keeper,
            "sideband_logs_secret": secret,
        }
