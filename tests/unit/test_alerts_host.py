"""What a host of sideband_alerts gets: places, routes, secrets, expected set (A6, N3; cases 10, 73, 74)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import alert_kit
import pytest
import render_kit
import yaml
from ansible.errors import AnsibleFilterError
from ansible.parsing.vault import VaultLib, VaultSecret, VaultSecretsContext
from contract_kit import lab, single
from sideband import alert_rules, alertmanager, alerts, notify
from sideband.alert_rules import Limits
from sideband.contract import compile_site

from filter_plugins import alerts as filters

GROUPS = alert_rules.load(alert_kit.RULES)
IDENTITY = {"ca": "ca", "certificate": "crt", "key": "key"}
NOTIFY: dict[str, Any] = {
    "receivers": [
        {"name": "inbox", "kind": "inbox"},
        {"name": "chat", "kind": "wecom", "secret_variable": "vault_chat"},
        {"name": "slack", "kind": "slack", "secret_file": "/etc/chat.url"},
        {"name": "pager", "kind": "pagerduty", "secret_variable": "vault_pager"},
        {"name": "mail", "kind": "email", "to": ["a@example.org", "b@example.org"]},
    ],
    "routes": {"critical": ["chat", "slack", "pager"], "warning": ["mail"], "info": ["inbox"]},
    "smtp": {"server": "mail.example.org", "port": 587, "from": "sideband@example.org"},
    "watchdogs": [{"from": "region", "secret_variable": "vault_dead", "period": "2m"}],
}


def model(**nouns: Any) -> dict[str, Any]:
    hostvars, groups = lab()
    for variables in hostvars.values():
        variables.update({f"sideband_{name}": copy.deepcopy(value) for name, value in nouns.items()})
    return compile_site(hostvars, groups)


def compiled(host: str, certificates: list[dict[str, Any]] | None = None, **nouns: Any) -> dict[str, Any]:
    settings = alerts.Settings(9090, "page", Limits(), certificates or [])
    return alerts.compile_host(model(**{"notify": NOTIFY, **nouns}), host, GROUPS, settings)


def file(made: dict[str, Any], name: str) -> str:
    return next(one["content"] for one in made["files"] if one["path"].endswith(f"/{name}"))


def test_region_and_lake_compute_different_rules() -> None:
    region, lake = compiled("region1"), compiled("lake1")
    names = [
        {one["path"].removeprefix("/etc/sideband/alerts/") for one in made["rules"]}
        for made in (region, lake)
    ]
    assert names[0] == {
        f"near/{name}.yml" for name in ("own", "gpu", "training", "fleet", "pipeline", "logs")
    }
    assert names[1] == {
        "near/own.yml",
        "near/tiers.yml",
        "near/logstore.yml",
        "lake/efficiency.yml",
        "lake/curves.yml",
        "lake/capacity.yml",
    }
    assert [unit["name"] for unit in lake["units"]] == [
        "sideband-alerts-judge@near.service",
        "sideband-alerts-judge@lake.service",
    ]
    assert file(lake, "lake.env") == "LISTEN=127.0.0.1:8555\nSTORE=http://127.0.0.1:8532\nHOST=lake1\n"


def test_one_machine_computes_all_of_them_once() -> None:
    made = compile_site(*single(["node", "rack", "region", "lake", "gateway", "alerts"]))
    settings = alerts.Settings(8534, "page", Limits(), [])
    found = alerts.compile_host(made, "machine1", GROUPS, settings)
    assert sorted(one["path"].split("/")[-1][:-4] for one in found["rules"]) == sorted(
        one.name for one in GROUPS
    )
    assert "127.0.0.1:8534" in file(found, "scrape.yml")


def test_everything_listens_on_loopback_and_no_port_is_taken_twice() -> None:
    found = alerts.daemons(["region", "lake", "logs"], 9090)
    assert all(address.startswith("127.0.0.1:") for address in found.values())
    assert len(set(found.values())) == len(found)


def test_case_74_the_expected_set_is_the_inventorys() -> None:
    ends = [{"function": "node", "host": "node1", "ends": 1_900_000_000}]
    lines = file(compiled("region1", ends), "facts.prom").splitlines()
    assert lines == [
        'sideband_expected_node{site="lab",rack="rack1",node="node1"} 1',
        'sideband_expected_node{site="lab",rack="rack1",node="node2"} 1',
        'sideband_expected_node{site="lab",rack="rack2",node="node3"} 1',
        'sideband_expected_rack{site="lab",rack="rack1",node="rack1"} 1',
        'sideband_expected_rack{site="lab",rack="rack2",node="rack2"} 1',
        'sideband_certificate_expires_timestamp_seconds{site="lab",function="node",host="node1"} 1900000000',
    ]
    assert file(compiled("lake1", ends), "facts.prom") == ""


def test_the_region_hands_over_what_rules_read_and_no_more() -> None:
    (rule,) = yaml.safe_load(alerts.feed(GROUPS))
    names = rule["regex"].split("|")
    assert {"DCGM_FI_DEV_GPU_TEMP", "sideband_train_loss_nonfinite", "up", "sideband_job_info"} <= set(names)
    assert "node_cpu_seconds_total" not in names
    assert "alertmanager_config_hash" not in names


# -- who is told ------------------------------------------------------------------------------------------


def routed(made: dict[str, Any], **labels: str) -> list[str]:
    """The receivers of an alert, as Alertmanager finds them: the first that fits, and on where it says so."""
    found = []
    for route in made["route"]["routes"]:
        if all(_matches(matcher, labels) for matcher in route.get("matchers", ())):
            found.append(route["receiver"])
            if not route.get("continue"):
                break
    return found or [made["route"]["receiver"]]


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    name, _, value = matcher.partition("!=" if "!=" in matcher else "=")
    return (labels.get(name, "") == value.strip('"')) is ("!=" not in matcher)


def test_n3_severities_go_where_the_site_says() -> None:
    made = json.loads(compiled("region1")["manager"])
    assert routed(made, severity="critical") == ["fallback", "chat", "slack", "pager"]
    assert routed(made, severity="warning") == ["fallback", "mail"]
    assert routed(made, severity="info") == ["fallback"]
    assert routed(made, severity="odd") == ["fallback"]
    assert routed(made, severity="critical", tenant="alpha")[:2] == ["fallback", "tenants"]
    assert "tenants" not in routed(made, severity="critical", tenant="unassigned")
    assert routed(made, alertname="Watchdog", severity="none") == ["watchdog-region"]
    assert routed(json.loads(compiled("lake1")["manager"]), alertname="Watchdog") == ["nobody"]


def test_case_73_the_fall_back_hears_everything_and_needs_no_template() -> None:
    made = json.loads(compiled("region1")["manager"])
    (fallback,) = [one for one in made["receivers"] if one["name"] == "fallback"]
    assert "{{" not in json.dumps(fallback)
    (hook,) = fallback["webhook_configs"]
    assert hook["url"] == "https://10.30.0.51:8445/api/v1/inbox"
    assert hook["http_config"]["tls_config"]["key_file"] == "/etc/sideband/alerts/host.key"


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("wecom", "http://127.0.0.1:8553/send/chat"),
        ("slack", "http://127.0.0.1:8553/send/chat"),
        ("webhook", None),
    ],
)
def test_without_an_inbox_the_fall_back_is_one_that_needs_no_template(kind: str, place: str | None) -> None:
    told = {
        "receivers": [{"name": "mail", "kind": "email", "to": ["a@b.c"]},
                      {"name": "chat", "kind": kind, "secret_variable": "vault_chat"}],
        "routes": {"critical": ["chat"], "warning": ["mail"], "info": ["mail"]},
        "smtp": NOTIFY["smtp"],
    }  # fmt: skip
    made = json.loads(compiled("region1", notify=told)["manager"])
    (fallback,) = [one for one in made["receivers"] if one["name"] == "fallback"]
    assert fallback["webhook_configs"][0].get("url") == place
    assert routed(made, severity="odd") == ["fallback"]


def test_every_route_has_its_receiver_and_no_secret_is_in_the_file() -> None:
    for host in ("region1", "lake1"):
        made = compiled(host)
        config = json.loads(made["manager"])
        names = [one["name"] for one in config["receivers"]]
        assert len(names) == len(set(names))
        assert {route["receiver"] for route in config["route"]["routes"]} <= set(names)
    assert [one["path"].split("/")[-1] for one in compiled("region1")["secrets"]] == [
        "wecom-chat",
        "slack-slack",
        "pagerduty-pager",
        "watchdog-region",
    ]
    assert [one["path"].split("/")[-1] for one in compiled("lake1")["secrets"]] == [
        "wecom-chat",
        "slack-slack",
        "pagerduty-pager",
    ]


def test_the_pulse_is_repeated_at_each_of_its_turns() -> None:
    made = json.loads(compiled("region1")["manager"])
    assert made["route"]["routes"][0] == {
        "receiver": "watchdog-region",
        "matchers": ['alertname="Watchdog"'],
        "group_wait": "0s",
        "group_interval": "120s",
        "repeat_interval": "60s",
        "continue": False,
    }


def test_what_alertmanager_says_of_a_file_is_known_beforehand() -> None:
    """As Alertmanager 0.28 said it of this text; tests/root/test_alerts_stack.py asks a running one."""
    assert alertmanager.fingerprint("") == 617830161876.0
    assert notify.parse(None)["routes"]["critical"] == ["inbox"]


# -- secrets ----------------------------------------------------------------------------------------------


def test_case_10_a_vaulted_variable_is_opened_and_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "chat.url").write_text("https://hooks.slack.com/services/T/B/s3cr3t\n")
    wanted = [
        {"path": "/a", "file": "", "variable": "vault_chat"},
        {"path": "/b", "file": str(tmp_path / "chat.url"), "variable": ""},
    ]
    made = filters.secrets(wanted, {"vault_chat": "https://qyapi.example/?key=s3cr3t"}, "region1")
    assert made == [
        {"path": "/a", "content": "https://qyapi.example/?key=s3cr3t\n"},
        {"path": "/b", "content": "https://hooks.slack.com/services/T/B/s3cr3t\n"},
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("$ANSIBLE_VAULT;1.1;AES256 6162", "is no one line of plain text"),
        ("", "is no one line of plain text"),
        ("two\nlines s3cr3t", "is no one line of plain text"),
        (None, r"cannot be read \(KeyError\)"),
    ],
)
def test_a_secret_that_is_none_is_said_without_showing_it(value: str | None, said: str) -> None:
    wanted = [{"path": "/a", "file": "", "variable": "vault_chat"}]
    given = {} if value is None else {"vault_chat": value}
    with pytest.raises(
        AnsibleFilterError, match=f"region1: sideband_notify: variable vault_chat {said}"
    ) as raised:
        filters.secrets(wanted, given, "region1")
    assert "s3cr3t" not in str(raised.value)


def test_case_10_an_inline_vaulted_secret_reaches_its_file_and_no_other(tmp_path: Path) -> None:
    """The whole role, rendered by Ansible's own templating, with a value that is vaulted in the inventory."""
    from ansible.parsing.dataloader import DataLoader

    secret = VaultSecret(b"password")
    sealed = VaultLib([("default", secret)]).encrypt("https://qyapi.example/?key=s3cr3t", secret).decode()
    text = "vault_chat: !vault |\n" + "".join(f"  {line}\n" for line in sealed.splitlines())
    (tmp_path / "vault.yml").write_text(text)
    VaultSecretsContext.initialize(VaultSecretsContext([("default", secret)]))
    loader = DataLoader()
    read = loader.load_from_file(str(tmp_path / "vault.yml"))
    told = {"receivers": [NOTIFY["receivers"][0], NOTIFY["receivers"][1]],
            "routes": {"critical": ["chat"], "warning": ["chat"], "info": ["inbox"]}}  # fmt: skip
    made = render_kit.fragment(
        "alerts", model(notify=told), "region1", IDENTITY, tmp_path, sideband_certificate_ends=[],
        sideband_policy_allowed_signers="x", vault_chat=read["vault_chat"],
    )  # fmt: skip
    by_path = {one["path"]: one for one in made["secrets"]}
    chat = by_path["/etc/sideband/alerts/secrets/wecom-chat"]
    assert (chat["content"], chat["mode"], chat["owner"]) == (
        "https://qyapi.example/?key=s3cr3t\n", "0600", "sideband-alerts",
    )  # fmt: skip
    shown = json.dumps(made["fragment"], default=str)
    assert "s3cr3t" not in shown
    assert "$ANSIBLE_VAULT" not in shown + json.dumps(made["secrets"], default=str)
    assert "__ansible_vault" not in shown


