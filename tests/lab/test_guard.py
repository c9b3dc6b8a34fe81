"""The dead man's switch on real hosts (cases 20, 22): a change that is not confirmed over a new connection
goes, whatever happens to the controller, the connection or the host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
# The plays name the same host.
HOST, ADDRESS, DEVICE = "region1", "10.90.0.31", "mgmt0"
GUARD_SECONDS = 25
CUT = f"""\
table netdev sideband_drill {{
  chain cut {{
    type filter hook ingress device "{DEVICE}" priority -10; policy accept;
    tcp dport 22 drop
  }}
}}
"""


def command(play: str, fragment: dict[str, Any], **more: str) -> list[str]:
    extra = {"drill_fragment": fragment, **more}
    return [
        "ansible-playbook",
        "-i",
        str(ROOT / "inventories/lab"),
        str(ROOT / "tests/lab" / play),
        "-e",
        json.dumps(extra),
    ]


ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


def play(play_name: str, fragment: dict[str, Any], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(play_name, fragment, **more),
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def on_host(words: str) -> str:
    ssh = [
        "ssh",
        "-i",
        str(ROOT / ".lab/ssh/id_ed25519"),
        "-o",
        f"UserKnownHostsFile={ROOT}/.lab/ssh/known_hosts",
        "-o",
        "ConnectTimeout=5",
        "-o",
        "ControlPath=none",
        f"root@{ADDRESS}",
        words,
    ]
    return subprocess.run(ssh, capture_output=True, text=True, timeout=60, check=True).stdout


def ssh_answers() -> bool:
    """A new TCP connection that gets the server's greeting."""
    try:
        with socket.create_connection((ADDRESS, 22), timeout=1.5) as connection:
            connection.settimeout(3)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_until(wanted: bool, seconds: float) -> float:
    started = time.monotonic()
    while ssh_answers() is not wanted:
        if time.monotonic() - started > seconds:
            pytest.fail(f"after {seconds:.0f} s SSH to {HOST} is still {'un' if wanted else ''}reachable")
        time.sleep(0.3)
    return time.monotonic() - started


def drill_file(text: str, **more: Any) -> dict[str, Any]:
    return {"files": [{"path": "/etc/sideband-drill", "content": text}], **more}


@pytest.fixture(autouse=True)
def drill() -> Iterator[None]:
    """Nothing of a drill stays on the host."""
    wait_until(True, 90)
    yield
    wait_until(True, 90)
    done = play("guard.yml", {}, drill_state="absent")
    assert done.returncode == 0, done.stdout
    traces = on_host(
        "ls -d /etc/sideband-drill /etc/systemd/system/sideband-guard-drill.service "
        "/var/lib/sideband/generations/drill 2>/dev/null; nft list tables | grep drill; "
        "systemctl list-timers --all | grep guard; true"
    )
    assert traces == ""


def test_the_host_is_back_within_60_s_when_the_controller_dies_after_a_rule_that_blocks_ssh() -> None:
    """The rule cuts every connection, the controller is killed: nobody confirms, nobody can (case 20)."""
    assert play("guard.yml", drill_file("before\n")).returncode == 0
    fragment = drill_file(
        "after\n",
        guarded=True,
        guard_seconds=GUARD_SECONDS,
        nftables={
            "path": "/etc/sideband-drill.nft",
            "family": "netdev",
            "table": "sideband_drill",
            "ruleset": CUT,
        },
    )
    foreign = on_host("nft list tables; ls /etc/systemd/network; tc qdisc")
    controller = subprocess.Popen(
        command("guard.yml", fragment),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(False, 60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    seconds = wait_until(True, 60)
    assert seconds < 60
    for _ in range(40):
        if "drill" not in on_host("nft list tables; systemctl list-timers --all"):
            break
        time.sleep(0.5)
    assert on_host("cat /etc/sideband-drill") == "before\n"
    assert on_host("nft list tables; ls /etc/systemd/network; tc qdisc") == foreign
    told = play("guard.yml", drill_file("before\n"))
    assert told.returncode == 0
    assert "reverted by the dead man's switch" in told.stdout + told.stderr
    assert play("guard.yml", drill_file("before\n")).stdout.count("changed=0") == 1


def test_a_reboot_before_the_confirmation_brings_the_previous_generation_and_the_planes_back() -> None:
    assert play("guard.yml", drill_file("before\n")).returncode == 0
    rules = on_host("nft -s list table netdev sideband; tc class show dev core0; tc filter show dev core0")
    arguments = json.dumps(
        {"owner": "drill", "fragment": drill_file("after\n", guarded=True, guard_seconds=600)}
    )
    armed = subprocess.run(
        ["ansible", HOST, "-i", str(ROOT / "inventories/lab"), "-m", "host_state", "-a", arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "armed: true" in armed.stdout
    assert on_host("cat /etc/sideband-drill") == "after\n"
    boot = on_host("cat /proc/sys/kernel/random/boot_id")
    with contextlib.suppress(subprocess.CalledProcessError):
        on_host("systemctl reboot")
    for _ in range(90):
        time.sleep(1)
        with contextlib.suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            if on_host("cat /proc/sys/kernel/random/boot_id") != boot:
                break
    else:
        pytest.fail(f"{HOST} did not come back from its reboot")
    on_host("systemctl is-system-running --wait; true")
    assert on_host("cat /etc/sideband-drill") == "before\n"
    assert (
        on_host("nft -s list table netdev sideband; tc class show dev core0; tc filter show dev core0")
        == rules
    )


def test_a_confirmation_over_the_same_connection_is_refused() -> None:
    refused = play("guard_same_connection.yml", drill_file("x\n", guarded=True, guard_seconds=GUARD_SECONDS))
    assert refused.returncode != 0
    assert "it proves nothing" in refused.stdout


def test_a_new_connection_confirms_and_the_switch_is_gone() -> None:
    done = play("guard.yml", drill_file("x\n", guarded=True, guard_seconds=GUARD_SECONDS))
    assert done.returncode == 0, done.stdout
    time.sleep(GUARD_SECONDS + 3)
    assert on_host("cat /etc/sideband-drill") == "x\n"


def test_a_run_that_finds_an_unconfirmed_change_reverts_it_first() -> None:
    assert (
        play("guard_same_connection.yml", drill_file("x\n", guarded=True, guard_seconds=300)).returncode != 0
    )
    done = play("guard.yml", drill_file("y\n"))
    assert done.returncode == 0, done.stdout
    assert on_host("cat /etc/sideband-drill") == "y\n"
    assert on_host("systemctl list-timers --all | grep guard; true") == ""
