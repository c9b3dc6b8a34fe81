"""Filters of role verify: requests for a host's visits, and the verdict over what they found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

from sideband import load, report, verify_checks, verify_page, verify_pairs, verify_plan
from sideband.verify_request import request


def _plain(value: Any) -> Any:
    """Builtins: what arrives from a play is tagged and lazy, and slow to walk twice."""
    return load.plain(value, "verify")


def sideband_verify_request(
    model: Any, options: Any, host: str, phase: str, opened: Any, patience: Any = 0
) -> Any:
    """What one host does in one visit. `opened`: host -> result of the visit `open` (hardware addresses)."""
    model = _plain(model)
    plan = verify_plan.make(model, verify_pairs.options(_plain(options)))
    macs = {str(name): (found.get("found") or {}).get("macs", {}) for name, found in _plain(opened).items()}
    return request(model, plan, host, phase, macs, float(patience))


def sideband_verify_ports(hostvars: Any, hosts: Any) -> Any:
    """The port at which management answers on each host, as Ansible knows it."""
    return {str(name): int(hostvars[name].get("ansible_port") or 22) for name in hosts}


def _visit(results: Any) -> dict[str, Any]:
    """The three results of one host as the judge takes them; the first that failed says why."""
    visit: dict[str, Any] = {"problem": ""}
    for phase, result in zip(("open", "shoot", "collect"), results):
        found = result.get("found") or {}
        if found:
            visit[phase] = found
        elif not visit["problem"]:
            visit["problem"] = str(result.get("msg") or f"{phase} did not run")
    return visit


def sideband_verify_verdict(
    model: Any, options: Any, visits: Any, expected: Any, seconds: Any, about: Any
) -> Any:
    """{passed, causes, figures, observed, hit, json, html} from all visits: host -> its phases."""
    model = _plain(model)
    plan = verify_plan.make(model, verify_pairs.options(_plain(options)))
    found = {str(name): _visit(results) for name, results in _plain(visits).items()}
    verdict = verify_checks.judge(model, plan, found, list(_plain(expected)), float(seconds))
    versions = {**verify_checks.versions(found), "ansible": str(about["ansible"])}
    commit = report.commit(str(about["tree"]))
    written = report.compose("verify", verdict.passed, verdict.figures, verdict.checks, versions, commit)
    facts = {"at": str(about["when"]), "commit": commit[:12] + commit[40:], **versions}
    return {
        "passed": verdict.passed,
        "figures": verdict.figures,
        "causes": [str(cause) for cause in verdict.causes],
        "observed": dict(verdict.observed),
        "hit": list(verdict.hit),
        "json": report.text(written),
        "html": verify_page.render(model, plan, verdict, facts),
    }


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_verify_ports": sideband_verify_ports,
            "sideband_verify_request": sideband_verify_request,
            "sideband_verify_verdict": sideband_verify_verdict,
        }
