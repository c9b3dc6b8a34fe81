"""Reports: what a proof measured, as one JSON file of a fixed shape.

Every proof writes `reports/<name>.json` with exactly the keys name, pass, figures, checks, versions, commit,
so a reader (or the next proof) needs to know one shape only. Standard library alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

KEYS = ("name", "pass", "figures", "checks", "versions", "commit")
CHECK_KEYS = ("name", "pass", "got", "want")


def check(name: str, passed: bool, got: object, want: object) -> dict[str, Any]:
    """One line of a proof: what was looked at, whether it held, what was seen, what the contract wants."""
    return {"name": name, "pass": bool(passed), "got": got, "want": want}


def expect(name: str, got: object, want: object) -> dict[str, Any]:
    """A check that holds when `got` equals `want`."""
    return check(name, got == want, got, want)


def passes(checks: Iterable[Mapping[str, Any]]) -> bool:
    """A proof without a single check proves nothing, so it does not pass."""
    listed = list(checks)
    return bool(listed) and all(one["pass"] is True for one in listed)


def commit(directory: str) -> str:
    """The commit that was measured; `+` marks changes on top of it, '' stands for no repository."""
    try:
        head = _git(directory, "rev-parse", "HEAD")
        # The reports themselves are rewritten by every proof, so they do not count as a change.
        changed = _git(
            directory, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)reports"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + ("+" if changed else "")


def compose(
    name: str,
    passed: bool,
    figures: Mapping[str, Any],
    checks: Iterable[Mapping[str, Any]],
    versions: Mapping[str, Any],
    commit: str,
) -> dict[str, Any]:
    """The report as data; refuses a check of another shape, and a pass that a failed check contradicts."""
    listed = [dict(one) for one in checks]
    for one in listed:
        if set(one) != set(CHECK_KEYS) or not isinstance(one["pass"], bool):
            raise ValueError(f"report {name}: a check needs exactly {', '.join(CHECK_KEYS)} (got {one!r})")
    if passed and not passes(listed):
        raise ValueError(f"report {name}: it cannot pass while a check fails, or without any check")
    return {
        "name": name,
        "pass": bool(passed),
        "figures": dict(figures),
        "checks": listed,
        "versions": dict(versions),
        "commit": commit,
    }


def write(
    name: str,
    passed: bool,
    figures: Mapping[str, Any],
    checks: Iterable[Mapping[str, Any]],
    versions: Mapping[str, Any],
    directory: str,
) -> str:
    """Write `<directory>/<name>.json` whole or not at all, and return its path."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"{name}.json")
    put(path, text(compose(name, passed, figures, checks, versions, commit(directory))))
    return path


def text(report: Mapping[str, Any]) -> str:
    """JSON that a person can read and compare: a check a line."""
    lines = [json.dumps(one, ensure_ascii=False) for one in report["checks"]]
    body = json.dumps({**report, "checks": []}, indent=1, ensure_ascii=False)
    checks = ' "checks": [\n  ' + ",\n  ".join(lines) + "\n ]" if lines else ' "checks": []'
    return body.replace(' "checks": []', checks, 1) + "\n"


def put(path: str, text: str) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    handle, candidate = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".report-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(candidate, 0o644)
        os.replace(candidate, path)
    except BaseException:
        os.unlink(candidate)
        raise


def _git(directory: str, *words: str) -> str:
    # Its own safe.directory: the tree may belong to another user than the one that runs the proof.
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", directory, *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    return done.stdout.strip()
