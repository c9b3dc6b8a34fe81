"""Removal leaves nothing (C9, acceptance 4)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench import remove

pytestmark = [pytest.mark.lab, pytest.mark.drill]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("spare", [*(spare.name for spare in remove.SPARES), remove.SINGLE])
def test_what_was_brought_is_gone_and_comes_again(spare: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bench/remove.py", spare, "--reports", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "remove.json").read_text())
    assert [check for check in report["checks"] if not check["pass"]] == [], done.stderr
    assert report["figures"]["residue"] == 0
