"""What role node left on the lab's training nodes (C1, C7, C9, D8; case 4)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODES = ("node1", "node2", "node3")
SERVICES = {
    "sideband-exporter.service": "sideband-sample.slice",
    "sideband-agent.service": "sideband-sample.slice",
    "sideband-policy.service": "sideband-policy.slice",
    "sideband-sample.service": "sideband-sample.slice",
    "sideband-job.service": "sideband-sample.slice",
}
VMAGENT = "/opt/sideband/vmagent/usr/bin/vmagent"

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("node", NODES)]


def on(node: str, script: str, rc: int | None = 0) -> str:
    done = subprocess.run(
        [str(ROOT / "lab/lab"), "exec", node, "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert rc is None or done.returncode == rc, (
        f"{node}: {script}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout + (done.stderr if rc is None else "")


def pids(node: str) -> set[str]:
    """Every process of ours with its children, found by the slice and not by name."""
    files = "find /sys/fs/cgroup -path '*/sideband.slice/*' -name cgroup.procs"
    return set(on(node, f"cat $({files})").split())


def scrape(node: str, port: int) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    return on(node, f"python3 -c \"import urllib.request as u; print(u.urlopen('{url}').read().decode())\"")


def test_every_process_runs_in_its_slice(node: str) -> None:
    for service, slice_ in SERVICES.items():
        shown = on(node, f"systemctl show -p ActiveState -p Slice -p NRestarts {service}")
        assert "ActiveState=active" in shown, on(node, f"journalctl -n 30 --no-pager -u {service}")
        assert f"Slice={slice_}" in shown


def test_no_socket_of_ours_listens_on_a_plane(node: str) -> None:
    """A verification that runs meanwhile opens listeners for its probes; they are not of the slice."""
    ours = pids(node)
    lines = [
        line for line in on(node, "ss -Hlntup").splitlines() if ours & set(re.findall(r"pid=(\d+)", line))
    ]
    addresses = sorted(line.split()[4] for line in lines)
    assert addresses == ["127.0.0.1:8529", "127.0.0.1:9100"]


def test_nothing_of_ours_is_a_package(node: str) -> None:
    """C9: removal returns the host to what it was."""
    installed = on(node, "dpkg-query -W -f '${Package}\\n'").split()
    assert "coreutils" in installed
    assert not [name for name in installed if re.search(r"prometheus|victoria|exporter|sideband", name)]
    # Files of ours, followed through their links, belong to no package.
    owned = on(
        node,
        "dpkg -S /opt/sideband/* $(readlink -f /opt/sideband/*) /etc/systemd/system/sideband* 2>/dev/null",
        None,
    )
    assert owned == ""


def test_only_the_users_of_the_role_were_made(node: str) -> None:
    found = on(node, "getent passwd | grep sideband")
    names = ["sideband", "sideband-job", "sideband-policy", "sideband-sample"]
    assert sorted(line.split(":")[0] for line in found.splitlines()) == names
    assert all(line.endswith(":/nonexistent:/usr/sbin/nologin") for line in found.splitlines())


def test_vmagent_accepts_every_level_without_a_word(node: str) -> None:
    """It ends with 0 even where it skips a job for a bad expression, so silence is what counts."""
    levels = on(node, "ls /etc/sideband/node/levels").split()
    assert sorted(levels) == ["core.yml", "full.yml", "heartbeat.yml", "reduced.yml"]
    for level in levels:
        file = f"/etc/sideband/node/levels/{level}"
        check = f"{VMAGENT} -promscrape.config.dryRun -promscrape.config={file} -loggerLevel=WARN 2>&1"
        assert on(node, f"SIDEBAND_MARK=mark {check}") == ""


def test_the_level_in_force_is_one_of_the_levels(node: str) -> None:
    same = "cmp -s $l /var/lib/sideband/policy/scrape.yml && echo $l"
    assert len(on(node, f"for l in /etc/sideband/node/levels/*; do {same}; done; true").split()) == 1


def test_the_exporter_reports_the_hosts_file_systems_and_not_its_sandbox(node: str) -> None:
    text = scrape(node, 9100)
    root = {
        line.split("{")[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if 'mountpoint="/"' in line
    }
    assert root["node_filesystem_readonly"] == 0
    assert root["node_filesystem_size_bytes"] > 0
    assert "node_time_seconds" in text
    assert "node_scrape_collector_success" in text
    failed = [line for line in text.splitlines() if re.match(r"node_scrape_collector_success\S+ 0", line)]
    assert failed in ([], ['node_scrape_collector_success{collector="pressure"} 0']), (
        "the lab's kernel may lack PSI"
    )


def test_the_exporter_cannot_see_the_key(node: str) -> None:
    pid = on(node, "systemctl show -p MainPID --value sideband-exporter").strip()
    assert on(node, f"nsenter -t {pid} -m ls -A /etc/sideband/node /var/lib/sideband/policy").split() == [
        "/etc/sideband/node:",
        "/var/lib/sideband/policy:",
    ]
    assert on(node, "stat -c '%a %U:%G' /etc/sideband/node/host.key").strip() == "640 root:sideband"


def test_the_whole_stack_is_tens_of_megabytes(node: str) -> None:
    """C7, as proportional set size: shared pages count once."""
    lines = on(node, "cat " + " ".join(f"/proc/{pid}/smaps_rollup" for pid in sorted(pids(node))))
    kilobytes = sum(int(size) for size in re.findall(r"^Pss:\s+(\d+)", lines, re.M))
    assert 0 < kilobytes < 100_000


def test_the_push_is_taken_and_nothing_waits(node: str) -> None:
    text = scrape(node, 8529)
    sent = re.findall(r'^vmagent_remotewrite_requests_total\{[^}]*status_code="2.."[^}]*\} (\d+)', text, re.M)
    assert sum(map(int, sent)) > 0
    pending = re.findall(r"^vmagent_remotewrite_pending_data_bytes\{[^}]*\} (\S+)", text, re.M)
    assert pending
    assert all(float(size) < 100_000 for size in pending)


def test_units_are_hardened(node: str) -> None:
    """Lower is better; an unhardened service has 9.6."""
    for service in SERVICES:
        report = on(node, f"systemd-analyze security --no-pager {service} | tail -1")
        level = re.search(r"(\d+\.\d)", report)
        assert level, report
        assert float(level.group(1)) <= 5.0, report
