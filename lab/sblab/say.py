"""Progress for people, and failures with their reason and the next step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_started = time.monotonic()


class LabError(Exception):
    """What went wrong, and what a person can do next."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


def line(text: str) -> None:
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


@contextmanager
def phase(text: str, seconds: dict[str, float] | None = None) -> Iterator[None]:
    """Announces a phase, and how long it took once it is over."""
    line(f"{text} ...")
    begin = time.monotonic()
    how = "failed after "
    try:
        yield
        how = ""
    finally:
        took = time.monotonic() - begin
        if seconds is not None:
            seconds[text] = round(took, 1)
        line(f"{text}: {how}{took:.1f} s")


def run(
    argv: Sequence[str | Path],
    *,
    hint: str = "",
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> str:
    """Runs a program that must succeed; its last words become the error."""
    try:
        done = subprocess.run(
            [str(part) for part in argv],
            input=stdin,
            capture_output=True,
            text=True,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else None,
            check=False,
        )
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed", "lab/packages.sh") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
        raise LabError(f"{argv[0]} failed ({done.returncode}): " + "\n    ".join(words), hint)
    return done.stdout
