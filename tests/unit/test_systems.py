"""Supported systems are data, and every file is whole (O8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sideband.systems import MANAGERS, PACKAGES, SystemsError, find, load, parse, parse_os_release, refusal

DIRECTORY = Path(__file__).resolve().parent.parent.parent / "roles/host/files/systems"
RELEASES = load(str(DIRECTORY))


@pytest.mark.parametrize(
    ("identity", "version", "name"),
    [
        ("debian", "12", "Debian"),
        ("debian", "13", "Debian"),
        ("ubuntu", "22.04", "Ubuntu"),
        ("ubuntu", "24.04", "Ubuntu"),
        ("rhel", "9.4", "Red Hat Enterprise Linux"),
        ("rocky", "9.3", "Rocky Linux"),
    ],
)
def test_o8_these_are_supported(identity: str, version: str, name: str) -> None:
    found = find(RELEASES, {"ID": identity, "VERSION_ID": version})
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("identity", "version"),
    [("debian", "11"), ("debian", "1"), ("debian", "130"), ("ubuntu", "20.04"), ("ubuntu", "22.10"),
     ("rocky", "8.9"), ("rhel", "90"), ("fedora", "40"), ("", ""), ("debian", "")],
)  # fmt: skip
def test_these_are_not(identity: str, version: str) -> None:
    assert find(RELEASES, {"ID": identity, "VERSION_ID": version}) is None


def test_a_version_may_differ_from_its_system() -> None:
    debian = next(release for release in RELEASES if release.id == "debian")
    assert debian.part("packages", "12")["victoria_metrics"] == ""
    assert debian.part("packages", "13")["victoria_metrics"] == "victoria-metrics"
    assert debian.part("packages", "12")["haproxy"] == "haproxy"


def test_a_refusal_names_what_it_found_and_what_would_do() -> None:
    said = refusal(RELEASES, {"NAME": "Ubuntu", "ID": "ubuntu", "VERSION_ID": "20.04"})
    assert said.startswith("Ubuntu 20.04 is not supported; supported: Debian 12/13, ")
    assert refusal(RELEASES, {}).startswith("unknown system without a version is not supported")


def test_os_release_is_read_with_and_without_quotes() -> None:
    text = "NAME=\"Rocky Linux\"\nID='rocky'\nVERSION_ID=9.3\n# comment\nBAD LINE\n"
    assert parse_os_release(text) == {"NAME": "Rocky Linux", "ID": "rocky", "VERSION_ID": "9.3"}


@pytest.mark.parametrize("file", sorted(DIRECTORY.glob("*.yml")), ids=lambda path: path.stem)
def test_every_data_file_names_everything(file: Path) -> None:
    release = parse(yaml.safe_load(file.read_text()), file.name)
    assert set(release.packages) == set(PACKAGES)
    assert release.package_manager in MANAGERS
    assert release.packages["nftables"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"versions": [22.04]}, "versions must be text in quotes"),
        ({"package_manager": "zypper"}, "package_manager must be one of apt, dnf"),
        ({"packages": {}}, "packages.nftables is missing"),
        ({"name": ""}, "name is missing"),
        ({"service_manager": "runit"}, "service_manager must be one of systemd"),
        ({"suites": {"22.04": "jammy"}}, "suites.24.04 is missing"),
        ({"programs": {}}, "programs.haproxy is missing"),
        ({"units": {}}, "units.haproxy is missing"),
        ({"differs": {"20.04": {}}}, "differs.20.04 is none of versions"),
        ({"differs": {"22.04": {"packages": {"vmagent": ""}}}}, "differs.22.04.packages.vmagent is unknown"),
    ],
)
def test_a_gap_in_a_data_file_shows_on_the_controller(change: dict[str, Any], said: str) -> None:
    data = yaml.safe_load((DIRECTORY / "ubuntu.yml").read_text())
    with pytest.raises(SystemsError, match=said):
        parse({**data, **change}, "ubuntu.yml")
