"""A run limited to one host makes of it what the whole run made (acceptance 3, case 2), on every host."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.remove import residue
from bench.spare_site import snapshot

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
HOSTS = sorted(path.stem for path in (ROOT / "inventories/lab/host_vars").glob("*.yml"))
RENDERED = ("/etc/", "/opt/", "/usr/")


def site(host: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        ["ansible-playbook", "-i", "inventories/lab", "playbooks/site.yml", "--limit", host],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def rendered(host: str) -> dict[str, Any]:
    found = snapshot(host)
    files = {path: what for path, what in found["files"].items() if path.startswith(RENDERED)}
    return {"files": files, "rules": found["rules"], "queues": found["queues"]}


def test_a_run_limited_to_any_one_host_finds_nothing_to_change() -> None:
    before = {host: rendered(host) for host in HOSTS}
    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = dict(zip(HOSTS, pool.map(site, HOSTS)))
    for host, done in runs.items():
        assert done.returncode == 0, f"{host}:\n{done.stdout[-3000:]}"
        recap = [line for line in done.stdout.splitlines() if " ok=" in line and " changed=" in line]
        assert [line.split()[0] for line in recap] == [host], recap
        assert "changed=0 " in recap[0], done.stdout
        assert residue(before[host], rendered(host), ()) == []