def test_the_roles_files_are_whole(tmp_path: Path) -> None:
    """Go's templates pass through Ansible's untouched."""
    made = render_kit.fragment(
        "alerts", model(notify=notify.DEFAULTS), "lake1", IDENTITY, tmp_path, sideband_certificate_ends=[],
        sideband_policy_allowed_signers="x",
    )["fragment"]  # fmt: skip
    files = {one["path"]: one for one in made["files"]}
    assert '{{ template "sideband.severity" . }}' in files["/etc/sideband/alerts/sideband.tmpl"]["content"]
    rules = files["/etc/sideband/alerts/lake/curves.yml"]
    assert "The loss of {{ $labels.job }}" in rules["content"]
    assert rules["check"] == "/usr/bin/vmalert -dryRun -loggerLevel=ERROR -rule=%s"
    unit = files["/etc/systemd/system/sideband-alerts-judge@.service"]["content"]
    assert "    -datasource.url=${STORE} \\\n" in unit
    assert "127.0.0.1:8552" in unit


def test_a_threshold_that_no_rule_has_is_said(tmp_path: Path) -> None:
    said = "region1: sideband_alerts_thresholds: is no threshold \\(got 'gpu_temp'\\); hint: known are "
    settings = {
        "thresholds": [{"name": "gpu_temp", "value": 3}],
        "link": "",
        "channel_hosts": [],
        "certificates": [],
    }
    with pytest.raises(AnsibleFilterError, match=said):
        filters.compiled(model(), "region1", settings, {})
