"""`observe` and `enforce` on the running lab: one line of the contract switches, what enforcing would drop
passes, is counted and listed by verify by source and port, and the same line back drops it again (B7, O5)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spare_site import ROOT, lab

pytestmark = pytest.mark.lab

LAB = ROOT / "inventories/lab"
EDGE = "  edge:\n    kind: telemetry\n    mode: enforce\n"
NODE, PORT = "10.21.0.11", 9321
# A rack opens a connection to a node, which no flow allows.
KNOCK = f"""
import socket
try:
    socket.create_connection(("{NODE}", {PORT}), timeout=3)
except OSError as error:
    print(type(error).__name__)
"""
PASSES, DROPPED = "ConnectionRefusedError", "TimeoutError"


def play(inventory: Path, *words: str) -> str:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        ["ansible-playbook", "-i", str(inventory), *words],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


def planes(inventory: Path) -> None:
    play(inventory, "playbooks/contract.yml", "playbooks/planes.yml", "--limit", "node1,rack1")


def knock() -> str:
    return lab("exec", "rack1", "python3", "-", text=KNOCK).strip()


@pytest.fixture
def observing(tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "site"
    shutil.copytree(LAB, copy, symlinks=True)
    connection = copy / "group_vars/lab/connection.yml"
    connection.write_text(connection.read_text().replace("{{ inventory_dir }}/../..", str(ROOT)))
    path = copy / "group_vars/all/planes.yml"
    text = path.read_text()
    assert EDGE in text
    path.write_text(text.replace(EDGE, EDGE.replace("enforce", "observe")))
    planes(copy)
    yield copy
    planes(LAB)


def test_one_line_switches_a_plane_to_observing_and_back(observing: Path, tmp_path: Path) -> None:
    assert knock() == PASSES
    said = play(
        observing, "playbooks/verify.yml", "-e", "sideband_verify_only=node1",
        "-e", f"sideband_verify_reports={tmp_path}",
    )  # fmt: skip
    assert f"node1 edge0: 10.21.0.21 tcp {PORT}: " in said
    planes(LAB)
    assert knock() == DROPPED
