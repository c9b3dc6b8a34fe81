"""Killed rollouts (acceptance 5, B2): the controller, a node, a receiver and the switch, each once at
moments of a fixed seed. `bench/interrupt.py` does twenty."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]


def test_whatever_dies_the_next_run_finishes_and_ssh_comes_back(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bench/interrupt.py", "--kills", "4", "--seed", "4", "--reports", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False,
    )  # fmt: skip
    assert (tmp_path / "interrupt.json").exists(), done.stderr[-3000:]
    report = json.loads((tmp_path / "interrupt.json").read_text())
    assert [check for check in report["checks"] if not check["pass"]] == [], done.stderr[-3000:]
    assert report["figures"]["kills"] == 4
    assert done.returncode == 0
