"""Roles ask for software by plain words; each system's data says what that is there (O8)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import render_kit
from ansible.errors import AnsibleFilterError
from contract_kit import lab
from sideband import links, software, systems
from sideband.contract import compile_site
from sideband.state import fragment as want

from filter_plugins import host as filters
from filter_plugins import rollout

ROOT = Path(__file__).resolve().parent.parent.parent
RELEASES = systems.load(str(ROOT / "roles/host/files/systems"))
MODEL = compile_site(*lab())
IDENTITY = {"ca": "ca", "certificate": "certificate", "key": "key"}
URL = "http://10.90.0.61:8080"
HOSTS = {
    "rack": "rack1",
    "region": "region1",
    "lake": "lake1",
    "logs": "lake1",
    "gateway": "gateway1",
    "alerts": "region1",
    "node": "node1",
}
SYSTEMS = {
    "debian12": ("debian", "12"), "debian13": ("debian", "13"), "ubuntu22": ("ubuntu", "22.04"),
    "ubuntu24": ("ubuntu", "24.04"), "rocky9": ("rocky", "9.4"), "rhel9": ("rhel", "9.2"),
}  # fmt: skip
DEBIAN_ONLY = re.compile(
    r"/etc/apt|dpkg|\.deb\b|iproute2|/usr/sbin/nologin|/usr/bin/(vmagent|victoria-metrics|prometheus|promtool)"
)


def entry(version: str, file: str) -> dict[str, Any]:
    return {"version": version, "file": file, "sha256": "ab" * 32, "size": 1}


# The variables that the lab's receivers name.
SECRETS = {
    one["secret_variable"]: "http://10.90.0.61:8090/x"
    for one in (*MODEL["notify"]["receivers"], *MODEL["notify"]["watchdogs"])
    if one["secret_variable"]
}
HOLDS = {
    "trixie": {
        "victoria-metrics": entry("1.112.0+ds1-2", "vm.deb"),
        "prometheus-node-exporter": entry("1.9.0-1", "ne.deb"),
    },
    "archives": {
        "victoria_metrics": entry("1.112.0", "victoria_metrics-1.112.0.tar.gz"),
        "prometheus": entry("2.53.3", "prometheus-2.53.3.tar.gz"),
        "node_exporter": entry("1.9.0", "node_exporter-1.9.0.tar.gz"),
        "alertmanager": entry("0.28.1", "alertmanager-0.28.1.tar.gz"),
        "rsyslog": entry("8.2504.0", "rsyslog-8.2504.0.tar.gz"),
        "victoria_logs": entry("1.112.0", "victoria_logs-1.112.0.tar.gz"),
        "querygate_packages": entry("0123456789ab", "querygate_packages-0123456789ab.tar.gz"),
    },
}


def known(name: str, **methods: str) -> dict[str, Any]:
    return software.system(RELEASES, dict(zip(("ID", "VERSION_ID"), SYSTEMS[name])), methods)


def brought(word: str, name: str, directory: Path, **methods: str) -> dict[str, Any]:
    """What role `word` brings to a host of a system, as host_state gets it."""
    manifest = directory / "manifest.json"
    manifest.write_text(json.dumps(HOLDS))
    found = render_kit.fragment(
        word, MODEL, HOSTS[word], IDENTITY, directory, SYSTEMS[name], install_methods=methods,
        sideband_mirror_manifest=str(manifest), sideband_mirror_url=URL,
        sideband_mirror_archive_suite="trixie", sideband_policy_allowed_signers="x",
        sideband_certificate_ends=[], **SECRETS,
    )  # fmt: skip
    made = software.resolve(found["fragment"], known(name, **methods), HOLDS, URL, {})
    want.parse(made, found["secrets"])  # host_state understands it
    return made


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("word", HOSTS)
def test_o8_every_role_renders_for_every_system(word: str, name: str, tmp_path: Path) -> None:
    system, made = known(name), brought(word, name, tmp_path)
    text = json.dumps(made)
    assert set(made.get("packages", ())) <= set(system["packages"].values()) - {""}
    assert {user["shell"] for user in made["users"]} == {system["paths"]["nologin"]}
    # A unit starts what a package or an archive of this very fragment has brought.
    started = {
        line.split()[0].removeprefix("ExecStart=")
        for item in made["files"]
        for line in str(item.get("content", "")).splitlines()
        if line.startswith("ExecStart=")
    }
    links = tuple(f"{item['path']}/" for item in made.get("archives", ()))
    for path in started:
        pythons = {system["paths"]["python"], system["paths"]["service_python"]}
        assert path in set(system["programs"].values()) | pythons or path.startswith(links)
        assert not path.startswith("/opt/sideband/") or path.startswith(links)
    assert ("deb" in [item["format"] for item in made.get("archives", ())]) == (
        word == "node" and system["package_manager"] == "apt"
    )
    if system["package_manager"] == "dnf":
        assert DEBIAN_ONLY.findall(text) == []


@pytest.mark.parametrize(
    ("word", "name", "packages", "archives", "masked"),
    [
        ("rack", "debian13", ["haproxy", "victoria-metrics"], ["rsyslog"], ["haproxy", "victoria-metrics"]),
        ("rack", "debian12", ["haproxy"], ["victoria_metrics", "rsyslog"], ["haproxy"]),
        ("rack", "rocky9", ["haproxy"], ["victoria_metrics", "rsyslog"], ["haproxy"]),
        ("logs", "debian13", ["haproxy", "victoria-logs"], [], ["haproxy", "victoria-logs"]),
        ("logs", "ubuntu24", ["haproxy"], ["victoria_logs"], ["haproxy"]),
        ("lake", "ubuntu22", ["haproxy"], ["prometheus", "victoria_metrics"], ["haproxy"]),
        ("lake", "ubuntu24", ["haproxy", "prometheus"], ["victoria_metrics"], ["haproxy", "prometheus"]),
        ("lake", "rhel9", ["haproxy"], ["prometheus", "victoria_metrics"], ["haproxy"]),
        (
            "alerts",
            "debian13",
            ["prometheus-alertmanager", "victoria-metrics", "ca-certificates"],
            [],
            ["prometheus-alertmanager", "victoria-metrics"],
        ),
        ("alerts", "ubuntu24", ["ca-certificates"], ["alertmanager", "victoria_metrics"], []),
        ("gateway", "rhel9", ["haproxy", "python3.11"], ["querygate_packages"], ["haproxy"]),
        ("gateway", "debian13", ["haproxy", "python3"], ["querygate_packages"], ["haproxy"]),
    ],
)
def test_what_is_not_packaged_comes_as_an_archive_and_only_packages_have_units_to_mask(
    word: str, name: str, packages: list[str], archives: list[str], masked: list[str], tmp_path: Path
) -> None:
    made = brought(word, name, tmp_path)
    assert made["packages"] == packages
    assert [item["path"] for item in made.get("archives", ())] == [
        f"/opt/sideband/{each}" for each in archives
    ]
    assert made.get("masked", []) == [f"{each}.service" for each in masked]


def test_the_site_may_wish_an_archive_where_there_is_a_package(tmp_path: Path) -> None:
    made = brought("rack", "debian13", tmp_path, victoria_metrics="archive")
    assert made["packages"] == ["haproxy"]
    assert made["archives"][:1] == [
        {
            "path": "/opt/sideband/victoria_metrics",
            "url": f"{URL}/archives/victoria_metrics-1.112.0.tar.gz",
            "sha256": "ab" * 32,
            "format": "tar",
        }
    ]
    agent = next(item for item in made["files"] if item["path"].endswith("rack-agent.service"))
    assert "\nExecStart=/opt/sideband/victoria_metrics/vmagent \\\n" in agent["content"]
    check = next(item["check"] for item in made["files"] if item["path"].endswith("admission.yml"))
    assert "/opt/sideband/victoria_metrics/vmagent -dryRun" in check
    # another archive, another program: the unit starts anew; the front, which runs none of it, does not
    units = {unit["name"]: unit["restart_on"] for unit in made["units"]}
    assert "/opt/sideband/victoria_metrics" in units["sideband-rack-agent.service"]
    assert "/opt/sideband/victoria_metrics" not in units["sideband-rack-front.service"]


def test_one_of_several_units_starts_anew_with_its_archive_too(tmp_path: Path) -> None:
    made = brought("alerts", "debian13", tmp_path, victoria_metrics="archive")
    units = {unit["name"]: unit["restart_on"] for unit in made["units"]}
    assert "/opt/sideband/victoria_metrics" in units["sideband-alerts-judge@near.service"]
    assert "/opt/sideband/victoria_metrics" not in units["sideband-alerts-manager.service"]


def test_a_node_gets_an_unpacked_package_where_it_can_and_an_archive_elsewhere(tmp_path: Path) -> None:
    for name, methods, program in (
        ("debian12", {}, "/opt/sideband/exporter/usr/bin/prometheus-node-exporter"),
        ("debian12", {"node_exporter": "archive"}, "/opt/sideband/exporter/node_exporter"),
        ("rhel9", {}, "/opt/sideband/exporter/node_exporter"),
    ):
        made = brought("node", name, tmp_path, **methods)
        unit = next(item for item in made["files"] if item["path"].endswith("sideband-exporter.service"))
        assert f"\nExecStart={program} \\\n" in unit["content"]
        assert made.get("packages", []) == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_links_rules_and_shapes_name_each_systems_packages(name: str) -> None:
    fragment = links.planes_fragment(MODEL["hosts"]["rack1"], {}, 40, [])
    made = software.resolve(fragment, known(name), {}, "", {})
    apt = known(name)["package_manager"] == "apt"
    wanted = ["iproute2", "systemd"] if apt else ["iproute", "iproute-tc", "systemd-networkd"]
    assert made["packages"] == [*wanted, "nftables"]


def test_a_switch_of_a_system_without_its_package_is_refused() -> None:
    fragment = links.fabric_fragment({"ports": [], "vlans": []}, 40, [])
    with pytest.raises(
        software.SoftwareError, match=r"^Rocky Linux 9\.4 has no ifupdown2, and sideband brings"
    ):
        software.resolve(fragment, known("rocky9"), {}, "", {})


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"haproxy": "archive"}, "haproxy has no choice; those that have: prometheus, victoria_metrics"),
        ({"prometheus": "snap"}, "prometheus must be one of package, archive (got 'snap')"),
        ({"victoria_metrics": "package"}, "Debian 12 has no package of victoria_metrics that would do"),
    ],
)
def test_a_wish_that_cannot_be_met_is_named(methods: dict[str, str], said: str) -> None:
    with pytest.raises(software.SoftwareError, match=re.escape(said)):
        known("debian12", **methods)


def test_what_comes_from_the_mirror_needs_the_mirror_and_a_hop_needs_the_next(tmp_path: Path) -> None:
    needs = {each["name"]: each for each in brought("rack", "debian12", tmp_path)["needs"]}
    assert needs["relay of region1"] == {"name": "relay of region1", "address": "10.30.0.31", "port": 8428}
    assert needs["the site's mirror of packages"]["only_for"] == "packages"
    assert needs["the site's mirror of archives"]["address"] == "10.90.0.61"
    part = {"reaches": {"push": [{"host": "r", "authority": "[fd00::1]:8427", "authority6": ""}]}}
    assert software.next_hop(part, "push") == [{"name": "push of r", "address": "fd00::1", "port": 8427}]
    assert software.next_hop(part, "relay") == []


def test_an_archive_that_the_mirror_lacks_or_a_pin_forbids_is_named() -> None:
    fragment = {"software": ["victoria_metrics"]}
    with pytest.raises(software.SoftwareError, match="mirror: archives holds no victoria_metrics; hint"):
        software.resolve(fragment, known("rocky9"), {}, URL, {})
    with pytest.raises(software.SoftwareError, match=r"got 1\.112\.0, pinned 1\.80"):
        software.resolve(fragment, known("rocky9"), HOLDS, URL, {"victoria_metrics": "1.80"})
    with pytest.raises(software.SoftwareError, match="software: vmagent is unknown"):
        software.resolve({"software": ["vmagent"]}, known("rocky9"), HOLDS, URL, {})


def test_an_unsupported_system_is_refused_by_name_and_version_also_without_preflight() -> None:
    look = {
        "stdout": 'sideband-os NAME="AlmaLinux"\nsideband-os ID=almalinux\nsideband-os VERSION_ID="8.10"\n'
    }
    said = "h1: system: AlmaLinux 8.10 is not supported; supported: Debian 12/13"
    with pytest.raises(AnsibleFilterError, match=said):
        filters.known_system(look, "h1")
    with pytest.raises(AnsibleFilterError, match=r"h1: system: could not be read \(no route\)"):
        filters.known_system({"msg": "no route", "stdout": ""}, "h1")


def test_whoever_waits_for_none_asks_none() -> None:
    fragment = {"software": ["haproxy"], "needs": [{"name": "x", "address": "127.0.0.1", "port": 1}]}
    mirror = {"manifest": "", "url": URL, "versions": {}, "wait_seconds": 0}
    assert "needs" not in filters.resolved(fragment, known("debian13"), "h1", mirror)
    assert (
        len(filters.resolved(fragment, known("debian13"), "h1", {**mirror, "wait_seconds": 5})["needs"]) == 2
    )


@pytest.mark.parametrize("word", sorted(software.ASKS))
def test_what_preflight_takes_a_role_to_ask_for_is_what_the_role_asks_for(word: str, tmp_path: Path) -> None:
    found = render_kit.fragment(
        word, MODEL, HOSTS[word], IDENTITY, tmp_path, SYSTEMS["debian13"],
        sideband_policy_allowed_signers="x", sideband_certificate_ends=[], **SECRETS,
    )  # fmt: skip
    # What only some sites have on such a host: a relay of logs, an export of them.
    by_contract = {"rack": {"rsyslog"}, "logs": {"curl", "zstd"}}.get(word, set())
    assert set(found["fragment"]["software"]) - by_contract == set(software.ASKS[word]) - by_contract


def test_what_neither_system_nor_mirror_holds_is_refused_before_any_change() -> None:
    """One machine with Debian 12, whose VictoriaMetrics is too old, and no mirror to bring another."""
    looks = {
        name: {"stdout": f"sideband-here\nsideband-os ID=debian\nsideband-os VERSION_ID={version}\n"
                         "sideband-python /usr/bin/python3 3.11.2\n"}
        for name, version in (("old", "12"), ("new", "13"))
    }  # fmt: skip
    skipped = {"skipped": True}
    model = {"hosts": {name: {"words": ["node", "rack", "region", "lake"]} for name in looks}}
    hosts = {name: {"__preflight_look": look, "__preflight_facts": skipped} for name, look in looks.items()}
    judge = rollout.FilterModule().filters()["sideband_world_errors"]
    assert judge(["new"], hosts, model) == []
    assert judge(["old"], hosts, model) == [
        "old: system: Debian 12 has no package of victoria_metrics that would do, and no mirror has an "
        "archive; mirror it and name the list in sideband_mirror_manifest, or take a newer system"
    ]
    assert software.lacking(known("debian12"), ["rack"], HOLDS) == []
