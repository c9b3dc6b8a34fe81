"""The program that runs on the host by itself: `state.pyz guard|boot|load OWNER`.

`boot` is `load` that does not wait for a run in progress: that run starts the boot's own unit and waits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from . import guard, netfilter, record, shaping
from .engine import Engine
from .fragment import parse
from .system import StateError, System


@contextmanager
def patiently_locked(system: System, seconds: float) -> Iterator[None]:
    """A run that hangs with the lock must not keep a lost host lost."""
    try:
        held = record.locked(system, seconds)
        held.__enter__()
    except record.BusyError:
        yield
        return
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def fire(system: System, owner: str) -> None:
    with patiently_locked(system, 60):
        engine = Engine(system, owner)
        if engine.record.armed is None:
            guard.disarm(engine, inside=True)
            return
        why = (
            "the host was rebooted before the change was confirmed"
            if engine.record.armed["boot"] != guard.boot_id(system)
            else f"the change was not confirmed within {engine.record.armed['seconds']} s"
        )
        guard.revert(engine, why, inside=True)


def load(system: System, owner: str, wait_seconds: float = record.LOCK_SECONDS) -> list[str]:
    """Rules and shapes as the generation in force has them, on the devices that exist now."""
    done: list[str] = []
    with record.locked(system, wait_seconds):
        engine = Engine(system, owner)
        generation = engine.record.pending or engine.record.current
        want = parse(generation["fragment"], generation["secrets"])
        if want.nftables:
            change = netfilter.plan(system, want.nftables, engine.record.running.get("nftables") or {})
            if change:
                engine.record.running["nftables"] = netfilter.load(system, want.nftables)
                record.save(system, engine.record)
                done.append(change.line())
        for tree in want.shapes.values():
            change = shaping.plan(system, tree)
            if change:
                shaping.load(system, tree)
                done.append(change.line())
    return done


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("guard", "boot", "load"):
        print("usage: state.pyz guard|boot|load OWNER", file=sys.stderr)
        return 2
    verb, owner = arguments
    system = System()
    try:
        if verb == "guard":
            fire(system, owner)
        else:
            for line in load(system, owner, 0 if verb == "boot" else record.LOCK_SECONDS):
                print(line)
    except StateError as problem:
        if verb == "boot" and isinstance(problem, record.BusyError):
            print("a run of host_state is in progress; it loads them itself")
            return 0
        print(f"sideband: {problem}", file=sys.stderr)
        return 1
    return 0
