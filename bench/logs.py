#!/usr/bin/env python3
"""Measure the log path on the running lab: numbered lines through rotation and the restart of every hop, and
what a black-holed rack costs.

    bench/logs.py            # reports/logs.json; about four minutes

Lines are written on node1 as a shell does it (each opens the file anew), the file is renamed every two
seconds, and
meanwhile every hop is restarted or killed: the node's reader and rsyslog, the rack's front and relay, the
store's front, keeper and VictoriaLogs. Then node1's way to its rack is made a black hole.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "module_utils"), str(ROOT)]

from sideband import report

LINES, HOLE_LINES = 12_000, 4_000
RUN = f"{int(time.time()):x}"  # lines of an earlier run are in the store too
STORE = "http://127.0.0.1:8537"
HOPS = (
    ("node1", "sideband-logs"), ("node1", "sideband-ship"),
    ("rack1", "sideband-relay-front"), ("rack1", "sideband-relay"),
    ("lake1", "sideband-logs-front"), ("lake1", "sideband-logs-keeper"), ("lake1", "sideband-logs-store"),
)  # fmt: skip
WRITER = """
import os, sys, time
path, lines, per_second, rotate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
began = rotated = time.monotonic(); turn = 0
for number in range(1, lines + 1):
    with open(path, "a") as file:
        file.write(f"{time.time_ns()} seq={number}\\n")
    ahead = number / per_second - (time.monotonic() - began)
    if ahead > 0.02:
        time.sleep(ahead)
    if rotate and time.monotonic() - rotated > rotate:
        turn, rotated = turn + 1, time.monotonic()
        os.rename(path, f"{path}.{turn}")
"""
DROP = "add table inet lbench; add chain inet lbench c {{ type filter hook output priority 0; }}; " \
       "add rule inet lbench c tcp dport 8431 drop"  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def on(host: str, *words: str, text: str | None = None) -> str:
    done = subprocess.run(
        [str(ROOT / "lab/lab"), "exec", host, *words], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{host}: {' '.join(words)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def writer(name: str, lines: int, per_second: int, rotate: float) -> subprocess.Popen[str]:
    path = f"/var/log/slurm/{name}-{RUN}.log"
    words = ["python3", "-c", WRITER, path, str(lines), str(per_second), str(rotate)]
    return subprocess.Popen([str(ROOT / "lab/lab"), "exec", "node1", *words], text=True)


def stored(name: str) -> collections.Counter[str]:
    query = urllib.parse.urlencode({"query": f'file:="/var/log/slurm/{name}-{RUN}.log" | fields _msg'})
    url = f"{STORE}/select/logsql/query?{query}"
    script = f"import sys, urllib.request as r; sys.stdout.write(r.urlopen({url!r}).read().decode())"
    try:
        text = on("lake1", "python3", "-c", script)
    except SystemExit:
        return collections.Counter()  # it is just being started
    return collections.Counter(
        word
        for line in text.splitlines()
        for word in json.loads(line)["_msg"].split()
        if word.startswith("seq=")
    )


def settled(name: str, lines: int, seconds: float) -> collections.Counter[str]:
    deadline = time.monotonic() + seconds
    while len(found := stored(name)) < lines and time.monotonic() < deadline:
        time.sleep(2)
    time.sleep(5)  # what came twice would come now
    return stored(name) or found


def restarts() -> tuple[subprocess.Popen[str], int]:
    process = writer("bench", LINES, 220, 2.0)
    count = 0
    for kill in (False, True):
        for host, unit in HOPS:
            time.sleep(2)
            words = ["systemctl", "kill", "-s", "KILL", unit] if kill else ["systemctl", "restart", unit]
            on(host, *words)
            count += 1
    return process, count


def timed(*words: str) -> float:
    began = time.monotonic()
    subprocess.run(words, check=True, capture_output=True)
    return time.monotonic() - began


def black_hole() -> dict[str, float]:
    key, known = ROOT / ".lab/ssh/id_ed25519", ROOT / ".lab/ssh/known_hosts"
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known}", "-o", "ControlPath=none",
           "-i", str(key), "root@10.90.0.11"]  # fmt: skip
    on("node1", "nft", DROP.format())
    try:
        process = writer("hole", HOLE_LINES, 400, 0)
        logins, loggers = [], []
        while process.poll() is None:
            logins.append(timed(*ssh, "true"))
            logged = on("node1", "python3", "-c", "import subprocess, time; t = time.monotonic(); "
                        "subprocess.run(['logger', 'black hole']); print(time.monotonic() - t)")  # fmt: skip
            loggers.append(float(logged))
            time.sleep(0.5)
        time.sleep(3)
        before = len(stored("hole"))
    finally:
        on("node1", "nft", "delete", "table", "inet", "lbench")
    began = time.monotonic()
    found = settled("hole", HOLE_LINES, 90)
    return {
        "hole_lines": HOLE_LINES,
        "hole_before_return": before,
        "hole_lost": HOLE_LINES - len(found),
        "hole_duplicated": sum(count - 1 for count in found.values()),
        "hole_return_seconds": round(time.monotonic() - began - 5, 1),
        "ssh_seconds": round(max(logins), 3),
        "logger_seconds": round(max(loggers), 3),
    }


def main() -> int:
    for name in ("bench", "hole"):
        on("node1", "sh", "-c", f"mkdir -p /var/log/slurm && rm -f /var/log/slurm/{name}-*.log*")
    say(f"logs: {LINES} lines, a rotation every 2 s, each of {len(HOPS)} hops restarted and killed")
    process, count = restarts()
    process.wait()
    found = settled("bench", LINES, 120)
    rotations = int(on("node1", "sh", "-c", "ls /var/log/slurm/bench-*.log.* | wc -l"))
    figures: dict[str, Any] = {
        "lines": LINES,
        "rotations": rotations,
        "restarts": count,
        "lost": LINES - len(found),
        "duplicated": sum(times - 1 for times in found.values()),
    }
    say("logs: a black hole between node1 and its rack")
    figures.update(black_hole())
    for name in ("bench", "hole"):
        on("node1", "sh", "-c", f"rm -f /var/log/slurm/{name}-*.log*")
    checks = [
        report.check("at least 10,000 lines", LINES >= 10_000, LINES, "10,000"),
        report.expect("lost", figures["lost"], 0),
        report.expect("duplicated", figures["duplicated"], 0),
        report.expect("lost in the black hole", figures["hole_lost"], 0),
        report.expect("duplicated in the black hole", figures["hole_duplicated"], 0),
        report.check(
            "a new SSH login beside it", figures["ssh_seconds"] < 1, figures["ssh_seconds"], "under 1 s"
        ),
        report.check(
            "logger beside it", figures["logger_seconds"] < 1, figures["logger_seconds"], "under 1 s"
        ),
    ]
    passed = all(one["pass"] for one in checks)
    versions = {"rsyslog": "8.2302.0"}
    report.write("logs", passed, figures, checks, versions, str(ROOT / "reports"))
    print(json.dumps({"pass": passed, **figures}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
