"""One line a play with its time; after a failure, who, where, why and what to do next."""

from __future__ import annotations

DOCUMENTATION = """
name: sideband_progress
type: notification
short_description: Times of plays, and hints after failures
description:
  - Prints one line after every play with the seconds since the start and the play's own.
  - After a failure or an unreachable host, the end of the run says which host and task, why, and what next.
requirements:
  - enabled by C(callbacks_enabled) in ansible.cfg
"""

import sys
import time
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

NEXT = {
    "unreachable": "see that it runs and that ssh reaches it over the management plane",
    "failed": "mend the reason above",
}
# These judge or address a whole site, and say so themselves where they are limited.
WHOLE = frozenset({"canary.yml", "restore.yml", "rollback.yml", "rollout.yml", "verify.yml"})


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def reason(result: dict[str, Any]) -> str:
    """The first line that says something; a result with secrets has been emptied before it comes here."""
    texts = [result.get("msg")] + [
        item.get("msg") for item in result.get("results", []) if item.get("failed")
    ]
    for text in texts[::-1]:
        for line in str(text or "").splitlines():
            if line.strip():
                return line.strip()[:300]
    return "see the output above"


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "sideband_progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, clock: Any = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._start = clock()
        self._first = True
        self._play = ""
        self._play_start = self._start
        self._bad: dict[str, tuple[str, str, str]] = {}
        self._books: set[str] = set()

    def _say_unreadable(self) -> None:
        """Ansible stops at an inventory's file that is no YAML, and says what but not where."""
        from sideband.sources import unreadable

        for error in unreadable(context.CLIARGS.get("inventory") or ()):
            self._display.display(str(error), color="red")

    def _finish_play(self) -> None:
        if self._play:
            now = self._clock()
            self._display.display(
                f"[{minutes(now - self._start)}] {self._play}: {now - self._play_start:.1f} s", color="blue"
            )
        self._play = ""

    def _note(self, kind: str, result: Any) -> None:
        self._bad[result.host.get_name()] = (kind, result.task.get_name().strip(), reason(result.result))

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._books.add(Path(playbook._file_name).name)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self._first:
            self._first = False
            self._say_unreadable()
        self._finish_play()
        self._play, self._play_start = play.get_name().strip(), self._clock()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._note("failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._note("unreachable", result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._finish_play()
        # A failure that the play rescued is none; only what the recap counts is told.
        bad = {
            host: told
            for host, told in self._bad.items()
            if stats.summarize(host)["failures"] or stats.summarize(host)["unreachable"]
        }
        for host, (kind, task, why) in sorted(bad.items()):
            self._display.display(f"{host}: {kind} at '{task}': {why}", color="red")
            self._display.display(f"  next: {NEXT[kind]}", color="yellow")
        if bad:
            # What fails on the controller is the whole site's: to limit a run to it would leave the site out.
            # A verb for a whole site is not limited either.
            hosts = "" if self._books & WHOLE else ",".join(sorted(set(bad) - {"localhost"}))
            alone = f", or on these alone: --limit {hosts} (what is done is not done twice)" if hosts else ""
            self._display.display(f"  then run the same command again{alone}", color="yellow")
