#!/usr/bin/env python3
"""Kill rollouts at random moments: the controller, a node, a receiver, the switch.

    bench/interrupt.py             # 20 kills; reports/interrupt.json
    bench/interrupt.py --kills 4   # as `make test` does it

Each rollout takes three hosts of the running lab from one contract to another. Something is killed meanwhile;
then everybody's SSH must answer, the next run must finish, and each host must be, file by file and rule by
rule, what a run that nobody disturbed makes of it: no armed switch, no half state, no lock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils")]

from sideband import report

from bench.remove import residue
from bench.spare_site import LAB, ROOT, BenchError, conclude, inside, lab, say, snapshot

HOSTS = ("node1", "rack1", "tor1")
CONTROLLER = "controller"
VICTIMS = (CONTROLLER, *HOSTS)
BOOKS = ("contract", "pki", "fabric", "planes", "policy", "rack", "node")
ORIGIN = "mgmt1"  # says who may sign
SSH_SECONDS = 90  # a switch boots, and a dead man's switch takes its 40 s
# The other contract differs on every one of the hosts, in rules, shapes, files, units and ports.
EDITS = (
    ("planes", "egress_rate: 20Mbit", "egress_rate: 19Mbit"),
    ("planes", "vlan: 22,", "vlan: 23,"),
    ("ladder", "period: 15s", "period: 20s"),
    ("ladder", "poll: 10s", "poll: 9s"),
)
OWN = ("/etc/", "/opt/", "/usr/")
# ifupdown2's own scratch: it writes or deletes it at any start, whatever it is asked to do.
SCRATCH = "/etc/iproute2/rt_tables.d/ifupdown2_vrf_map.conf"


@dataclass
class Bench:
    contracts: tuple[Path, Path]
    wanted: dict[int, dict[str, Any]] = field(default_factory=dict)  # contract -> host -> what it is then
    seconds: float = 0.0  # of a run that nobody disturbs
    checks: list[dict[str, Any]] = field(default_factory=list)
    outages: list[float] = field(default_factory=list)

    def start(self, contract: int) -> subprocess.Popen[bytes]:
        words = [
            str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(self.contracts[contract]),
            *[f"playbooks/{book}.yml" for book in BOOKS], "--limit", ",".join((*HOSTS, ORIGIN)),
        ]  # fmt: skip
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # written into after this returns
        return subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-3000:]

    def whole(self, contract: int) -> int:
        run = self.start(contract)
        try:
            return run.wait(600)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return 124


def other_contract(room: Path) -> Path:
    copy = room / "other"
    shutil.copytree(LAB, copy, symlinks=True)
    connection = copy / "group_vars/lab/connection.yml"
    connection.write_text(connection.read_text().replace("{{ inventory_dir }}/../..", str(ROOT)))
    for noun, now, then in EDITS:
        path = copy / f"group_vars/all/{noun}.yml"
        text = path.read_text(encoding="utf-8")
        if now not in text:
            raise BenchError(f"{noun}.yml has no {now!r} any more; choose another difference")
        path.write_text(text.replace(now, then, 1), encoding="utf-8")
    return copy


def state(host: str) -> dict[str, Any]:
    """What a host is, and of the books only which there are, and whether one is open."""
    found = snapshot(host)
    files = {path: what for path, what in found["files"].items() if path.startswith(OWN) and path != SCRATCH}
    script = (
        "cd /var/lib/sideband/generations && for d in */; do printf '%s ' $d; ls -A $d | tr '\\n' ' '; "
        "python3 -c \"import json; r = json.load(open('$d/record.json')); "
        "print(r['pending'] is None, r['armed'], r['made'])\"; done; "
        "flock -n lock true && echo free; "
        "systemctl list-timers --all --no-legend | grep -c sideband-guard; "
        "find / -xdev -name '.*.sideband' 2>/dev/null; true"
    )
    units = {name: what for name, what in found["units"].items() if "sideband" in name or "guard" in name}
    books = inside(host, "sh", "-c", script).splitlines()
    return {
        "files": files, "units": units, "books": dict.fromkeys(books, ""),
        **{kind: found[kind] for kind in ("rules", "queues", "addresses", "users", "groups")},
    }  # fmt: skip


def addresses() -> dict[str, str]:
    hosts = json.loads(lab("status", "--json"))["hosts"]
    return {host: str(hosts[host]["address"]) for host in HOSTS}


def greets(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            connection.settimeout(3)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def all_greet(where: Mapping[str, str]) -> tuple[float, list[str]]:
    """(seconds until everybody's SSH answered, who did not)."""
    began = time.monotonic()
    while True:
        mute = [host for host, address in where.items() if not greets(address)]
        if not mute or time.monotonic() - began > SSH_SECONDS:
            return time.monotonic() - began, mute
        time.sleep(0.3)


def strike(bench: Bench, run: subprocess.Popen[bytes], victim: str) -> None:
    if victim == CONTROLLER:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return
    lab("break", "host", victim)
    lab("heal", "host", victim)
    try:
        run.wait(240)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        bench.checks.append(report.expect(f"the run ends though {victim} died", "not in 240 s", "ends"))


def trial(
    bench: Bench, number: int, victim: str, moment: float, alone: bool, where: Mapping[str, str]
) -> None:
    """`alone`: nobody comes until every switch has had its time; otherwise the next run comes at once."""
    contract = number % 2
    name = f"{number + 1}: {victim} at {moment:.0%}" + (", then left alone" if alone else "")
    say(name)
    run = bench.start(contract)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(moment * bench.seconds)
    strike(bench, run, victim)
    seconds, mute = all_greet(where)
    if alone:
        time.sleep(45)
        more, mute = all_greet(where)
        seconds += more
    bench.outages.append(seconds)
    bench.checks.append(report.expect(f"{name}: SSH does not answer at", mute, []))
    code = bench.whole(contract)
    bench.checks.append(report.check(f"{name}: the next run ends with", code == 0, code or 0, 0))
    if code:
        say(bench.said())
    for host in HOSTS:
        left = residue(bench.wanted[contract][host], state(host), ())
        bench.checks.append(report.expect(f"{name}: {host} differs from an undisturbed run in", left[:8], []))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--reports", default=str(ROOT / "reports"))
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    where = addresses()
    with tempfile.TemporaryDirectory(prefix="sideband-interrupt-") as room:
        bench = Bench((LAB, other_contract(Path(room))))
        # Whatever an earlier run left: from here on it is what the lab's contract makes of it.
        say("to the lab's contract")
        if bench.whole(0):
            raise BenchError(f"the lab cannot be brought to its contract:\n{bench.said()}")
        bench.wanted[0] = {host: state(host) for host in HOSTS}
        say("undisturbed: to the other contract")
        began = time.monotonic()
        if bench.whole(1):
            raise BenchError(f"the undisturbed run failed:\n{bench.said()}")
        bench.seconds = time.monotonic() - began
        bench.wanted[1] = {host: state(host) for host in HOSTS}
        moved = {host: bool(residue(bench.wanted[0][host], bench.wanted[1][host], ())) for host in HOSTS}
        bench.checks.append(report.expect("the contracts differ on", moved, dict.fromkeys(HOSTS, True)))
        victims = [VICTIMS[number % len(VICTIMS)] for number in range(options.kills)]
        chance.shuffle(victims)
        try:
            for number, victim in enumerate(victims):
                trial(bench, number, victim, chance.uniform(0.1, 1.0), number % 5 == 4, where)
        finally:
            say("back to the lab's contract")
            code = bench.whole(0)
        bench.checks.append(report.expect("back to the lab's contract", code, 0))
    failed = [each for each in bench.checks if not each["pass"]]
    figures = {
        "kills": len(bench.outages),
        "ssh_lost": sum("SSH does not answer" in each["name"] for each in failed),
        "next_run_failed": sum("the next run ends with" in each["name"] for each in failed),
        "half_states": sum("differs from" in each["name"] for each in failed),
        "longest_seconds_until_ssh": round(max(bench.outages, default=0.0), 1),
        "seconds_undisturbed": round(bench.seconds, 1),
        "seed": options.seed,
    }
    return conclude("interrupt", figures, bench.checks, {}, options.reports)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"interrupt: {error}")
