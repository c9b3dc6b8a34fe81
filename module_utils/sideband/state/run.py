"""The verbs of host_state: present, absent, reverted, confirmed."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from . import guard, packages, record
from .change import Change
from .engine import Engine, converged, sweep_archives
from .fragment import Fragment
from .planner import Plan
from .program import build
from .record import EMPTY, Generation
from .system import System

Answer = dict[str, Any]
# Below these everything is sideband's own, data that its programs wrote included.
OWN_TREES = ("/etc/sideband", "/opt/sideband", "/run/sideband", "/var/lib/sideband")


def perform(
    system: System,
    state: str,
    owner: str,
    fragment: dict[str, Any],
    secrets: list[dict[str, Any]],
    *,
    purge: bool = False,
    session: str = "",
    check_mode: bool = False,
) -> Answer:
    # Check mode writes nothing, not even the lock's directory.
    free = check_mode and not system.is_directory(record.GENERATIONS)
    lock: AbstractContextManager[None] = nullcontext() if free else record.locked(system)
    with lock:
        engine = Engine(system, owner, build())
        if state == "confirmed":
            return _confirmed(engine, session, check_mode)
        reverted = engine.record.armed is not None and not check_mode
        notes = _clean_start(engine, check_mode)
        if state == "present":
            generation: Generation = {
                "number": engine.record.current["number"] + 1,
                "fragment": fragment,
                "secrets": secrets,
            }
            answer = _present(engine, generation, session, check_mode)
        elif state == "reverted":
            answer = _reverted(engine, check_mode)
        else:
            answer = _absent(engine, purge, check_mode)
        answer["plan"] = notes + answer["plan"]
        answer["changed"] = answer["changed"] or reverted
        return answer


def _answer(engine: Engine, plan: Plan, changed: bool, **more: Any) -> Answer:
    return {
        "changed": changed,
        "missing": plan.missing,
        "orphaned": plan.orphaned,
        "plan": plan.lines(),
        "generation": engine.record.current["number"],
        "armed": engine.record.armed is not None,
        "diff": [change.diff() for change in plan.changes],
        "news": "",
        "left": [],
        "package_manager": packages.manager(engine.system),
        **more,
    }


def _clean_start(engine: Engine, check_mode: bool) -> list[str]:
    """An unconfirmed change of an earlier run goes first: its switch must not fire into this one."""
    if not check_mode:
        record.sweep(engine.system, engine.owner)
    if engine.record.armed is None:
        if not check_mode:
            guard.tidy(engine)
        return []
    if check_mode:
        return ["guard: an unconfirmed change of an earlier run would be reverted first"]
    guard.revert(engine, "the run that made the change ended before it confirmed; the next run found it")
    engine.program = build()
    return ["guard: an unconfirmed change of an earlier run was reverted now"]


def _present(engine: Engine, generation: Generation, session: str, check_mode: bool) -> Answer:
    kept = engine.record
    plan = engine.plan(generation)
    if not check_mode and engine.await_services(plan):
        return _answer(engine, plan, False, news=kept.news)
    engine.prepare(plan, check_mode)
    same = (kept.current["fragment"], kept.current["secrets"]) == (
        generation["fragment"],
        generation["secrets"],
    )
    news = kept.news
    if check_mode:
        return _answer(engine, plan, bool(plan.changes), news=news)
    if plan.lacking:
        engine.await_missing(plan)
        engine.apply_masks(plan, generation)
        return _answer(engine, plan, True, news=news)
    kept.news = ""
    ledger = (dict(kept.installed), dict(kept.awaited))
    engine.note_arrivals(plan)
    engine.note_departures()
    if plan.changes or not same or kept.pending or news or ledger != (kept.installed, kept.awaited):
        # A newer recovery program alone puts nothing at risk.
        guarded = plan.want.guarded and any(change.kind != "program" for change in plan.changes)

        def arm() -> None:
            if guarded:
                guard.arm(engine, plan.want.guard_seconds, session)

        engine.apply(plan, generation if not same else kept.current, arm)
        if plan.changes:
            converged(engine, generation)
        if guarded:
            guard.extend(engine)
    return _answer(engine, plan, bool(plan.changes), news=news)


def _reverted(engine: Engine, check_mode: bool) -> Answer:
    kept = engine.record
    if kept.pending is None and kept.previous is None:
        plan = engine.plan(kept.current)
        plan.changes.clear()
        plan.notes.append(f"owner {engine.owner}: no earlier generation is kept")
        return _answer(engine, plan, False)
    generation = guard.target(kept)
    plan = engine.plan(generation)
    engine.prepare(plan, check_mode)
    if not check_mode:
        engine.apply(plan, generation)
        converged(engine, generation)
        kept.previous = None
        record.save(engine.system, kept)
    return _answer(engine, plan, bool(plan.changes))


def _absent(engine: Engine, purge: bool, check_mode: bool) -> Answer:
    """Everything that the owner brought. Packages and users are reported; the record goes after them."""
    kept, system = engine.record, engine.system
    if not kept.exists:
        if not check_mode:
            record.forget(system, engine.owner)  # a killed removal may have left it half forgotten
        return _answer(engine, Plan(Fragment()), False)
    plan = engine.plan(EMPTY)
    trees = _own_trees(engine) if purge else []
    plan.changes += [Change("tree", path, "remove", "its programs' data") for path in trees]
    if check_mode:
        return _answer(engine, plan, bool(plan.changes))
    engine.apply(plan, dict(EMPTY))
    for path in trees:
        shutil.rmtree(system.at(path), ignore_errors=True)
    left = [path for path in kept.originals if system.exists(path)]
    engine.note_departures()
    answer = _answer(engine, plan, bool(plan.changes), left=left, generation=0)
    if any(plan.orphaned.values()):
        record.save(system, kept)
    else:
        engine.hand_over()
        _forget(engine)
    return answer


def _own_trees(engine: Engine) -> list[str]:
    """Directories that we made below our own roots and that no other owner uses."""
    shared = {path for other in engine.others for path in other.originals}
    return sorted(
        path
        for path, saved in engine.record.originals.items()
        if saved["type"] == "nothing"
        and engine.system.is_directory(path)
        and any(path.startswith(f"{tree}/") for tree in OWN_TREES)
        and not any(each == path or each.startswith(f"{path}/") for each in shared)
    )


def _forget(engine: Engine) -> None:
    sweep_archives(engine.system, leaving=engine.owner)
    for path in sorted(engine.record.originals, key=lambda each: -each.count("/")):
        if engine.system.is_directory(path) and not os.listdir(engine.system.at(path)):
            os.rmdir(engine.system.at(path))
    record.forget(engine.system, engine.owner)


def _confirmed(engine: Engine, session: str, check_mode: bool) -> Answer:
    changed = engine.record.armed is not None if check_mode else guard.confirm(engine, session)
    plan = Plan(Fragment(), [Change("guard", engine.owner, "confirm")] if changed else [])
    return _answer(engine, plan, changed, news=engine.record.news)
