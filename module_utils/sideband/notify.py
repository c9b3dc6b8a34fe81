"""The noun `notify`: who is told what. Never a secret: only where one is kept (case 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SEVERITIES = ("critical", "warning", "info")
INBOX = "inbox"
# Kinds that need no secret; the others post to a URL or with a key that is one.
OPEN_KINDS = (INBOX, "email")
DEFAULTS: Mapping[str, Any] = {
    "receivers": [{"name": INBOX, "kind": INBOX}],
    "routes": {severity: [INBOX] for severity in SEVERITIES},
}


def parse(noun: Mapping[str, Any] | None) -> dict[str, Any]:
    given = noun or DEFAULTS
    return {
        "receivers": [
            {
                "name": receiver["name"],
                "kind": receiver["kind"],
                "to": list(receiver.get("to", ())),
                "secret_file": receiver.get("secret_file", ""),
                "secret_variable": receiver.get("secret_variable", ""),
            }
            for receiver in given["receivers"]
        ],
        "routes": {severity: list(given["routes"][severity]) for severity in SEVERITIES},
    }
