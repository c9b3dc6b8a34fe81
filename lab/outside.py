#!/usr/bin/env python3
"""Sets up the outside on mgmt1: stand-ins for those who are told of alerts, as a service of the host's own.

lab/outside.py        # `make lab` does it too
curl http://10.90.0.61:8090/seen
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab import desk
from lab.sblab import keeper, topology
from lab.sblab.paths import LAB
from lab.sblab.say import LabError

HOST = "mgmt1"
PORT = 8090
UNIT = "lab-stand-ins.service"
PROGRAM = "usr/local/lib/stand_ins.py"


def unit(address: str) -> str:
    return f"""# Written by lab/outside.py.
[Unit]
Description=lab: stand-ins for WeCom, DingTalk, Slack, PagerDuty and a dead man's switch
After=network.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 /{PROGRAM} {address}:{PORT}
DynamicUser=yes
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""


def install() -> str:
    """Brings program and unit up to date and starts it anew where they changed; where it answers."""
    lab = topology.load()
    address = lab.host(HOST).link("management").ipv4.split("/")[0]
    files = {
        PROGRAM: (LAB / "stand_ins.py").read_bytes(),
        f"etc/systemd/system/{UNIT}": unit(address).encode(),
    }
    command = f"""
set -e
new=$(mktemp -d); trap 'rm -rf "$new"' EXIT
tar -x -C "$new" --no-same-owner
changed=
for file in {" ".join(files)}; do
    cmp -s "$new/$file" "/$file" || {{ install -D -m 644 "$new/$file" "/$file"; changed=1; }}
done
[ -z "$changed" ] || {{ systemctl daemon-reload; systemctl restart {UNIT}; }}
systemctl enable -q --now {UNIT}
"""
    done = subprocess.run(
        keeper.inside(lab.host(HOST), ["sh", "-c", command]),
        input=desk.pack(files, {}),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise LabError(f"{HOST} took no stand-ins: {said}", "lab/lab status")
    return f"http://{address}:{PORT}"


def main() -> int:
    try:
        print(f"outside: {install()}/seen")
    except LabError as error:
        print(f"outside: {error.problem}\noutside: next: {error.hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
