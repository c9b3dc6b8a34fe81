"""Every fault is said exactly so, all at once, and the lab's own contract has none (O9, B3, B7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from contract_kit import InventoryLoader, change, lab, spelling
from sideband.check import check_site

GOLDENS = Path(__file__).with_name("goldens_errors.yml")
CASES: list[dict[str, Any]] = yaml.load(GOLDENS.read_text(encoding="utf-8"), InventoryLoader)
KNOWN = ("sideband_mirror_url",)


def errors_of(case: dict[str, Any]) -> list[str]:
    hostvars, groups = change(*lab(), case)
    return [str(error) for error in check_site(hostvars, groups, KNOWN, spelling)]


def test_the_lab_contract_holds() -> None:
    assert check_site(*lab(), KNOWN, spelling) == []


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_error(case: dict[str, Any]) -> None:
    assert errors_of(case) == case["errors"]


def test_every_golden_says_something() -> None:
    assert len(CASES) >= 40
    assert all(case["errors"] for case in CASES)
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_errors_are_short_and_say_what_next(case: dict[str, Any]) -> None:
    for line in case["errors"]:
        host, path, rest = line.split(": ", 2)
        assert all((host, path)), line
        assert "; " in rest, line
        assert len(line) <= 240, line
