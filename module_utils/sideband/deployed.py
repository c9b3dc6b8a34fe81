"""What is in force: the record that the last complete run left, and what a new contract would change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .capacity import plan, size
from .errors import Error
from .load import SITE

CONFIRM = "confirm_retention=shrink"
CONFIRM_NAME, CONFIRMED = CONFIRM.split("=")


def record(model: Mapping[str, Any]) -> dict[str, Any]:
    """What playbooks/record.yml writes down."""
    return {
        "site": model["site"],
        "digest": model["digest"],
        "tiers": {
            name: {key: tier[key] for key in ("engine", "retention", "retention_seconds", "cap_bytes")}
            for name, tier in model["tiers"].items()
        },
        "plan": plan(model),
        "lakes": lakes(model["hosts"]),
    }


def lakes(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{host: address} of those that hold the data."""
    return {name: host["address"] for name, host in hosts.items() if "lake" in host["words"]}


def elsewhere(records: Path, site: str, ours: Mapping[str, str]) -> dict[str, Any]:
    """For a site without a record: another's that has one of these lakes. Then the site has a new name, and
    what is deployed stands under the old one."""
    for path in sorted(records.glob("*/deployed.json")):
        theirs = read(path).get("lakes")
        shared = sorted(set(ours.items()) & set(theirs.items())) if isinstance(theirs, dict) else []
        if shared and path.parent.name != site:
            return {"elsewhere": path.parent.name, "lake": shared[0][0], "site": site}
    return {}


def read(path: Path) -> dict[str, Any]:
    """The record, or `damaged` with its path: what is deployed is unknown then, not nothing."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        for tier in loaded["tiers"].values():
            if not {"engine", "retention", "retention_seconds", "cap_bytes"} <= set(tier):
                raise ValueError("a tier of it is incomplete")
        loaded["plan"]["tiers"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"damaged": str(path)}
    return dict(loaded)


def shrinking(deployed: Mapping[str, Any], tiers: Mapping[str, Mapping[str, Any]]) -> Iterator[Error]:
    """What would delete stored data: a shorter retention, a lower cap that evicts, a tier that is gone."""
    if "damaged" in deployed:
        problem = "is damaged, so that nobody knows what is deployed"
        mend = "bring it back from a backup, or remove it once no tier keeps less than it did"
        yield Error(SITE, deployed["damaged"], problem, hint=mend)
        return
    if "elsewhere" in deployed:
        was, lake = deployed["elsewhere"], deployed["lake"]
        problem = f"has no record, and {lake} holds the data of {was!r}"
        mend = f"keep the name, or rename the record's directory {was} too; else a shrink would go unseen"
        yield Error(SITE, "sideband_site", problem, repr(deployed["site"]), mend)
        return
    hint = f"older data would be deleted; if that is meant, run again with -e {CONFIRM}"
    for name, was in deployed.get("tiers", {}).items():
        path = f"sideband_tiers[{name}]"
        now = tiers.get(name)
        if now is None:
            yield Error(SITE, path, f"is gone, and is deployed with {was['retention']}", hint=hint)
        elif now["engine"] != was["engine"]:
            problem = f"is another engine than the deployed {was['engine']}, which keeps its data to itself"
            yield Error(SITE, f"{path}.engine", problem, now["engine"], hint)
        elif now["retention_seconds"] < was["retention_seconds"]:
            problem = f"is shorter than the deployed {was['retention']}"
            yield Error(SITE, f"{path}.retention", problem, now["retention"], hint)
        elif now["engine"] == "prometheus" and now["cap_bytes"] < was["cap_bytes"]:
            problem = f"is lower than the deployed {size(was['cap_bytes'])}"
            yield Error(SITE, f"{path}.cap", problem, size(now["cap_bytes"]), hint)
