"""Tests of alert rules as data (tests/alerts), made into what vmalert-tool reads.

A file has a `group` and `tests`: `series` at an `interval` from time 0, the site's `limits` where they
differ, and what is `expect`ed at a time: by the alert's name, the labels of every alert that fires and its
`summary`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from sideband import alert_rules

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "roles/alerts/files/rules"
CASES = ROOT / "tests/alerts"


def cases() -> list[dict[str, Any]]:
    """Every file's content."""
    return [yaml.safe_load(path.read_text("utf-8")) for path in sorted(CASES.glob("*.yml"))]


def write(case: dict[str, Any], directory: Path) -> list[Path]:
    """vmalert-tool's files of one group, one for each set of limits, with their rule files beside them."""
    found = []
    for number, test in enumerate(case["tests"]):
        limits = alert_rules.Limits.of(test.get("limits", ()))
        group = next(one for one in alert_rules.load(RULES, limits) if one.name == case["group"])
        rules = yaml.safe_load(alert_rules.vmalert([group], limits, ""))
        for rule in rules["groups"][0]["rules"]:
            # What is the same for every alert of a rule is not repeated in each test.
            rule["annotations"] = {"summary": rule["annotations"]["summary"]}
        path = directory / f"{case['group']}-{number}"
        path.with_suffix(".rules").write_text(yaml.safe_dump(rules, allow_unicode=True), "utf-8")
        made = {"rule_files": [path.with_suffix(".rules").name], "evaluation_interval": test["interval"],
                "tests": [_test(test, group)]}  # fmt: skip
        path.with_suffix(".yml").write_text(yaml.safe_dump(made, allow_unicode=True), "utf-8")
        found.append(path.with_suffix(".yml"))
    return found


def _test(test: dict[str, Any], group: alert_rules.Group) -> dict[str, Any]:
    severities = {alert.name: alert.severity for alert in group.alerts}
    return {
        "name": test["name"],
        "interval": test["interval"],
        "input_series": [{"series": name, "values": values} for name, values in test["series"].items()],
        "alert_rule_test": [
            {"eval_time": one["at"], "alertname": name,
             "exp_alerts": [_expected(alert, severities[name]) for alert in alerts]}
            for one in test["expect"]
            for name, alerts in one.items()
            if name != "at"
        ],
    }  # fmt: skip


def _expected(alert: dict[str, str], severity: str) -> dict[str, Any]:
    labels = {name: value for name, value in alert.items() if name != "summary"}
    return {"exp_labels": {"severity": severity, **labels}, "exp_annotations": {"summary": alert["summary"]}}


def run(tool: str, files: list[Path]) -> tuple[int, str]:
    """vmalert-tool once for all of them."""
    words = [tool, "unittest", "--disableAlertgroupLabel", *(f"--files={path}" for path in files)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=files[0].parent)
    return done.returncode, done.stdout + done.stderr
