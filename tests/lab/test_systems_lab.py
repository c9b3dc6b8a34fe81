"""A daemon from the site's mirror as an archive, and back to its package (O8): what a distribution lacks
comes by checksum or not at all. And what is not up yet is waited for with a reason on the screen (O5)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import spare_site
from bench.spare_site import ROOT, BenchError, Spare, address, inside, lab

pytestmark = pytest.mark.lab

NAME = "archive1"
MIRROR = os.environ.get("SIDEBAND_TEST_MIRROR", str(ROOT / ".cache/mirror"))
URL = os.environ.get("SIDEBAND_TEST_MIRROR_URL", "http://10.90.0.61:8080")
LINK = "/opt/sideband/node_exporter"
SECONDS = 5


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with contextlib.suppress(BenchError):
        lab("spare", "down", NAME)  # of a run that was killed
    lab("spare", "up", NAME, "--suite", "trixie")
    try:
        connection = yaml.safe_load((ROOT / "inventories/lab/group_vars/lab/connection.yml").read_text())
        path = tmp_path_factory.mktemp("archive") / "hosts.yml"
        text = json.dumps({"all": {"hosts": {NAME: {"ansible_host": address(NAME), **connection}}}})
        path.write_text(text.replace("{{ inventory_dir }}/../..", str(ROOT)))
        yield path
    finally:
        lab("spare", "down", NAME)


def play(inventory: Path, method: str, **more: Any) -> subprocess.CompletedProcess[str]:
    extra = {
        "sideband_mirror_url": URL,
        "sideband_mirror_manifest": f"{MIRROR}/manifest.json",
        "sideband_host_install_methods": {"node_exporter": method},
        "sideband_host_wait_seconds": SECONDS,
        **more,
    }
    return subprocess.run(
        ["ansible-playbook", "-i", str(inventory), "tests/lab/archive.yml", "-e", json.dumps(extra)],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip


def running() -> str:
    """The program that the unit runs, links resolved."""
    return inside(
        NAME, "sh", "-c", "readlink /proc/$(systemctl show -P MainPID sideband-drill.service)/exe"
    ).strip()


def shell(words: str) -> str:
    return inside(NAME, "sh", "-c", words)


def test_an_archive_comes_by_its_checksum_runs_goes_and_comes_again(inventory: Path, tmp_path: Path) -> None:
    held = json.loads(Path(f"{MIRROR}/manifest.json").read_text())
    sha256 = held["archives"]["node_exporter"]["sha256"]

    # a wrong checksum: refused, with nothing on the host
    false = {
        **held,
        "archives": {"node_exporter": {**held["archives"]["node_exporter"], "sha256": "ab" * 32}},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(false))
    before = shell("ls -A /opt /etc/systemd/system; dpkg-query -W")
    refused = play(inventory, "archive", sideband_mirror_manifest=str(tmp_path / "manifest.json"))
    assert refused.returncode != 0
    said = next(line for line in refused.stdout.splitlines() if line.startswith(f"{NAME}: failed at"))
    for word in (f"{LINK}: {URL}/archives/node_exporter-", sha256, "ab" * 32):
        assert word in said
    assert "next: is the site's mirror up, and does its manifest name this file?" in refused.stdout
    assert shell("ls -A /opt /etc/systemd/system; dpkg-query -W") == before
    assert shell("ls /var/lib/sideband/archives 2>/dev/null || true") == ""

    # as an archive, with no package; twice
    done = play(inventory, "archive")
    assert done.returncode == 0, done.stdout
    assert running() == f"/var/lib/sideband/archives/{sha256}/node_exporter"
    assert shell(f"readlink {LINK}").strip() == f"/var/lib/sideband/archives/{sha256}"
    assert "node_load1 " in shell("sleep 1; python3 -c \"import urllib.request as u; print(u.urlopen("
                                  "'http://127.0.0.1:9177/metrics').read().decode())\"")  # fmt: skip
    assert "prometheus-node-exporter" not in shell("dpkg-query -W")
    again = play(inventory, "archive")
    assert "changed=0 " in again.stdout, again.stdout

    # as the system's own package: the same unit, the vendor's masked, the archive gone
    assert (done := play(inventory, "package")).returncode == 0, done.stdout
    assert running() == "/usr/bin/prometheus-node-exporter"
    assert shell("readlink /etc/systemd/system/prometheus-node-exporter.service").strip() == "/dev/null"
    assert shell(f"ls -d {LINK} 2>/dev/null || true") == ""

    # and nothing of either
    assert (done := play(inventory, "package", drill_state="absent")).returncode == 0, done.stdout
    assert shell("ls -A /opt /etc/systemd/system; dpkg-query -W") == before


def test_what_is_not_up_is_waited_for_with_a_reason_on_the_screen(inventory: Path) -> None:
    needs = [{"name": "relay of region9", "address": "127.0.0.1", "port": 9178}]
    began = time.monotonic()
    done = play(inventory, "archive", drill_needs=needs)
    assert time.monotonic() - began >= SECONDS
    assert done.returncode != 0
    assert f"Wait for relay of region9 at 127.0.0.1 port 9178, at most {SECONDS} s" in done.stdout
    said = f"{NAME}: waited {SECONDS} s for relay of region9 at 127.0.0.1 port 9178, which does not answer"
    assert said in done.stdout
    assert "See that it runs" in done.stdout
    assert shell("ls -A /opt; ls /etc/systemd/system/sideband-* 2>/dev/null || true") == ""


def test_site_refuses_an_unsupported_system_by_name_and_version_before_any_change(
    inventory: Path, tmp_path: Path
) -> None:
    """In a receiver's place, with --limit: site.yml looks at the world before its first change."""
    site = spare_site.inventory(tmp_path / "site", [(Spare(NAME, "trixie", "rack1"), address(NAME))])
    shell("cp -P /etc/os-release /root/os-release; sed 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' "
          "/usr/lib/os-release >/root/other; ln -sf /root/other /etc/os-release")  # fmt: skip
    before = shell(
        "ls -A /opt /etc/systemd/system /etc/apt/sources.list.d /var/lib/sideband 2>&1; dpkg-query -W"
    )
    try:
        done = spare_site.play(site, "site", "--limit", NAME, code=None)
    finally:
        shell("cp -P --remove-destination /root/os-release /etc/os-release; rm /root/os-release /root/other")
    assert done.returncode != 0
    said = f"{NAME}: system: Debian GNU/Linux 11 is not supported; supported: Debian 12/13"
    assert said in done.stdout
    assert "nothing was changed" in done.stdout
    assert "changed=0 " in done.stdout
    after = shell(
        "ls -A /opt /etc/systemd/system /etc/apt/sources.list.d /var/lib/sideband 2>&1; dpkg-query -W"
    )
    assert after == before
