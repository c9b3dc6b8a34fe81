"""What a rollout has done so far, on the controller, so that an interrupted one can be resumed and one budget
of failures holds for the whole fleet. Written whole or not at all, before and after every step."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

FORM = 1

WAITING = "waiting"
APPLYING = "applying"  # begun: some of its hosts may be changed
REVERTING = "reverting"  # judged bad: its hosts go back
PASSED = "passed"
FAILED = "failed"  # judged bad, and its hosts are back

STATES = (WAITING, APPLYING, REVERTING, PASSED, FAILED)
# Which state may follow which; a state may always be written again.
FOLLOWS = {
    WAITING: (APPLYING,),
    APPLYING: (PASSED, REVERTING),
    REVERTING: (FAILED,),
    PASSED: (APPLYING,),
    FAILED: (APPLYING,),
}


class LedgerError(Exception):
    """What is wrong with the ledger, and what to do."""


@dataclass
class Entry:
    """One step. `before` is what its hosts were like before the rollout touched them: the base of undo."""

    name: str
    hosts: list[str]
    state: str = WAITING
    failed: dict[str, str] = field(default_factory=dict)  # host -> cause
    cause: str = ""
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    changed_at: float = 0.0


@dataclass
class Ledger:
    site: str
    release: str
    steps: list[Entry] = field(default_factory=list)
    began_at: float = 0.0

    def entry(self, name: str) -> Entry | None:
        return next((entry for entry in self.steps if entry.name == name), None)

    def failures(self) -> dict[str, str]:
        """Every host that failed in this rollout, in any step."""
        found: dict[str, str] = {}
        for entry in self.steps:
            found.update(entry.failed)
        return found

    def unfinished(self) -> list[Entry]:
        """Steps whose hosts may be between two releases."""
        return [entry for entry in self.steps if entry.state in (APPLYING, REVERTING)]

    def move(self, name: str, state: str, now: float | None = None) -> Entry:
        entry = self.entry(name)
        if entry is None:
            raise LedgerError(
                f"step {name}: not in this rollout; it has {', '.join(e.name for e in self.steps)}"
            )
        if state != entry.state and state not in FOLLOWS[entry.state]:
            raise LedgerError(f"step {name}: cannot go from {entry.state} to {state}")
        entry.state = state
        entry.changed_at = time.time() if now is None else now
        return entry


def begin(
    old: Ledger | None,
    site: str,
    release: str,
    steps: Mapping[str, Sequence[str]],
    now: float | None = None,
) -> Ledger:
    """The ledger of a run that starts now.

    The same release goes on where it stopped: what passed stays passed if it still has the same hosts, and a
    failed step is tried anew. Another release starts from the first step. Unfinished steps keep what is known
    of their hosts from before either, because what those hosts are like now is nobody's release.
    """
    moment = time.time() if now is None else now
    ledger = Ledger(site, release, [Entry(name, list(hosts)) for name, hosts in steps.items()], moment)
    if old is None or old.site != site:
        return ledger
    if old.release == release:
        ledger.began_at = old.began_at
    known: dict[str, dict[str, Any]] = {}
    for entry in old.unfinished():
        known.update(entry.before)
    for entry in ledger.steps:
        entry.before = {host: known[host] for host in entry.hosts if host in known}
        before = old.entry(entry.name) if old.release == release else None
        if before is not None and before.hosts == entry.hosts and before.state == PASSED:
            entry.state, entry.failed, entry.changed_at = PASSED, before.failed, before.changed_at
            entry.before = before.before
    return ledger


def to_take_back(old: Ledger | None, release: str) -> dict[str, dict[str, Any]]:
    """Hosts that an interrupted run left where no release wants them, with what they were like before: those
    of a step that was judged bad, and those of another release's unfinished step."""
    found: dict[str, dict[str, Any]] = {}
    for entry in old.unfinished() if old else []:
        if entry.state == REVERTING or (old and old.release != release):
            found.update(entry.before)
    return found


def following(ledger: Ledger) -> Entry | None:
    """The step to do next; None when all have passed, or one stands in the way."""
    for entry in ledger.steps:
        if entry.state in (FAILED, REVERTING):
            return None
        if entry.state != PASSED:
            return entry
    return None


def to_text(ledger: Ledger) -> str:
    return json.dumps({"form": FORM, **asdict(ledger)}, indent=1, sort_keys=True) + "\n"


def from_text(text: str, path: str = "ledger") -> Ledger:
    hint = "move the file away to begin the rollout anew"
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("form", None) != FORM:
            raise LedgerError(f"{path}: written by another version of sideband; {hint}")
        entries = [Entry(**entry) for entry in data.pop("steps")]
        ledger = Ledger(steps=entries, **data)
    except (ValueError, TypeError, KeyError) as problem:
        raise LedgerError(f"{path}: no ledger ({problem}); {hint}") from None
    for entry in entries:
        if entry.state not in STATES:
            raise LedgerError(f"{path}: step {entry.name} is {entry.state!r}; {hint}")
    return ledger


def load(path: str) -> Ledger | None:
    try:
        with open(path, encoding="utf-8") as file:
            return from_text(file.read(), path)
    except FileNotFoundError:
        return None


def save(path: str, ledger: Ledger) -> None:
    """A reader, and a run after a power cut, sees the old ledger or the new one."""
    directory = os.path.dirname(path) or "."
    os.makedirs(directory, mode=0o700, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=directory, prefix=".rollout-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_text(ledger))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    flag = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(flag)
    finally:
        os.close(flag)


# what a play asks for

Answer = dict[str, Any]


def act(action: str, given: Mapping[str, Any], old: Ledger | None, dry: bool) -> tuple[Answer, Ledger, bool]:
    """(the answer to the play, the ledger after it, whether it has to be written)."""
    if action in ("look", "begin"):
        steps = {name: list(step["hosts"]) for name, step in given["steps"].items()}
        ledger = begin(old, given["site"], given["release"], steps)
        resumed = old is not None and old.release == given["release"] and old.site == given["site"]
        take_back = to_take_back(old, given["release"])
        return _answer(ledger, None, resumed=resumed, take_back=take_back), ledger, action == "begin"
    if old is None and dry:
        # A dry run has no book: every step of the plan is shown.
        return _answer(Ledger("", ""), None, run=True), Ledger("", ""), False
    if old is None:
        raise LedgerError("no rollout is under way; begin one first")
    entry = old.entry(given["step"])
    if entry is None:
        return _answer(old, None), old, False
    if action == "enter":
        return _answer(old, entry, run=dry or following(old) is entry), old, False
    if action == "applying":
        entry.before = {**given["before"], **entry.before}
        entry.cause, entry.failed = "", {}
    else:
        entry.cause = given["cause"] or entry.cause
        entry.failed = dict(given["failed"]) or entry.failed
    old.move(given["step"], action)
    return _answer(old, entry), old, True


def _answer(ledger: Ledger, entry: Entry | None, **more: Any) -> Answer:
    return {
        "run": False,
        "resumed": False,
        "take_back": {},
        "before": entry.before if entry else {},
        "states": {each.name: each.state for each in ledger.steps},
        "failures": ledger.failures(),
        **more,
    }
