"""What is remembered of one job: who writes its curve, which steps it has had, and its counters.

One file's lines make the curve. Where several ranks write the same steps, rank 0 or the first file leads;
another file takes over when the leader has fallen silent, or when it goes on where the leader stopped. Who
led is asked at the *line's* time: what a spool hands in late is judged as if it had come in time.

The same quantity of the same step, within `patience`, is one thing said twice. Later than that it is a job
that was resumed from a checkpoint and repeats the step, and is recorded again.
"""

from __future__ import annotations

from typing import Any

from services.curves.samples import Observation
from services.curves.spread import Seen, Spread

_PATIENCE = 10_000_000  # microseconds; ranks that write through a buffer are that far apart
_PATIENCE_STEPS = 3
_STEPS = 1024
_REIGNS = 4
_EVENT_SERIES = 512


class Job:
    def __init__(self) -> None:
        self.sources: dict[str, Seen] = {}  # the least recent first
        self.reigns: list[tuple[int, str, int | None]] = []  # since when, who, its rank
        self.steps: dict[int, tuple[int, list[str]]] = {}  # when it was first said, and what of it
        self.last_time = 0  # of the leader
        self.last_step: int | None = None
        self.last_step_time = 0
        self.intervals = (0, 0)  # between steps
        self.names: list[str] = []
        self.shown: dict[str, float] = {}
        self.spreads: dict[str, Spread] = {}
        self.events: dict[str, tuple[int, int]] = {}  # count and the last millisecond
        self.tokens = -1.0  # not yet filled
        self.tokens_time = 0

    # -- who leads ----------------------------------------------------------------------------------------

    def source(self, observation: Observation, limit: int) -> tuple[str, Seen, bool, int]:
        """The line's source, whether it is new, and how many had to be forgotten for it."""
        name = f"{observation.node}\x00{observation.source}"
        seen = self.sources.pop(name, None)
        new = seen is None
        if seen is None:
            seen = Seen()
        self.sources[name] = seen
        forgotten = 0
        if len(self.sources) > limit:
            leaders = {who for _, who, _ in self.reigns}
            for other in list(self.sources):
                if len(self.sources) > limit and other not in leaders and other != name:
                    del self.sources[other]
                    forgotten += 1
        return name, seen, new, forgotten

    @property
    def patience(self) -> int:
        # The shorter of two: one long pause between steps says nothing about the pace.
        return max(_PATIENCE, _PATIENCE_STEPS * min(self.intervals))

    def leads(self, name: str, new: bool, observation: Observation) -> bool:
        time, step = observation.time, observation.step
        if not self.reigns:
            self.reigns.append((0, name, observation.rank))
        ruling = next((reign for reign in reversed(self.reigns) if reign[0] <= time), self.reigns[0])
        if ruling[1] != name:
            if ruling is not self.reigns[-1]:
                return False
            silent = time - self.last_time > self.patience
            goes_on = (
                new and step is not None and self.last_step is not None and step > self.last_step
                and time >= self.last_time
            )  # fmt: skip
            better = observation.rank == 0 and bool(ruling[2])
            if not (silent or goes_on or better):
                return False
            self.reigns.append((time, name, observation.rank))
            del self.reigns[:-_REIGNS]
            self.sources[name].nothing_before(time)
            ruling = self.reigns[-1]
        if ruling is self.reigns[-1]:
            self.last_time = max(self.last_time, time)
        return True

    # -- once ---------------------------------------------------------------------------------------------

    def fresh(self, observation: Observation) -> dict[str, float]:
        """The quantities of a leader's line that have not been said yet."""
        time, step, values = observation.time, observation.step, dict(observation.values)
        for key in observation.shown:
            if self.shown.get(key) == values[key]:
                del values[key]
        if step is None:
            return values
        first, said = self.steps.get(step, (time, []))
        if abs(time - first) > self.patience:
            first, said = time, []
        return {key: value for key, value in values.items() if key not in said or key in observation.shown}

    def note(self, observation: Observation, values: dict[str, float]) -> None:
        time, step = observation.time, observation.step
        for key in observation.shown:
            if key in values:
                self.shown[key] = values[key]
        if step is None:
            return
        first, said = self.steps.pop(step, (time, []))
        if abs(time - first) > self.patience:
            first, said = time, []
        self.steps[step] = (first, said + [key for key in values if key not in said])
        if len(self.steps) > _STEPS:
            del self.steps[next(iter(self.steps))]
        if self.last_step is not None and step > self.last_step and time >= self.last_step_time:
            self.intervals = (self.intervals[1], time - self.last_step_time)
        if step != self.last_step:
            self.last_step, self.last_step_time = step, time

    # -- bounds -------------------------------------------------------------------------------------------

    def affordable(self, count: int, time: int, rate: float, burst: float) -> bool:
        """A bucket that fills by the lines' own clock: what comes late was not fast."""
        if self.tokens < 0:
            self.tokens, self.tokens_time = burst, time
        if time > self.tokens_time:
            self.tokens = min(burst, self.tokens + (time - self.tokens_time) / 1e6 * rate)
            self.tokens_time = time
        if self.tokens < count:
            return False
        self.tokens -= count
        return True

    def millisecond(self, node: str, time: int, limit: int) -> int:
        spread = self.spreads.pop(node, None) or Spread()
        self.spreads[node] = spread
        if len(self.spreads) > limit:
            del self.spreads[next(iter(self.spreads))]
        return spread.take(time // 1000)

    def count(self, node: str, kind: str, time: int) -> tuple[int, int]:
        """The counter's new value and the millisecond for it. A counter's time never goes back."""
        key = f"{node}\x00{kind}"
        value, last = self.events.pop(key, (0, -1))
        # Two milliseconds on: the old value stands right before the new one, so that a rate sees the rise.
        value, last = value + 1, max(time // 1000, last + 2)
        self.events[key] = (value, last)
        if len(self.events) > _EVENT_SERIES:
            del self.events[next(iter(self.events))]
        return value, last

    # -- keeping ------------------------------------------------------------------------------------------

    _PLAIN = ("last_time", "last_step", "last_step_time", "names", "shown", "tokens", "tokens_time")

    def dump(self) -> dict[str, Any]:
        return {
            **{key: getattr(self, key) for key in self._PLAIN},
            "sources": {name: seen.dump() for name, seen in self.sources.items()},
            "reigns": self.reigns,
            "steps": [[step, first, said] for step, (first, said) in self.steps.items()],
            "intervals": self.intervals,
            "spreads": {node: spread.dump() for node, spread in self.spreads.items()},
            "events": self.events,
        }

    @classmethod
    def load(cls, value: dict[str, Any]) -> Job:
        job = cls()
        for key in cls._PLAIN:
            setattr(job, key, value[key])
        job.sources = {name: Seen.load(seen) for name, seen in value["sources"].items()}
        job.reigns = [(int(since), str(who), rank) for since, who, rank in value["reigns"]]
        job.steps = {int(step): (int(first), list(said)) for step, first, said in value["steps"]}
        job.intervals = (int(value["intervals"][0]), int(value["intervals"][1]))
        job.spreads = {node: Spread.load(spread) for node, spread in value["spreads"].items()}
        job.events = {key: (int(count), int(last)) for key, (count, last) in value["events"].items()}
        return job
