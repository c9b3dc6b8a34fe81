"""The test bed itself: commands, and on a spare host faults, their healing, and restarts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.sblab import mirror, takedown, topology

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
SPARE = "bed1"


def lab(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "lab/lab"), *words], input=stdin, capture_output=True, text=True, check=False
    )


def inside(host: str, script: str) -> str:
    done = lab("exec", host, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(host: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(lab("status", "--json").stdout)["hosts"][host]
    return found


def until(condition: object, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if callable(condition) and condition():
            return
        time.sleep(0.5)
    pytest.fail(f"not within {seconds} s")


@pytest.fixture(scope="module")
def spare() -> Iterator[str]:
    lab("spare", "down", SPARE)
    made = lab("spare", "up", SPARE, "--suite", "bookworm")
    assert made.returncode == 0, made.stderr
    yield SPARE
    gone = lab("spare", "down", SPARE)
    assert gone.returncode == 0, gone.stderr
    assert not any(f"sbl-{SPARE}" in item or f"/{SPARE}" in item for item in takedown.remains())


def test_up_on_a_running_lab_changes_nothing() -> None:
    before = state("node1")
    begin = inside("node1", "stat -c %Y /proc/1")
    done = lab("up")
    assert done.returncode == 0
    assert "nothing to do" in done.stderr
    assert inside("node1", "stat -c %Y /proc/1") == begin
    assert state("node1") == before


def test_exec_passes_input_output_and_code() -> None:
    for host in ("user1", "tor1", "node3"):
        done = lab("exec", host, "sh", "-c", "cat; echo why >&2; exit 7", stdin="through\n")
        assert (done.returncode, done.stdout) == (7, "through\n")
        assert "why" in done.stderr
    assert lab("exec", "nobody", "true").returncode == 1


@pytest.mark.parametrize("name", sorted(topology.load().hosts))
def test_a_host_is_itself_and_has_no_way_out(name: str) -> None:
    host = topology.load().hosts[name]
    assert inside(name, "hostname") == name
    assert inside(name, "ip route show default; ip -6 route show default") == ""
    devices = set(inside(name, "ls /sys/class/net").split())
    if host.system == "nspawn":
        assert devices == {"lo", *(link.device for link in host.links)}
    sources = inside(name, "cat /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null; true")
    assert all("sideband/mirror" in row or "10.90.0.61:8080" in row for row in sources.splitlines() if row)


def test_the_mirror_is_whole_and_read_only_on_its_host() -> None:
    manifest = json.loads((mirror.MIRROR / "manifest.json").read_text())
    assert set(manifest) == {"trixie", "bookworm", "archives"}
    for suite, packages in manifest.items():
        held = set(inside("mgmt1", f"cd /srv/sideband/mirror/{suite} && ls").split())
        assert {entry["file"] for entry in packages.values()} <= held
    assert lab("exec", "mgmt1", "touch", "/srv/sideband/mirror/x").returncode != 0


def test_a_cut_link_loses_its_carrier_and_keeps_its_addresses(spare: str) -> None:
    carrier = "cat /sys/class/net/mgmt0/carrier"
    assert inside(spare, carrier) == "1"
    assert lab("break", "link", f"{spare}:mgmt0").returncode == 0
    assert inside(spare, carrier) == "0"
    assert state(spare)["broken_links"] == ["mgmt0"]
    assert state(spare)["state"] == "silent"
    assert "10.90.0.2" in inside(spare, "ip -4 -br address show mgmt0")
    assert lab("heal", "link", spare, "mgmt0").returncode == 0
    until(lambda: state(spare)["state"] == "answers")


def test_a_killed_process_stays_dead_until_healed(spare: str) -> None:
    active = "systemctl is-active ssh || true"
    assert lab("break", "process", spare, "ssh").returncode == 0
    assert inside(spare, active) in ("inactive", "failed")
    inside(spare, "systemctl start ssh || true")
    assert inside(spare, active) in ("inactive", "failed")
    assert state(spare)["broken_processes"] == ["ssh.service"]
    assert lab("heal", "process", spare, "ssh").returncode == 0
    assert inside(spare, active) == "active"
    assert lab("break", "process", spare, "nosuch").returncode == 1


def test_a_power_cut_keeps_the_disk_and_nothing_of_the_kernels(spare: str) -> None:
    inside(
        spare, "touch /root/kept; sync; ip address add 192.0.2.9/32 dev mgmt0; nft add table netdev leftover"
    )
    assert lab("break", "host", spare).returncode == 0
    assert state(spare)["state"] == "broken"
    assert lab("up").returncode == 0
    assert state(spare)["state"] == "broken"
    assert lab("heal", "host", spare).returncode == 0
    assert inside(spare, "ls /root") == "kept"
    assert "192.0.2.9" not in inside(spare, "ip address")
    assert "leftover" not in inside(spare, "nft list tables")


def test_a_reboot_from_inside_comes_back_by_itself(spare: str) -> None:
    inside(spare, "nft add table netdev leftover; touch /run/before")
    lab("exec", spare, "systemctl", "reboot")
    until(lambda: lab("exec", spare, "test", "!", "-e", "/run/before").returncode == 0)
    until(lambda: state(spare)["state"] == "answers")
    assert "leftover" not in inside(spare, "nft list tables")
