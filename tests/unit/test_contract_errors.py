"""Every fault is said exactly so, all at once, and the lab's own contract has none (O9, B3, B7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from contract_kit import InventoryLoader, change, lab, single, spelling
from sideband import rules_names
from sideband.check import check_site
from sideband.load import OPTIONAL_NOUNS
from sideband.shape import settings

GOLDENS = Path(__file__).with_name("goldens_errors.yml")
CASES: list[dict[str, Any]] = yaml.load(GOLDENS.read_text(encoding="utf-8"), InventoryLoader)
KNOWN = ("sideband_mirror_url",)


def errors_of(case: dict[str, Any]) -> list[str]:
    hostvars, groups = change(*lab(), case)
    deployed, confirmed = case.get("deployed"), case.get("confirmed", "")
    served = case.get("served", False)
    given = {path.split(".")[1] for path in case.get("set", {})} & set(settings())
    found = check_site(hostvars, groups, {*KNOWN, *given}, spelling, deployed, confirmed, served)
    return [str(error) for error in found]


def test_the_lab_contract_holds() -> None:
    assert check_site(*lab(), KNOWN, spelling, served=True) == []


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_error(case: dict[str, Any]) -> None:
    assert errors_of(case) == case["errors"]


def test_every_golden_says_something() -> None:
    assert len(CASES) >= 150
    assert all(case["errors"] for case in CASES)
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_errors_are_short_and_say_what_next(case: dict[str, Any]) -> None:
    for line in case["errors"]:
        host, path, rest = line.split(": ", 2)
        assert all((host, path)), line
        assert "; " in rest, line
        assert len(line) <= 240, line


@pytest.mark.parametrize(
    "name", ["../mgmt1", "mgmt 1", "-mgmt1", "fd00::1", "m\u00fcnchen", "{{ x }}", "m" * 64]
)
def test_an_odd_host_name_is_said(name: str) -> None:
    hostvars, groups = lab()
    hostvars[name] = {**hostvars.pop("mgmt1"), "inventory_hostname": name}
    groups = {group: [name if host == "mgmt1" else host for host in hosts] for group, hosts in groups.items()}
    (error,) = map(str, check_site(hostvars, groups, KNOWN, spelling, served=True))
    assert error.startswith(f"{name}: inventory_hostname: is no name for a host; at most 63 letters")


def test_a_confirmed_shrink_passes() -> None:
    """Case 59: the same contract, with the variable that the error names."""
    shrinks = [case for case in CASES if "deployed" in case and "shrink" in case["errors"][0]]
    assert len(shrinks) >= 4
    for case in shrinks:
        assert errors_of({**case, "confirmed": "shrink"}) == [], case["name"]


def test_a_site_of_the_spine_needs_none_of_the_optional_nouns() -> None:
    hostvars, groups = lab()
    for variables in hostvars.values():
        for noun in OPTIONAL_NOUNS:
            variables.pop(f"sideband_{noun}", None)
    assert check_site(hostvars, groups, KNOWN, spelling) == []


def test_no_error_shows_a_secret() -> None:
    """Case 10: what may be one is told by its length."""
    said = [line for case in CASES for line in case["errors"] if "s3cr3t" in line]
    assert said == []
    assert sum("s3cr3t" in str(case.get("add", case.get("set"))) for case in CASES) >= 6


def test_a_removed_name_points_at_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"sideband_nodes": {"successor": "sideband_node_engine", "since": "0.2"}}
    monkeypatch.setattr(rules_names, "removed", lambda: table)
    case = {"set": {"node1.sideband_nodes": 1}}
    assert errors_of(case) == ["node1: sideband_nodes: is gone since 0.2; use sideband_node_engine"]


def test_the_table_of_removed_names_is_well_formed() -> None:
    for old, entry in rules_names.removed().items():
        assert old.startswith("sideband_"), old
        assert set(entry) == {"successor", "since"}, old


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("all", "is a group's name"),
        ("sideband_node", "is a group's name"),
        ("mgmt1.", "ends with a dot"),
        ("10.90.0.61", "is an address or a number"),
        ("LocalHost", "is the controller itself"),
        ("NODE1", "in other letters"),
    ],
)
def test_a_host_name_that_stands_for_something_else_is_said(name: str, said: str) -> None:
    hostvars, groups = lab()
    hostvars[name] = {**hostvars.pop("mgmt1"), "inventory_hostname": name}
    groups = {group: [name if host == "mgmt1" else host for host in hosts] for group, hosts in groups.items()}
    found = map(str, check_site(hostvars, groups, KNOWN, spelling, served=True))
    (error,) = [line for line in found if "inventory_hostname" in line]
    assert said in error


def test_one_machine_may_be_called_localhost() -> None:
    hostvars, groups = single(["node", "rack", "region", "lake"])
    hostvars["localhost"] = {**hostvars.pop("machine1"), "inventory_hostname": "localhost"}
    groups = {group: ["localhost"] for group in groups}
    assert check_site(hostvars, groups, KNOWN, spelling, served=True) == []


@pytest.mark.parametrize(
    "ways",
    [
        {"ansible_host": "127.0.0.1", "ansible_port": 2222},
        {"ansible_host": "127.0.0.1", "ansible_ssh_common_args": "-o ProxyJump=door"},
        {"ansible_host": "node1.example.org.", "ansible_port": "22"},
        {"ansible_host": "fe80::1%mgmt0"},
        {"ansible_port": None},
    ],
)
def test_ways_in_that_are_right(ways: dict[str, Any]) -> None:
    hostvars, groups = lab()
    hostvars["node1"].update(ways)
    hostvars["mgmt1"].update(ansible_connection="local")
    assert check_site(hostvars, groups, KNOWN, spelling, served=True) == []


def test_settings_as_the_command_line_gives_them() -> None:
    hostvars, groups = lab()
    given = {"sideband_verify_rate": "5", "sideband_verify_training": "yes", "sideband_mirror_suite": 13}
    for variables in hostvars.values():
        variables.update(given, sideband_node_filesystems="/,/srv")
    known = {*KNOWN, *given, "sideband_node_filesystems"}
    assert check_site(hostvars, groups, known, spelling, served=True) == []


@pytest.mark.parametrize(
    "url", ["http://mirror.example.org:80/x", "http://10.90.0.61:8081", "https://[fd00::1]"]
)
def test_a_mirror_behind_something_else_is_the_sites_affair(url: str) -> None:
    hostvars, groups = lab()
    for variables in hostvars.values():
        variables.update(sideband_mirror_url=url, sideband_mirror_port=8081)
    assert check_site(hostvars, groups, {*KNOWN, "sideband_mirror_port"}, spelling, served=True) == []
