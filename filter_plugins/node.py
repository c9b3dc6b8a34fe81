"""Filters of role node: what a training node samples at each level, and where it pushes to."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from services import build, vendor


def receivers(self: dict[str, Any]) -> list[str]:
    """The rack's receivers in the contract's order, as https://address:port (case 4: IPv6 in brackets)."""
    found = [
        f"https://{end['authority'] or end['authority6']}" for end in self.get("reaches", {}).get("push", [])
    ]
    if not found:
        raise AnsibleFilterError(
            f"{self['name']}: flows: no receiver to push to (got rack {self['rack'] or 'none'}); "
            f"hint: list a host of sideband_rack with the same sideband_rack"
        )
    return found


def scrape(level: dict[str, Any], instance: str, target: str) -> dict[str, Any]:
    """What vmagent samples at a level; at a level without metrics it samples nothing."""
    period = level["period_seconds"]
    jobs = []
    if level["keep"]:
        jobs.append(
            {
                "job_name": "node",
                # The exporter has no clock of its own to honour, and a push must not carry an invented one.
                "honor_timestamps": False,
                "static_configs": [{"targets": [target], "labels": {"instance": instance}}],
                "metric_relabel_configs": [
                    {"source_labels": ["__name__"], "regex": level["keep"], "action": "keep"}
                ],
            }
        )
    timeout = min(period * 4 // 5, 10) or 1
    return {
        "global": {"scrape_interval": f"{period}s", "scrape_timeout": f"{timeout}s"},
        "scrape_configs": jobs,
    }


def levels(ladder: dict[str, Any], directory: str, instance: str, target: str) -> dict[str, str]:
    """Every level's sampling as a file: {path: text}."""
    head = "# Level {name}. The policy process puts the level in force where vmagent reads.\n"
    found = {}
    for name in ladder["order"]:
        # Through JSON: Ansible's texts are of a class of their own, which the dumper refuses.
        plain = json.loads(json.dumps(scrape(ladder["levels"][name], instance, target)))
        text = yaml.safe_dump(plain, sort_keys=False, width=1000)
        found[f"{directory}/{name}.yml"] = head.format(name=name) + text
    return found


def policy(
    model: dict[str, Any], self: dict[str, Any], *, configuration: str, state: str, filesystems: list[str]
) -> dict[str, Any]:
    """The configuration of the policy process."""
    ladder = model["ladder"]
    return {
        "site": model["site"],
        "rack": self["rack"],
        "node": self["name"],
        "racks_url": receivers(self),
        "ca": f"{configuration}/ca.crt",
        "certificate": f"{configuration}/host.crt",
        "key": f"{configuration}/host.key",
        "allowed_signers": f"{configuration}/allowed_signers",
        "levels": {
            name: {"poll_seconds": level["poll_seconds"], "scrape": f"{configuration}/levels/{name}.yml"}
            for name, level in ladder["levels"].items()
        },
        "order": ladder["order"],
        "default_level": ladder["order"][0],
        "scrape_path": f"{state}/scrape.yml",
        "state_directory": state,
        "always_period_seconds": ladder["always"]["period_seconds"],
        "filesystems": filesystems,
    }


def program(name: str) -> str:
    """One of the programs for hosts, in base64; equal sources give equal bytes."""
    try:
        return base64.b64encode(build.archive(name)).decode("ascii")
    except vendor.BuildError as problem:
        raise AnsibleFilterError(f"{name}: {problem}") from None


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_node_receivers": receivers,
            "sideband_node_levels": levels,
            "sideband_node_policy": policy,
            "sideband_node_program": program,
        }
