"""Rings and preflight on real hosts (cases 13 and 16). The drills roll releases out over the lab
and put it back: `make drills`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.canary import RELEASES

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}


def play(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ansible-playbook", "-i", str(ROOT / "inventories/lab"), *words],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def inside(host: str, script: str) -> str:
    words = [str(ROOT / "lab/lab"), "exec", host, "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_host_of_the_lab_passes_preflight() -> None:
    done = play("playbooks/contract.yml", "playbooks/preflight.yml")
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout


@pytest.fixture
def old_python() -> Iterator[str]:
    """An interpreter that says what AlmaLinux 8's platform Python says, and runs nothing."""
    path = "/tmp/python3.6"
    inside("node1", f"printf '#!/bin/sh\\necho 3.6.8\\n' > {path} && chmod 755 {path}")
    yield path
    inside("node1", f"rm -f {path}")


def test_case_16_an_old_interpreter_is_named_with_host_found_and_needed(old_python: str) -> None:
    done = play(
        "playbooks/contract.yml", "playbooks/preflight.yml", "--limit", "node1",
        "-e", f"ansible_python_interpreter={old_python}",
    )  # fmt: skip
    assert done.returncode != 0
    assert "preflight: 1 faults, nothing was changed" in done.stdout
    assert (
        f"node1: ansible_python_interpreter: {old_python} is Python 3.6.8, 3.9 or newer is needed"
        in done.stdout
    )
    assert "SyntaxError" not in done.stdout


@pytest.mark.drill
@pytest.mark.parametrize("release", [release.name for release in RELEASES])
def test_acceptance_7_a_release_ends_where_it_should(release: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bench/canary.py", release, "--reports", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "canary.json").read_text())
    assert [check for check in report["checks"] if not check["pass"]] == [], done.stderr
    assert done.returncode == 0
