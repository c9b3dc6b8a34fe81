"""Filters of role node: what a training node samples at each level, and where it pushes to."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
for place in (str(ROOT), str(ROOT / "module_utils")):
    if place not in sys.path:
        sys.path.insert(0, place)

from sideband import whose

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


# What vmagent knows its own scrapes by, as its environment spells it; what users push to its port has none.
MARK = "%{SIDEBAND_MARK}"


def mark(key: str) -> str:
    """The name of that label: nobody who cannot read the node's key can guess it. vmagent takes names that
    begin with __ off a target."""
    return f"scraped_{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def scrape(
    level: dict[str, Any], instance: str, target: str, metrics: list[dict[str, Any]]
) -> dict[str, Any]:
    """What vmagent samples at a level; at a level without metrics it samples nothing."""
    period = level["period_seconds"]
    jobs = []
    if level["keep"]:
        jobs.append(
            {
                "job_name": "node",
                # The exporter has no clock of its own to honour, and a push must not carry an invented one.
                "honor_timestamps": False,
                # `job` on a series of a GPU or a job is the job that runs there.
                "honor_labels": True,
                "static_configs": [{"targets": [target], "labels": {"instance": instance, MARK: "1"}}],
                "metric_relabel_configs": [
                    {"source_labels": ["__name__"], "regex": level["keep"], "action": "keep"},
                    *whose.unscraped(metrics),
                ],
            }
        )
    timeout = min(period * 4 // 5, 10) or 1
    return {
        "global": {"scrape_interval": f"{period}s", "scrape_timeout": f"{timeout}s"},
        "scrape_configs": jobs,
    }


def levels(model: dict[str, Any], directory: str, instance: str, target: str) -> dict[str, str]:
    """Every level's sampling as a file: {path: text}."""
    head = "# Level {name}. The policy process puts the level in force where vmagent reads.\n"
    found = {}
    ladder, metrics = model["ladder"], model["catalogue"]["metrics"]
    for name in ladder["order"]:
        # Through JSON: Ansible's texts are of a class of their own, which the dumper refuses.
        plain = json.loads(json.dumps(scrape(ladder["levels"][name], instance, target, metrics)))
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


def sample(model: dict[str, Any], kernel_log: str) -> dict[str, Any]:
    """The configuration of the sample process: as often as the highest level asks."""
    ladder = model["ladder"]
    return {
        "period_seconds": ladder["levels"][ladder["order"][0]]["period_seconds"],
        "kernel_log": kernel_log,
    }


def job(model: dict[str, Any], file_systems: list[str]) -> dict[str, Any]:
    """The configuration of the job process: whose work is whose."""
    return {"tenants": whose.dictionary(model["tenants"]), "file_systems": file_systems}


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
            "sideband_node_sample": sample,
            "sideband_node_job": job,
            "sideband_node_mark": mark,
            "sideband_node_program": program,
        }
