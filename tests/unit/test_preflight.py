"""The third ring of validation: hosts that cannot take sideband say so plainly, before any change (O8,
cases 16, 28, 29)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from sideband.facts_of_host import collect
from sideband.preflight import (
    FIRST_LOOK,
    judge_facts,
    judge_first_look,
    judge_interpreter,
    parse_first_look,
    version_of,
)
from sideband.state.system import System
from sideband.systems import load

ROOT = Path(__file__).resolve().parent.parent.parent
SYSTEMS = load(str(ROOT / "roles/host/files/systems"))
DEBIAN = 'sideband-os NAME="Debian GNU/Linux"\nsideband-os ID=debian\nsideband-os VERSION_ID="12"\n'
ALMA = 'sideband-os NAME="AlmaLinux"\nsideband-os ID="almalinux"\nsideband-os VERSION_ID="8.10"\n'


def said(text: str | None) -> list[str]:
    answer = None if text is None else parse_first_look(text)
    return [str(error) for error in judge_first_look("h1", answer, SYSTEMS)]


def test_a_supported_host_passes() -> None:
    assert said(DEBIAN + "sideband-python /usr/bin/python3 3.11.2\n") == []


def test_case_16_platform_python_36_is_named_with_host_found_and_needed() -> None:
    found = said(ALMA + "sideband-python /usr/libexec/platform-python 3.6.8\n")
    assert found == [
        "h1: system: AlmaLinux 8.10 is not supported; supported: Debian 12/13, Red Hat Enterprise Linux 9, "
        "Rocky Linux 9, Ubuntu 22.04/24.04",
        "h1: ansible_python_interpreter: /usr/libexec/platform-python is Python 3.6.8, "
        "3.9 or newer is needed; install a newer python3 and name it here",
    ]


def test_a_better_interpreter_beside_it_is_named() -> None:
    text = "sideband-python /usr/bin/python3 3.6.8\nsideband-python /usr/bin/python3.11 3.11.5\n"
    assert said(DEBIAN + text) == [
        "h1: ansible_python_interpreter: /usr/bin/python3 is Python 3.6.8, 3.9 or newer is needed; "
        "set it to /usr/bin/python3.11"
    ]


def test_no_interpreter_a_broken_one_and_no_host() -> None:
    assert said(DEBIAN) == [
        "h1: ansible_python_interpreter: no Python 3 found, 3.9 or newer is needed; install python3"
    ]
    assert "does not run" in said(DEBIAN + "sideband-python /usr/bin/python3 \n")[0]
    assert said(None)[0].startswith("h1: ansible_host: cannot be reached")


def test_the_look_is_read_through_a_login_banner_and_carriage_returns() -> None:
    text = "Welcome\r\n" + (DEBIAN + "sideband-python /usr/bin/python3 3.11.2\n").replace("\n", "\r\n")
    assert said(text) == []


@pytest.mark.parametrize("interpreter", ["/usr/bin/python3", "''", "/nowhere/python3"])
def test_the_first_look_needs_a_shell_alone(interpreter: str) -> None:
    command = FIRST_LOOK.format(interpreter=interpreter)
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    answer = parse_first_look(done.stdout)
    assert answer["os_release"]["ID"]
    assert version_of(answer["kernel"]) > (2,)
    assert judge_interpreter("h1", answer["pythons"]) == []


@pytest.mark.parametrize(
    ("version", "fits"),
    [("3.8.18", False), ("3.9.0", True), ("3.10.1", True), ("3.13.5", True), ("4.0.0", True)],
)
def test_the_floor_compares_numbers_not_text(version: str, fits: bool) -> None:
    assert (judge_interpreter("h1", [("/usr/bin/python3", version)]) == []) is fits


FACTS: dict[str, Any] = {
    "kernel": "6.1.0-18-amd64",
    "nft": "1.0.6",
    "interfaces": ["lo", "edge0", "mgmt0"],
    "disk_free_bytes": 2**33,
    "service_manager": "systemd",
    "rivals": [],
}


def interface(device: str = "edge0", managed: bool = True) -> dict[str, Any]:
    return {"device": device, "managed": managed}


PART: dict[str, Any] = {"words": ["node"], "interfaces": {"edge": interface()}}


def test_a_host_that_is_fit_has_nothing_against_it() -> None:
    assert judge_facts("h1", FACTS, PART) == []
    assert judge_facts("h1", {**FACTS, "nft": ""}, PART) == []


@pytest.mark.parametrize(
    ("facts", "part", "wanted"),
    [
        (
            {"kernel": "5.15.0-91-generic"},
            PART,
            "h1: kernel: cannot mark packets on their way out, 5.16 is needed (got '5.15.0-91-generic'); "
            "boot a newer kernel, or have the switch port set the DSCP",
        ),
        (
            {"nft": "0.9.8"},
            PART,
            "h1: nft: 1.0.1 or newer is needed (got '0.9.8'); update the package nftables",
        ),
        (
            {},
            {**PART, "interfaces": {"edge": interface("enp74s0f0np0.3008")}},
            "h1: zones: edge: an interface's name has at most 15 characters (got 'enp74s0f0np0.3008'); "
            "choose a shorter one",
        ),
        (
            {},
            {**PART, "interfaces": {"edge": interface("edge1")}},
            "h1: zones: edge: the host has no such interface (got 'edge1'); it has edge0, mgmt0",
        ),
        (
            {"rivals": ["/etc/netplan/50-cloud-init.yaml configures edge0 too"]},
            PART,
            "h1: planes: /etc/netplan/50-cloud-init.yaml configures edge0 too; "
            "one owner per link: decide which, by hand",
        ),
        (
            {"disk_free_bytes": 2**29},
            PART,
            "h1: /var/lib: at least 1 GiB must be free (got 512 MiB); make room",
        ),
        ({"service_manager": ""}, PART, "h1: service manager: systemd is needed (got 'none found')"),
    ],
)
def test_each_fault_is_named_cases_28_and_29(
    facts: dict[str, Any], part: dict[str, Any], wanted: str
) -> None:
    assert [str(error) for error in judge_facts("h1", {**FACTS, **facts}, part)] == [wanted]


def test_an_old_kernel_does_where_nothing_is_marked() -> None:
    part = {"words": ["policy"], "interfaces": {"management": interface("mgmt0", managed=False)}}
    assert judge_facts("h1", {**FACTS, "kernel": "5.4.0"}, part) == []


def test_facts_of_a_host_case_29(tmp_path: Path) -> None:
    for folder in ("var/lib", "run/systemd/system", "sys/class/net/edge0", "etc/netplan"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="13"\n')
    (tmp_path / "etc/netplan/50-cloud-init.yaml").write_text(
        "network: {version: 2, renderer: NetworkManager, ethernets: {edge0: {dhcp4: true}}}\n"
    )
    facts = collect(System(str(tmp_path)), ["edge0"])
    assert facts["service_manager"] == "systemd"
    assert facts["interfaces"] == ["edge0"]
    assert facts["os_release"] == {"ID": "debian", "VERSION_ID": "13"}
    assert len(facts["rivals"]) == 1
    assert "/etc/netplan/50-cloud-init.yaml" in facts["rivals"][0]
