"""Verify on the running lab: what is broken by hand turns it red with its cause named, and healed it is green
(acceptance 2: one nftables rule, one VLAN entry, one flow)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parent.parent.parent
BIN = ROOT / ".venv" / "bin"


def on(host: str, *words: str) -> str:
    done = subprocess.run(
        [str(ROOT / "lab" / "lab"), "exec", host, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{host}: {' '.join(words)}: {done.stderr}"
    return done.stdout


def verify(reports: Path, only: str) -> tuple[bool, str, dict[str, Any]]:
    """(green, what it printed, its report) of a run limited to one host's pairs."""
    done = subprocess.run(
        [
            str(BIN / "ansible-playbook"), "playbooks/verify.yml", "-e", f"sideband_verify_only={only}",
            "-e", f"sideband_verify_reports={reports}", "-e", "sideband_verify_patience=30",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads((reports / "verify.json").read_text())
    assert report["pass"] is (done.returncode == 0)
    return done.returncode == 0, done.stdout, report


def rules(host: str) -> list[tuple[str, str, str]]:
    """(chain, rule, handle) of the host's own table."""
    found, chain = [], ""
    for line in on(host, "nft", "-a", "list", "table", "netdev", "sideband").splitlines():
        words = line.split()
        if words[:1] == ["chain"]:
            chain = words[1]
        elif chain and "# handle" in line and words[0] != "}":
            rule, handle = line.rsplit("# handle", 1)
            found.append((chain, rule.strip(), handle.strip()))
    return found


@contextmanager
def without_rules(host: str, pattern: str) -> Iterator[None]:
    """The host's rules without those that match; the very file that is in force brings them back."""
    gone = [(chain, handle) for chain, rule, handle in rules(host) if re.search(pattern, rule)]
    assert gone, f"{host} has no rule that matches {pattern}"
    for chain, handle in gone:
        on(host, "nft", "delete", "rule", "netdev", "sideband", chain, "handle", handle)
    try:
        yield
    finally:
        on(host, "nft", "-f", "/etc/sideband/nftables/sideband.nft")


@contextmanager
def without_vlan(port: str, vlan: int) -> Iterator[None]:
    at = switch("bridge", "vlan", "show", "dev", port)
    assert str(vlan) in at
    switch("bridge", "vlan", "del", "dev", port, "vid", str(vlan))
    try:
        yield
    finally:
        switch("bridge", "vlan", "add", "dev", port, "vid", str(vlan), "pvid", "untagged")


def switch(*words: str) -> str:
    address = yaml.safe_load((ROOT / "inventories/lab/host_vars/tor1.yml").read_text())["ansible_host"]
    ssh = ROOT / ".lab" / "ssh"
    done = subprocess.run(
        ["ssh", "-i", str(ssh / "id_ed25519"), "-o", f"UserKnownHostsFile={ssh / 'known_hosts'}",
         f"root@{address}", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def listener(host: str, address: str, port: int) -> Iterator[None]:
    unit = "rogue-listener"
    on(host, "systemd-run", "--quiet", "--collect", f"--unit={unit}", "python3", "-m", "http.server",
       str(port), "--bind", address)  # fmt: skip
    try:
        on(
            host,
            "sh",
            "-c",
            f"for i in $(seq 50); do ss -Hltn | grep -q :{port} && exit 0; sleep 0.1; done; exit 1",
        )
        yield
    finally:
        on(host, "systemctl", "stop", unit)


@pytest.mark.parametrize(
    ("break_", "cause"),
    [
        (
            lambda: without_rules("node1", r'counter name "mgmt0_source" drop'),
            r"node1: mgmt0_source: .* is answered \(got",
        ),
        (
            lambda: without_rules("rack1", r"ip saddr .* tcp dport 8427 accept"),
            r"rack1: edge0_unlisted: drops what flow push allows \(got timeout",
        ),
        (
            lambda: without_vlan("vec2", 21),
            r"node1: edge0: frames of rack1 do not arrive .*node1's edge0 is behind tor1 port vec2, VLAN 21",
        ),
        (
            lambda: listener("node1", "10.21.0.11", 9109),
            r"node1: listeners: does not hold \(got \['tcp port 9109 of 10.21.0.11 \(edge\)",
        ),
    ],
    ids=["deny rule", "accept rule of a flow", "VLAN entry", "listener on a node"],
)
def test_what_is_broken_is_red_and_named(break_: Any, cause: str, tmp_path: Path) -> None:
    with break_():
        green, said, report = verify(tmp_path, "node1")
    assert not green
    assert re.search(cause, said.replace("\\'", "'")), said[-3000:]
    assert report["figures"]["pairs_untested"] == 0
    assert "half fail" in (tmp_path / "verify.html").read_text() or "listener" in cause


def test_healed_it_is_green(tmp_path: Path) -> None:
    green, said, report = verify(tmp_path, "node1")
    assert green, said[-3000:]
    figures = report["figures"]
    assert figures["pairs_untested"] == figures["negative_without_counter"] == figures["positive_failed"] == 0


def test_check_mode_sends_nothing_and_says_the_plan() -> None:
    before = on("node1", "nft", "list", "counters", "table", "netdev", "sideband")
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "playbooks/verify.yml", "--check", "-v"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "frames: " in done.stdout
    assert on("node1", "nft", "list", "counters", "table", "netdev", "sideband") == before
