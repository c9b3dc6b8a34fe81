"""The program's configuration: exactly of its shape, or refused with the key that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import archive_kit as kit
import pytest

from services.archiver.__main__ import main
from services.archiver.config import load
from services.configuration import ConfigError


def given(tmp_path: Path, **changes: Any) -> str:
    value = {
        **kit.settings(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2", [("alpha", "file:///x")]),
        **changes,
    }
    return str(kit.write_config(tmp_path, value))


def test_a_whole_one_is_read(tmp_path: Path) -> None:
    found = load(given(tmp_path))
    assert found.repositories[0].tenant == "alpha"
    assert found.tiers[0].resolution_seconds == 60


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gateways": []}, "gateways: one is needed"),
        ({"gateways": ["https://a:1"]}, "tls: https wants a certificate"),
        ({"gateways": ["ftp://a:1"]}, "gateways: http or https://ADDRESS:PORT is needed (got 'ftp://a:1')"),
        ({"gateways": ["http://a:1/x?y"]}, "gateways: http or https://ADDRESS:PORT"),
        ({"tiers": []}, "tiers: one is needed"),
        ({"tiers": [{"name": "minute"}]}, "tiers[0].resolution_seconds: missing"),
        ({"memory_bytes": 1}, "memory_bytes: a whole number of at least 67108864 is needed (got 1)"),
        ({"settle_seconds": True}, "settle_seconds: a whole number"),
        ({"repositories": [{"tenant": "a", "url": 1}]}, "repositories[0].url: str is needed (got 1)"),
        ({"peak_flops": {"H100": "much"}}, "peak_flops.H100: a number is needed (got 'much')"),
        ({"state_directory": ""}, "state_directory: a text is needed"),
        ({"more": 1}, "more: not known"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as said:
        load(given(tmp_path, **changes))
    assert problem in str(said.value)


def test_check_says_it_and_needs_no_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", given(tmp_path), "check"]) == 0
    assert main(["--config", given(tmp_path, tiers=[]), "check"]) == 1
    assert "archiver.json: tiers: one is needed" in capsys.readouterr().err
    path = tmp_path / "none.json"
    assert main(["--config", str(path), "check"]) == 1


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    value = json.loads(Path(given(tmp_path)).read_text())
    for key in value:
        less = {name: one for name, one in value.items() if name != key}
        with pytest.raises(ConfigError, match=f": {key}: missing"):
            load(str(kit.write_config(tmp_path, less)))
