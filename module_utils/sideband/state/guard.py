"""The dead man's switch: a timer of the host's own systemd brings the previous generation back.

It lives outside the session that makes the change, so neither a cut connection nor a dead controller stops
it, and its service is enabled, so a reboot before the confirmation reverts too. Confirmed is only what comes
over a TCP connection that was opened after the change: an established one may survive rules that let no new
one in.
"""

from __future__ import annotations

import os
import secrets
import sys
import time

from . import netfilter, record, units
from .engine import Engine
from .fragment import parse
from .record import EMPTY, Generation, Record
from .system import StateError, System

SERVICE = """\
[Unit]
Description=Bring back {owner}'s previous generation: its change was not confirmed
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target network-pre.target sideband-planes.service
Wants=network-pre.target

[Service]
Type=oneshot
ExecStart={python} -I {program} guard {owner}
TimeoutStartSec=120
"""


def service(owner: str) -> str:
    return f"sideband-guard-{owner}.service"


def _paths(owner: str) -> tuple[str, str]:
    return (
        f"{units.UNIT_DIRECTORY}/{service(owner)}",
        f"{units.UNIT_DIRECTORY}/sysinit.target.wants/{service(owner)}",
    )


def boot_id(system: System) -> str:
    return (system.content("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def ssh_connection() -> str:
    """`client port server port` of the session above us; sudo drops the variable, so ask our ancestors."""
    process = os.getpid()
    while process > 1:
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                for entry in file.read().split(b"\0"):
                    if entry.startswith(b"SSH_CONNECTION="):
                        return entry.split(b"=", 1)[1].decode()
            with open(f"/proc/{process}/stat", encoding="utf-8") as file:
                process = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return ""


def arm(engine: Engine, seconds: int, connection: str) -> None:
    system, owner = engine.system, engine.owner
    if not units.manager_runs(system):
        raise StateError("a guarded change needs systemd on the host: its timer is the dead man's switch")
    path, link = _paths(owner)
    text = SERVICE.format(
        owner=owner,
        python=sys.executable or "/usr/bin/python3",
        program=f"{record.directory(owner)}/{record.PROGRAM}",
    )
    engine.record.armed = {
        "token": secrets.token_hex(8),
        "seconds": seconds,
        "boot": boot_id(system),
        "connection": connection,
        "at": int(time.time()),
    }
    engine.record.made = engine.record.made or system.missing_parents(link)
    record.save(system, engine.record)
    for parent in engine.record.made:
        system.make_directory(parent, 0o755, os.geteuid(), os.getegid())
    system.write(path, text.encode(), 0o644, os.geteuid(), os.getegid())
    system.link(link, path)
    units.reload_manager(system)
    system.must(
        [
            "systemd-run",
            f"--on-active={seconds}",
            "--timer-property=AccuracySec=1s",
            f"--unit={service(owner)}",
        ],
        "nothing was changed; look at `systemctl status`",
    )


def extend(engine: Engine) -> None:
    """The time for the confirmation begins when the change stands, however long it took."""
    timer = service(engine.owner).replace(".service", ".timer")
    engine.system.must(
        ["systemctl", "restart", timer], "the switch fires in the time that it was first given"
    )


def disarm(engine: Engine, inside: bool = False) -> None:
    """Safe to repeat: an interrupted disarm is finished by the next. `inside`: we are the switch's own
    service, which must not stop itself; otherwise one that just fired and waits for our lock is stopped."""
    system, owner = engine.system, engine.owner
    engine.record.armed = None
    record.save(system, engine.record)
    system.sweep((*_paths(owner), *engine.record.made))
    for path in _paths(owner):
        system.unlink(path)
    for path in reversed(engine.record.made):
        system.drop_empty(path)
    if units.manager_runs(system):
        timer = service(owner).replace(".service", ".timer")
        system.run(["systemctl", "stop", timer, *([] if inside else [service(owner)])])
        units.reload_manager(system)
        system.run(["systemctl", "reset-failed", service(owner)])
    if engine.record.made:
        engine.record.made = []
        record.save(system, engine.record)


def tidy(engine: Engine) -> None:
    """Finish what a killed run left of a switch that is not armed any more."""
    if engine.record.made or any(engine.system.exists(path) for path in _paths(engine.owner)):
        disarm(engine)


def confirm(engine: Engine, connection: str) -> bool:
    armed = engine.record.armed
    if armed is None:
        if engine.record.news:
            raise StateError(f"{engine.owner}: nothing to confirm: {engine.record.news}")
        return False
    if armed["connection"] and armed["connection"] == connection:
        raise StateError(
            "the confirmation came over the connection that made the change; it proves nothing. "
            "Open a new one (ControlPath=none) and confirm again"
        )
    disarm(engine)
    return True


def target(kept: Record) -> Generation:
    """Where an undo goes: an interrupted change never became current."""
    return kept.current if kept.pending else (kept.previous or EMPTY)


def revert(engine: Engine, why: str, inside: bool = False) -> None:
    """The previous generation, however it is reached. Rules come first: they are what keeps the way in."""
    armed: dict[str, object] = engine.record.armed or {}
    engine.block = armed.get("boot") == boot_id(engine.system)
    generation = target(engine.record)
    problem: str | None = None
    try:
        table = parse(generation["fragment"], generation["secrets"]).nftables
        if table:
            engine.record.running["nftables"] = netfilter.load(engine.system, table)
        else:
            for family, name in engine.record.tables:
                netfilter.remove(engine.system, family, name)
        engine.apply(engine.plan(generation), generation)
        engine.record.previous = None
    except StateError as caught:
        problem = str(caught)
    moment = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    engine.record.news = f"reverted by the dead man's switch at {moment}: {why}"
    if problem:
        engine.record.news += f"; yet not everything came back: {problem}"
    disarm(engine, inside)
