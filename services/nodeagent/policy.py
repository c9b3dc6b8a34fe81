"""The policy process: fetch, verify, select, obey, report. It holds the key and reads no user data."""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from sideband import documents
from sideband.documents import Refused, Signed, Verifier

from services import configuration
from services.configuration import ConfigError
from services.nodeagent.config import Config, missing_files, parse
from services.nodeagent.connection import Rack, Unavailable
from services.nodeagent.heartbeat import Filesystems, exposition
from services.nodeagent.state import State

_BACKOFF_SECONDS = 15.0


class Pace:
    """When to try next: jittered so that a fleet never falls into step, and slower the longer it fails."""

    def __init__(self, clock: Callable[[], float], chance: Callable[[float, float], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self.due = clock()

    def succeeded(self, period: float) -> None:
        self._failures = 0
        self._after(period)

    def failed(self, period: float) -> None:
        self._failures = min(self._failures + 1, 10)
        self._after(min(period * 2**self._failures, max(_BACKOFF_SECONDS, period)))

    def now(self) -> None:
        """Something changed: at once, unless tries are failing."""
        if not self._failures:
            self.due = self._clock()

    def _after(self, seconds: float) -> None:
        self.due = self._clock() + seconds * self._chance(0.8, 1.2)


class Policy:
    def __init__(
        self,
        config: Config,
        rack: Rack | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._config = config
        self._clock = clock
        self._said: dict[str, str] = {}
        self._verifier = Verifier(config.allowed_signers)
        self._filesystems = Filesystems(config.filesystems)
        self.rack = rack or Rack(config.racks_url, config.ca, config.certificate, config.key)
        self.state = State(config, self._verifier, lambda text: print(text, file=sys.stderr, flush=True))
        self.refused: collections.Counter[str] = collections.Counter()
        self._etag: str | None = None
        self._last_fetch: float | None = None
        self._fetch = Pace(clock, chance)
        self._push = Pace(clock, chance)

    def _say(self, topic: str, text: str) -> None:
        """Each thing once, until it changes: a rack that is down for a night fills no journal."""
        if self._said.get(topic) != text:
            self._said[topic] = text
            if text:
                print(f"{topic}: {text}", file=sys.stderr, flush=True)

    # -- one round ----------------------------------------------------------------------------------------

    def apply(self) -> None:
        try:
            if self.state.apply():
                self._say("level", f"{self.state.level}, generation {self.state.generation}")
            self._say("apply", "")
        except OSError as error:
            self._say("apply", str(error))

    def fetch(self) -> bool:
        """Ask the rack once. True if it answered soundly."""
        period = self._config.levels[self.state.level].poll_seconds
        try:
            answer = self.rack.fetch(self._etag)
            if answer.status == 304:
                if self._etag is None:
                    raise Unavailable(f"{self.rack.url}: says unchanged, to a first question")
            elif answer.status == 200:
                self._take(answer.body)
                self._etag = answer.etag
            else:
                raise Unavailable(f"{self.rack.url}: policy answered {answer.status}")
        except (Unavailable, OSError) as error:
            self._say("fetch", str(error))
            self._etag = None if len(self._config.racks_url) > 1 else self._etag
            self.rack.next_rack()
            self._fetch.failed(period)
            return False
        self._last_fetch = self._clock()
        self._say("fetch", "")
        self._fetch.succeeded(self._config.levels[self.state.level].poll_seconds)
        return True

    def _take(self, body: bytes) -> None:
        """Obey the newest document of the answer that names this node; count what is refused."""
        try:
            pairs = documents.bundle_pairs(body)
        except Refused as problem:
            self._refuse(problem)
            return
        signed: list[Signed] = []
        for text, signature in pairs:
            try:
                one = documents.examine(text, signature, self._config.site, self._verifier)
                if one.document.scope.kind == "racks" and not self._mine(one):
                    # Another rack's document has been put on this one.
                    raise Refused("scope", f"for {one.document.scope}")
                signed.append(one)
            except Refused as problem:
                self._refuse(problem)
        found = documents.newest(signed, self._config.rack, self._config.node)
        if found is None:
            return
        try:
            changed = self.state.obey(found)
        except Refused as problem:
            self._refuse(problem)
            return
        if changed:
            self.apply()
            self._push.now()
        self._say("refused", "")

    def _mine(self, signed: Signed) -> bool:
        return signed.document.scope.covers(self._config.rack, self._config.node)

    def _refuse(self, problem: Refused) -> None:
        self.refused[problem.reason] += 1
        self._say("refused", str(problem))
        self._push.now()

    def push(self) -> bool:
        level = self.state.level
        order = self._config.order
        text = exposition(
            self._filesystems,
            level=level,
            level_index=order.index(level) if level in order else -1,
            generation=self.state.generation,
            refused={reason: self.refused[reason] for reason in documents.REASONS},
            fetch_age_seconds=None if self._last_fetch is None else self._clock() - self._last_fetch,
        )
        try:
            self.rack.push(text)
        except (Unavailable, OSError) as error:
            self._say("push", str(error))
            self._push.failed(self._config.always_period_seconds)
            return False
        self._say("push", "")
        self._push.succeeded(self._config.always_period_seconds)
        return True

    def step(self) -> float:
        """Do what is due; answer how long to wait."""
        if self._clock() >= self._fetch.due:
            self.fetch()
        if self._clock() >= self._push.due:
            self.apply()  # the level's file may have been replaced by a deployment
            self.push()
        self._remember_until()
        return max(0.0, min(self._fetch.due, self._push.due) - self._clock())

    def _remember_until(self) -> None:
        until = self.state.obeyed.document.until if self.state.obeyed else None
        if until is not None and time.time() > documents.seconds_of(until):
            # A level never rises by itself: the fleet would rise at once, and perhaps into the same trouble.
            self._say("until", f"{until} has passed; level {self.state.level} stays until a newer document")

    def run(self) -> None:
        wait = threading.Event()
        self.apply()
        while True:
            wait.wait(self.step())


def _stop(number: int, frame: object) -> None:
    raise SystemExit(0)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nodeagent policy", description=__doc__)
    parser.add_argument("--config", default="/etc/sideband/node/policy.json", metavar="FILE")
    parser.add_argument("--once", action="store_true", help="one fetch and one report; 0 if both succeeded")
    parser.add_argument("--check", nargs="?", const="", metavar="FILE", help="check the configuration only")
    options = parser.parse_args(arguments)
    try:
        config = configuration.load(options.check or options.config, parse)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check is not None:
        return 0
    for path in missing_files(config):
        print(f"error: {path}: cannot be read", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    policy = Policy(config)
    if options.once:
        policy.apply()
        fetched = policy.fetch()
        return 0 if policy.push() and fetched else 1
    policy.run()
    return 0
