"""systemd units and masks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .change import Change
from .system import StateError, System

UNIT_DIRECTORY = "/etc/systemd/system"
VENDOR_DIRECTORIES = ("/usr/lib/systemd/system", "/lib/systemd/system")
PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload")

# What systemd has units of, with the section without which it starts none of that kind.
KINDS = {
    "service": "[Service]",
    "socket": "[Socket]",
    "mount": "[Mount]",
    "automount": "[Automount]",
    "swap": "[Swap]",
    "path": "[Path]",
    "timer": "[Timer]",
    "target": "",
    "slice": "",
    "scope": "",
    "device": "",
}


@dataclass(frozen=True)
class Unit:
    """`want == have` on the two switches; its inputs' hashes are compared with those of its last start."""

    name: str
    enabled: bool | None
    running: bool | None
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()
    kind = "unit"


@dataclass(frozen=True)
class Have:
    loaded: bool
    active: bool
    enabled: bool
    stale: bool  # the file on disk is newer than what the manager has read
    failed: bool


NOTHING = Have(False, False, False, False, False)


def unit_file(name: str) -> str:
    """`a@b.service` comes from `a@.service`."""
    stem, dot, kind = name.rpartition(".")
    if "@" in stem:
        stem = stem.split("@", 1)[0] + "@"
    return f"{UNIT_DIRECTORY}/{stem}{dot}{kind}"


def name_problem(name: str) -> str:
    """Why this is no unit of systemd; empty where it is one. A pattern would be many units."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@\\-]{0,200}", name):
        return "must be one unit's name: no path, no option, no pattern"
    if "." not in name:
        return f"needs its ending, for example {name}.service"
    if name.rpartition(".")[2] not in KINDS:
        return f"must end in one of .{', .'.join(KINDS)}"
    return ""


def file_problem(path: str, content: bytes, told: bool) -> str:
    """Why systemd would not read this as a unit: a cheap look, for `systemd-analyze verify` is not
    everywhere. `told`: its first line may be shown."""
    inside = re.fullmatch(re.escape(UNIT_DIRECTORY) + r"/(?:[^/]+\.([a-z]+)|[^/]+\.d/[^/]+\.conf)", path)
    if not inside or inside.group(1) not in (None, *KINDS):
        return ""
    text = content.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"]
    if lines and not re.fullmatch(r"\[[^\[\]]+\]", lines[0]):
        got = f" (got {lines[0][:100]!r})" if told else ""
        return f"a unit's file begins with a section such as [Unit]{got}"
    section = KINDS[inside.group(1)] if inside.group(1) else ""
    if inside.group(1) and (not lines or (section and section not in lines)):
        return f"has no section {section or '[Unit]'}; without it systemd starts no {path.rpartition('/')[2]}"
    return ""


def manager_runs(system: System) -> bool:
    return system.is_directory("/run/systemd/system")


def read_units(system: System, names: Sequence[str]) -> dict[str, Have]:
    """One call for all. A host without systemd has none of them."""
    if not names or not manager_runs(system):
        return dict.fromkeys(names, NOTHING)
    result = system.run(["systemctl", "show", "--property=" + ",".join(PROPERTIES), "--", *names])
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in result.out.strip().split("\n\n")
    ]
    if result.rc != 0 or len(blocks) != len(names):
        raise StateError(
            f"systemctl show gave no answer for {', '.join(names)}: {result.err.strip()}; "
            "look at `systemctl status`"
        )
    return {
        name: Have(
            loaded=block.get("LoadState") in ("loaded", "masked"),
            active=block.get("ActiveState") in ("active", "reloading"),
            enabled=block.get("UnitFileState", "").startswith("enabled"),
            stale=block.get("NeedDaemonReload") == "yes",
            failed=block.get("ActiveState") == "failed" or block.get("SubState") == "auto-restart",
        )
        for name, block in zip(names, blocks)
    }


def actions(want: Unit, have: Have, restart: str, reload: str) -> list[Change]:
    """`restart` and `reload` say why the inputs call for it, or are empty."""
    found: list[Change] = []
    if want.enabled is not None and want.enabled != have.enabled:
        found.append(Change("unit", want.name, "enable" if want.enabled else "disable"))
    if want.running is False and have.active:
        found.append(Change("unit", want.name, "stop"))
    elif want.running and not have.active:
        found.append(Change("unit", want.name, "start"))
    elif want.running and restart:
        found.append(Change("unit", want.name, "restart", restart))
    elif want.running and reload:
        found.append(Change("unit", want.name, "reload", reload))
    return found


def perform(system: System, change: Change, block: bool) -> None:
    """One of the actions above. `block` is false at boot: waiting for a job could wait for ourselves."""
    argv = ["systemctl"]
    if change.action in ("start", "stop", "restart", "reload"):
        if not block:
            argv.append("--no-block")
        if change.action in ("start", "restart"):
            system.run(["systemctl", "reset-failed", change.name])
    result = system.run([*argv, change.action, change.name])
    if result.rc != 0:
        raise StateError(failure(system, change.name, f"did not {change.action}: {result.err.strip()}"))


def settle(system: System, names: Sequence[str], seconds: float = 1.0) -> None:
    """A simple service dies after systemctl has said yes: look again."""
    if not names:
        return
    deadline = time.monotonic() + seconds
    while True:
        for name, have in read_units(system, names).items():
            if have.failed:
                raise StateError(failure(system, name, "did not stay up"))
        if time.monotonic() >= deadline:
            break
        time.sleep(0.25)
    down = [name for name, have in read_units(system, names).items() if not have.active]
    if down:
        raise StateError(failure(system, down[0], "is not active after its start"))


def failure(system: System, name: str, what: str) -> str:
    journal = system.run(
        ["journalctl", "--no-pager", "-q", "-n", "15", "-o", "cat", "-u", name], timeout=15
    ).out
    lines = "\n".join(f"    {line}" for line in journal.strip().splitlines())
    return (
        f"unit {name} {what}\n  its last journal lines:\n{lines or '    (none)'}\n"
        f"  next: `systemctl status {name}` on the host; after mending, run the same play again"
    )


def remove_wants(system: System, name: str) -> None:
    """`systemctl disable` refuses a unit whose file is gone; its links stay behind."""
    directory = system.at(UNIT_DIRECTORY)
    if not os.path.isdir(directory):
        return
    for entry in sorted(os.listdir(directory)):
        if entry.endswith((".wants", ".requires")):
            path = f"{UNIT_DIRECTORY}/{entry}/{name}"
            if os.path.islink(system.at(path)):
                system.unlink(path)


def reload_manager(system: System) -> None:
    system.must(["systemctl", "daemon-reload"], "look at `systemctl status`")


def is_theirs(system: System, path: str, target: str) -> bool:
    """Whether a unit is on the host already, by its package or by an administrator's own file."""
    name = os.path.basename(path)
    if any(system.exists(f"{place}/{name}") for place in VENDOR_DIRECTORIES):
        return True
    return system.exists(path) and not (
        os.path.islink(system.at(path)) and os.readlink(system.at(path)) == target
    )


def mask_paths(names: Iterable[str]) -> dict[str, str]:
    """A mask is a link; made as one it needs neither the unit nor a running manager, so it can come before
    the package does."""
    return {f"{UNIT_DIRECTORY}/{name}": "/dev/null" for name in names}
