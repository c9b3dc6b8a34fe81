#!/usr/bin/env python3
"""`make lab`: the machine's packages, images, mirror, lab, site and its proof, and a summary.

Everything in it is also a command of its own; this only puts them in order and takes the time.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
VENV = CHECKOUT / ".venv/bin/python"

if Path(sys.executable).parent != VENV.parent:
    if not VENV.exists():
        sys.exit("make_lab: the project's virtual environment is missing; next: make setup")
    os.execv(VENV, [str(VENV), __file__, *sys.argv[1:]])

sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "module_utils")]

from sideband import report

from lab import desk, outside
from lab.sblab import lifecycle, mirror, topology
from lab.sblab.say import LabError, line, phase, run

RECAP = re.compile(r"^(\S+)\s*:\s*ok=\d+\s+changed=(\d+)\s")


def started() -> float:
    """When `make` began (the set-up before this program counts), else now; in seconds since boot."""
    ticks = os.sysconf("SC_CLK_TCK")
    pid = os.getppid()
    for _ in range(3):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        if name == "make":
            return int(fields[19]) / ticks
        if name not in ("sh", "bash", "dash"):
            break
        pid = int(fields[1])
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def changed_of(rows: list[str]) -> int | None:
    """How many tasks changed something, from a playbook's recap; None without a recap."""
    found = [int(match[2]) for row in rows if (match := RECAP.match(row))]
    return sum(found) if found else None


def playbook(name: str) -> int | None:
    """Runs a playbook with its output shown as it comes."""
    command = ["ansible-playbook", "-i", "inventories/lab", f"playbooks/{name}"]
    env = {
        **os.environ,
        "PATH": f"{VENV.parent}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}",
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "PYTHONUNBUFFERED": "1",
    }
    rows = []
    with subprocess.Popen(
        [str(VENV.parent / command[0]), *command[1:]],
        cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, text=True, bufsize=1, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for row in process.stdout:
            sys.stdout.write(row)
            sys.stdout.flush()
            rows.append(re.sub(r"\x1b\[[0-9;]*m", "", row))
    if process.returncode != 0:
        raise LabError(
            f"playbooks/{name} failed ({process.returncode}): the reason is above",
            f"after the correction: make lab, or only: .venv/bin/{' '.join(command)}",
        )
    return changed_of(rows)


def versions() -> dict[str, str]:
    release = dict(re.findall(r"^(\w+)=\"?([^\"\n]*)", Path("/etc/os-release").read_text(), re.MULTILINE))
    found = {
        "machine": release.get("PRETTY_NAME", "?"),
        "kernel": platform.release(),
        "ansible-core": metadata.version("ansible-core"),
    }
    path = mirror.MIRROR / "manifest.json"
    if path.is_file():
        for suite, packages in json.loads(path.read_text()).items():
            for name in ("haproxy", "prometheus", "prometheus-node-exporter", "victoria-metrics"):
                if name in packages:
                    found[f"{suite}/{name}"] = packages[name]["version"]
    return found


def summary(lab: topology.Topology) -> str:
    rows = ["", "The lab is up.", "", "what runs where"]
    words = {
        "tor1": "the switch: one VLAN-aware bridge (user-mode Linux)",
        "node": "training node: node_exporter and vmagent push, the policy process obeys",
        "rack": "rack receiver: HAProxy (mutual TLS) and vmagent; serves the policy document",
        "region": "aggregator: HAProxy and vmagent, one-minute aggregation; critical alerts",
        "lake": "stores: Prometheus (hot), VictoriaMetrics (one minute); other alerts",
        "gateway": "where people ask: HAProxy, querygate",
        "mgmt": "policy origin and package mirror; stand-ins for who is told of alerts",
        "user": "a tenant's desk, on the query plane alone",
    }
    for host in lab.hosts.values():
        text = words.get(host.name) or words.get(host.name.rstrip("0123456789"), "")
        rows.append(f"  {host.name:9} {host.address or host.links[0].ipv4.split('/')[0]:12} {text}")
    rows += [
        "",
        f"open      {CHECKOUT / 'reports/verify.html'}",
        "try next  lab/lab exec user1 ask -t alpha 'node_load1:1m_max'",
        "          .venv/bin/ansible-playbook playbooks/rollback.yml -e level=core",
        "          lab/lab status",
    ]
    return "\n".join(rows)


def build(
    seconds: dict[str, float], figures: dict[str, Any], checks: list[dict[str, Any]]
) -> topology.Topology:
    lifecycle.require_root()
    with phase("packages", seconds):
        line(run([HERE / "packages.sh"]).strip().splitlines()[-1])
    seconds.update(lifecycle.up())
    outside.install()
    lab = topology.load()
    states = [host["state"] for host in lifecycle.status()["hosts"].values()]
    figures["hosts"] = states.count("answers")
    checks.append(report.expect("every host of the lab answers", figures["hosts"], len(lab.hosts)))
    if figures["hosts"] != len(lab.hosts):
        raise LabError(
            f"{figures['hosts']} of {len(lab.hosts)} hosts answer", "lab/lab status; lab/lab heal host NAME"
        )
    for name in ("site.yml", "verify.yml"):
        try:
            with phase(name, seconds):
                changed = playbook(name)
        except LabError:
            checks.append(report.expect(f"{name} ends well", False, True))
            raise
        checks.append(report.expect(f"{name} ends well", True, True))
        if name == "site.yml" and changed is not None:
            figures["site_changed"] = changed
    with phase("desk", seconds):
        figures["tenants"] = len(desk.install())
    return lab


def main() -> int:
    begin = started()
    seconds: dict[str, float] = {}
    figures: dict[str, Any] = {}
    checks: list[dict[str, Any]] = []
    failure: LabError | None = None
    lab = None
    try:
        lab = build(seconds, figures, checks)
    except LabError as error:
        failure = error
    figures["seconds_total"] = round(time.clock_gettime(time.CLOCK_BOOTTIME) - begin, 1)
    for name, took in seconds.items():
        figures["seconds_" + re.sub(r"[^a-z0-9]+", "_", name.removesuffix(".yml").lower())] = took
    if failure is not None:
        checks.append(report.check("nothing failed", False, failure.problem, "no failure"))
    report.write("lab", failure is None, figures, checks, versions(), str(CHECKOUT / "reports"))
    if failure is not None or lab is None:
        problem = failure or LabError("no lab")
        print(
            f"\nmake lab: {problem.problem}\nmake lab: next: {problem.hint or 'lab/lab status'}",
            file=sys.stderr,
        )
        return 1
    print(summary(lab))
    print(f"\n{figures['hosts']} hosts in {figures['seconds_total']:.0f} s (reports/lab.json)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
