"""Starting hosts, keeping them started, and seeing whether they live.

Each host has a keeper, a shell of one megabyte: it starts the host in the host's own cgroups and starts it
again when it was rebooted from inside. A host that powered itself off stays off.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from pathlib import Path

from . import cgroups, nspawn, uml
from .paths import LAB, LOGS, RUN
from .say import LabError
from .topology import Host, Topology

DOWN = RUN / "broken"
_KEEPERS = "keepers"
# What nspawn answers when its host asked for a restart. A user-mode Linux cannot say so: it always exits 0.
_REBOOT = 133


def marker(host: Host) -> Path:
    return DOWN / f"host-{host.name}"


def script(host: Host, command: list[str], groups: list[Path], log: Path) -> str:
    joins = "; ".join(f"echo 0 >{shlex.quote(str(group / 'cgroup.procs'))}" for group in groups)
    again = f"[ $code -eq {_REBOOT} ] || exit 0" if host.system == "nspawn" else ":"
    return f"""#!/bin/sh
# Written by lab/lab: starts {host.name}, and again after a restart from inside.
exec >>{shlex.quote(str(log))} 2>&1 </dev/null
short=0
while [ ! -e {shlex.quote(str(marker(host)))} ]; do
    begin=$(date +%s)
    ({joins}; exec {shlex.join(command)})
    code=$?
    [ ! -e {shlex.quote(str(marker(host)))} ] || exit 0
    {again}
    # A host that dies at once, again and again, would be started for ever.
    if [ $(($(date +%s) - begin)) -ge 10 ]; then short=0; else short=$((short + 1)); fi
    [ $short -le 5 ] || exit 1
    {shlex.quote(str(LAB / "lab"))} rewire {host.name} || exit 1
done
"""


def start(host: Host, topology: Topology) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    groups = cgroups.create(host.name)
    keeper_groups = cgroups.create(_KEEPERS)
    command = uml.command(host, topology) if host.system == "uml" else nspawn.command(host)
    directory = RUN / "keepers"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / host.name
    path.write_text(script(host, command, groups, LOGS / f"{host.name}.log"))
    path.chmod(0o755)
    joins = "; ".join(f"echo 0 >{shlex.quote(str(group / 'cgroup.procs'))}" for group in keeper_groups)
    # The child must let go of the caller's terminal, pipes and working directory (it may be deleted).
    subprocess.Popen(
        ["sh", "-c", f"{joins}; exec {shlex.quote(str(path))}"],
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
    )


def keeper(host: Host) -> set[int]:
    """The keeper's process, known by its script."""
    found = set()
    wanted = str(RUN / "keepers" / host.name).encode()
    for pid in cgroups.processes(_KEEPERS):
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def stop(host: Host, seconds: float = 10.0) -> None:
    """As if its power was cut. The keeper sees the marker, or is gone before."""
    for pid in keeper(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    cgroups.kill(host.name, seconds)


def alive(host: Host) -> bool:
    return bool(cgroups.processes(host.name))


def leader(host: Host) -> int:
    """The host's own process 1, as the machine numbers it; 0 when it does not run."""
    for pid in cgroups.processes(host.name):
        with contextlib.suppress(OSError):
            for row in Path(f"/proc/{pid}/status").read_text().splitlines():
                if row.startswith("NSpid:"):
                    numbers = row.split()[1:]
                    if len(numbers) == 2 and numbers[1] == "1":
                        return pid
    return 0


def inside(host: Host, argv: list[str]) -> list[str]:
    """A command line that runs `argv` in the host."""
    if host.system == "uml":
        return [*uml.client(host), shlex.join(argv)]
    pid = leader(host)
    if not pid:
        raise LabError(f"{host.name} is not running", f"lab/lab heal host {host.name}, or lab/lab up")
    return [
        "nsenter",
        f"--target={pid}",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--pid",
        "--cgroup",
        "--root",
        "--wdns=/root",
        "env",
        "-i",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
        f"TERM={os.environ.get('TERM', 'dumb')}",
        *argv,
    ]


def answers(host: Host) -> bool:
    """Whether SSH greets; on a host without management, whether systemd has come up."""
    if not host.address:
        if not leader(host):
            return False
        done = subprocess.run(
            inside(host, ["systemctl", "is-active", "-q", "multi-user.target"]),
            capture_output=True,
            check=False,
        )
        return done.returncode == 0
    with contextlib.suppress(OSError), socket.create_connection((host.address, 22), timeout=3) as connection:
        connection.settimeout(6)
        return connection.recv(4) == b"SSH-"
    return False


def wait(hosts: list[Host], seconds: float = 90.0) -> dict[str, float]:
    """Waits until all answer; returns how long each took."""
    begin = time.monotonic()
    took: dict[str, float] = {}
    waiting = list(hosts)
    while waiting:
        for host in list(waiting):
            if answers(host):
                took[host.name] = round(time.monotonic() - begin, 1)
                waiting.remove(host)
        if waiting and time.monotonic() - begin > seconds:
            names = " ".join(host.name for host in waiting)
            log = LOGS / f"{waiting[0].name}.log"
            words = log.read_text(errors="replace").splitlines()[-6:] if log.is_file() else []
            raise LabError(
                f"no answer in {seconds:.0f} s from: {names}\n    " + "\n    ".join(words), f"see {LOGS}"
            )
        time.sleep(0.2)
    return took
