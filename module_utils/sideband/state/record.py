"""What sideband brought to this host, per owner: the base of exact undo, exact removal and drift detection.

One file per owner, replaced in one step, so a killed run leaves the old record or the new one. It holds whole
contents, secrets too: the directory is root's alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .system import StateError, System

BASE = "/var/lib/sideband"
GENERATIONS = f"{BASE}/generations"
PROGRAM = "state.pyz"  # the recovery program beside each record that may need it
LOCK_SECONDS = 120


class BusyError(StateError):
    """Another run holds the lock."""


Generation = dict[str, Any]  # {"number", "fragment", "secrets"}
EMPTY: Generation = {"number": 0, "fragment": {}, "secrets": []}


@dataclass
class Record:
    owner: str
    current: Generation = field(default_factory=lambda: dict(EMPTY))
    previous: Generation | None = None  # None: nothing earlier to go back to
    pending: Generation | None = None  # being applied; left behind by an interrupted run
    # The ledger. Written before anything is done, so what an interrupted run brought is known too.
    originals: dict[str, Any] = field(default_factory=dict)  # path -> what stood there before us
    units: dict[str, dict[str, bool]] = field(default_factory=dict)  # name -> {"enabled", "active"} before us
    tables: list[list[str]] = field(default_factory=list)  # [family, table]
    devices: list[str] = field(default_factory=list)  # shaped
    # {"reload", "addresses", "links", "settings"}: how it was, what came
    network: dict[str, Any] = field(default_factory=dict)
    installed: dict[str, list[str]] = field(default_factory=dict)  # packages, users, groups brought for us
    named: list[str] = field(default_factory=list)  # of those packages: the ones that a fragment names
    # Users and groups that those packages made for themselves, and that Debian's leave behind.
    along: dict[str, list[str]] = field(default_factory=dict)
    awaited: dict[str, list[str]] = field(
        default_factory=dict
    )  # what was there before the role went to bring
    # What runs: hashes of the inputs at each unit's last start, and of the last loads.
    running: dict[str, Any] = field(default_factory=dict)
    armed: dict[str, Any] | None = None  # the dead man's switch
    made: list[str] = field(default_factory=list)  # directories that came with the switch, outermost first
    news: str = ""  # what the switch did, until a run has told it

    @property
    def exists(self) -> bool:
        return self != Record(self.owner)

    def brought(self, path: str) -> bool:
        """Whether nothing stood there before us."""
        return bool(self.originals.get(path, {}).get("type") == "nothing")


def directory(owner: str) -> str:
    return f"{GENERATIONS}/{owner}"


def owners(system: System) -> list[str]:
    place = system.at(GENERATIONS)
    if not os.path.isdir(place):
        return []
    return sorted(
        name for name in os.listdir(place) if os.path.isfile(os.path.join(place, name, "record.json"))
    )


def load(system: System, owner: str) -> Record:
    if not owner.replace("-", "").replace("_", "").isalnum():
        raise StateError(f"owner must be a plain word (got {owner!r})")
    data = system.content(f"{directory(owner)}/record.json")
    if data is None:
        return Record(owner)
    known = {entry.name for entry in fields(Record)}
    return Record(**{key: value for key, value in json.loads(data).items() if key in known})


def others(system: System, owner: str) -> list[Record]:
    return [load(system, name) for name in owners(system) if name != owner]


def prepare(system: System, owner: str) -> None:
    for path, mode in ((BASE, 0o755), (GENERATIONS, 0o700), (directory(owner), 0o700)):
        for parent in system.missing_parents(path):
            if parent not in (BASE, GENERATIONS):
                os.mkdir(system.at(parent), 0o755)
        if not system.is_directory(path):
            os.mkdir(system.at(path), mode)
        os.chmod(system.at(path), mode)


def save(system: System, record: Record) -> None:
    prepare(system, record.owner)
    text = json.dumps(asdict(record), sort_keys=True)
    system.write(f"{directory(record.owner)}/record.json", text.encode(), 0o600, os.geteuid(), os.getegid())


def sweep(system: System, owner: str) -> None:
    """Take away what a killed run left half written beside the record."""
    place = system.at(directory(owner))
    if os.path.isdir(place):
        system.sweep(f"{directory(owner)}/{name}" for name in ("record.json", PROGRAM))


def forget(system: System, owner: str) -> None:
    """The last trace of an owner; with the last owner goes the base, if nothing else lives there."""
    place = system.at(directory(owner))
    if os.path.isdir(place):
        for name in os.listdir(place):
            os.unlink(os.path.join(place, name))
        os.rmdir(place)
    if not owners(system):
        lock = system.at(f"{GENERATIONS}/lock")
        if os.path.exists(lock):
            os.unlink(lock)
        for path in (GENERATIONS, BASE):
            if os.path.isdir(system.at(path)) and not os.listdir(system.at(path)):
                os.rmdir(system.at(path))


@contextmanager
def locked(system: System, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """One run at a time on a host. The kernel drops the lock with its holder, so none stays behind."""
    if not system.is_directory(GENERATIONS):
        for path, mode in ((BASE, 0o755), (GENERATIONS, 0o700)):
            os.makedirs(system.at(path), mode=mode, exist_ok=True)
            os.chmod(system.at(path), mode)
    with open(system.at(f"{GENERATIONS}/lock"), "w", encoding="ascii") as file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise BusyError(
                        f"another run of host_state has held {GENERATIONS}/lock for {seconds:.0f} s; "
                        f"see who: `fuser {GENERATIONS}/lock`"
                    ) from None
                time.sleep(0.2)
        yield
