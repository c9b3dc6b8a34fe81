"""Alert rules and Alertmanager's configuration by their own tools (N1; cases 43, 73, 74)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import alert_kit
import pytest
from contract_kit import lab
from querygate.kit import binary
from sideband import alert_rules, alerts
from sideband.contract import compile_site

from services.notifier import render

pytestmark = pytest.mark.root
# One of each kind, and a mail server.
NOTIFY = {
    "receivers": [
        {"name": "inbox", "kind": "inbox"},
        {"name": "chat", "kind": "wecom", "secret_variable": "vault_chat"},
        {"name": "ding", "kind": "dingtalk", "secret_variable": "vault_ding"},
        {"name": "slack", "kind": "slack", "secret_variable": "vault_slack"},
        {"name": "pager", "kind": "pagerduty", "secret_variable": "vault_pager"},
        {"name": "mail", "kind": "email", "to": ["oncall@example.org"]},
        {"name": "hook", "kind": "webhook", "secret_variable": "vault_hook"},
    ],
    "routes": {"critical": ["chat", "slack", "pager"], "warning": ["mail", "ding"], "info": ["hook"]},
    "smtp": {"server": "mail.example.org", "port": 587, "from": "sideband@example.org", "user": "sideband",
             "secret_variable": "vault_mail"},
    "watchdogs": [{"from": side, "secret_variable": "vault_dead"} for side in ("region", "lake")],
}  # fmt: skip


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("tools")
    found = {name: binary(name, package, directory) for name, package in
             (("vmalert", "victoria-metrics"), ("vmalert-tool", "victoria-metrics"),
              ("amtool", "prometheus-alertmanager"))}  # fmt: skip
    if not all(found.values()):
        pytest.skip("no tools to be had: lab/lab mirror brings them")
    return found


def test_every_rule_says_what_it_should(tools: dict[str, str], tmp_path: Path) -> None:
    files = [path for case in alert_kit.cases() for path in alert_kit.write(case, tmp_path)]
    code, said = alert_kit.run(tools["vmalert-tool"], files)
    assert code == 0, said[-6000:]
    assert said.count("SUCCESS") == len(files)


def test_a_rule_that_says_something_else_is_noticed(tools: dict[str, str], tmp_path: Path) -> None:
    (case,) = [case for case in alert_kit.cases() if case["group"] == "tiers"]
    case["tests"][0]["expect"][1]["TierSilent"][0]["daemon"] = "minute"
    code, said = alert_kit.run(tools["vmalert-tool"], alert_kit.write(case, tmp_path))
    assert code != 0
    assert "TierSilent" in said


def compiled(host: str) -> dict[str, Any]:
    hostvars, groups = lab()
    for variables in hostvars.values():
        variables["sideband_notify"] = NOTIFY
    given = [{"name": "gpu_temperature_critical_celsius", "value": 95, "model": "NVIDIA H200.*"},
             {"name": "gpu_utilisation_low_percent", "value": 40, "kind": "pod"}]  # fmt: skip
    limits = alert_rules.Limits.of(given)
    settings = alerts.Settings(9090, "docs/reference/alerts.md", limits, [])
    return alerts.compile_host(
        compile_site(hostvars, groups), host, alert_rules.load(alert_kit.RULES, limits), settings
    )


@pytest.mark.parametrize("host", ["region1", "lake1"])
def test_vmalert_takes_the_rules(tools: dict[str, str], tmp_path: Path, host: str) -> None:
    for number, rule in enumerate(compiled(host)["rules"]):
        path = tmp_path / f"{number}.yml"
        path.write_text(rule["content"])
        done = subprocess.run(
            [tools["vmalert"], "-dryRun", "-loggerLevel=ERROR", f"-rule={path}"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, rule["path"] + done.stderr


def manager(directory: Path, host: str = "region1") -> Path:
    text = compiled(host)["manager"].replace(alerts.CONFIGURATION, str(directory))
    path = directory / "alertmanager.yml"
    path.write_text(text)
    (directory / "sideband.tmpl").write_text(
        (alert_kit.ROOT / "roles/alerts/files/sideband.tmpl").read_text()
    )
    return path


def test_alertmanager_takes_the_configuration_and_every_template_renders(
    tools: dict[str, str], tmp_path: Path
) -> None:
    for host in ("region1", "lake1"):
        assert render.problems(tools["amtool"], str(manager(tmp_path, host))) == []


def test_case_73_a_misspelt_template_is_caught_before_it_is_deployed(
    tools: dict[str, str], tmp_path: Path
) -> None:
    path = manager(tmp_path)
    config = json.loads(path.read_text())
    (slack,) = [one for one in config["receivers"] if one["name"] == "slack"]
    slack["slack_configs"][0]["text"] = '{{ template "tele.titel" . }}'
    path.write_text(json.dumps(config))
    # amtool's own check is content with it.
    assert subprocess.run([tools["amtool"], "check-config", path], capture_output=True).returncode == 0
    found = render.problems(tools["amtool"], str(path))
    assert len(found) == len(render.samples())
    assert found[0].startswith("slack.slack_configs[0].text, one alert: amtool: error: template: ")
    assert found[0].endswith('template "tele.titel" not defined')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ .Nothing }}", "can't evaluate field Nothing"),
        ("{{ range .Alerts }}{{ .Annotations.summary }}{{ end }}", "characters long, 4000 may be"),
        ("{{ template }}", "unexpected"),
    ],
)
def test_other_faults_of_templates(tools: dict[str, str], tmp_path: Path, text: str, said: str) -> None:
    path = manager(tmp_path)
    config = json.loads(path.read_text())
    (slack,) = [one for one in config["receivers"] if one["name"] == "slack"]
    slack["slack_configs"][0]["text"] = text
    path.write_text(json.dumps(config))
    assert said in " ".join(render.problems(tools["amtool"], str(path)))
