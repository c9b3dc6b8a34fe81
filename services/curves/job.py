"""What is remembered of one job: who writes its curve, which steps it has had, and its counters.

One file's lines make the curve. Where several ranks write the same steps, rank 0 or the first file leads;
another file takes over when the leader has fallen silent, or when it goes on where the leader stopped. Who
led is asked at the *line's* time: what a spool hands in late is judged as if it had come in time.

The same quantity of the same step, within `patience`, is one thing said twice. Later than that it is a job
that was resumed from a checkpoint and repeats the step, and is recorded again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from services.curves.samples import Observation
from services.curves.spread import Spread

_PATIENCE = 10_000_000  # microseconds; ranks that write through a buffer are that far apart
_PATIENCE_STEPS = 3
_STEPS = 1024
_MINUTE = 60_000_000
_MINUTES = 1440
_REIGNS = 4
_EVENT_SERIES = 512


@dataclass
class Reign:
    since: int
    who: str
    rank: int | None
    last: int  # its newest line


class Job:
    def __init__(self) -> None:
        self.sources: dict[str, None] = {}  # the least recent first
        self.reigns: list[Reign] = []
        self.steps: dict[int, tuple[int, list[str]]] = {}  # when it was first said, and what of it
        self.last_step: int | None = None  # of the newest line
        self.last_step_time = 0
        self.intervals = (0, 0)  # between steps
        self.names: list[str] = []
        self.shown: dict[str, float] = {}
        self.spreads: dict[str, Spread] = {}
        self.events: dict[str, tuple[int, int]] = {}  # count and the last millisecond
        self.minutes: dict[int, int] = {}  # samples by the minute

    # -- who leads ----------------------------------------------------------------------------------------

    def source(self, observation: Observation, limit: int) -> tuple[str, bool, int]:
        """The line's source, whether it is new, and how many had to be forgotten for it."""
        name = f"{observation.node}\x00{observation.source}"
        new = name not in self.sources
        self.sources.pop(name, None)
        self.sources[name] = None
        forgotten = max(0, len(self.sources) - limit)
        for other in list(self.sources)[:forgotten]:
            del self.sources[other]
        return name, new, forgotten

    @property
    def patience(self) -> int:
        # The shorter of two: one long pause between steps says nothing about the pace.
        return max(_PATIENCE, _PATIENCE_STEPS * min(self.intervals))

    def leads(self, name: str, new: bool, observation: Observation) -> bool:
        time = observation.time
        if not self.reigns:
            self.reigns.append(Reign(0, name, observation.rank, time))
        index = max((at for at, reign in enumerate(self.reigns) if reign.since <= time), default=0)
        reign = self.reigns[index]
        if reign.who != name:
            silent = time - reign.last > self.patience
            if index + 1 < len(self.reigns):
                after = self.reigns[index + 1]
                if after.who != name or not silent:
                    return False
                after.since = time  # its first lines come after its later ones
                reign = after
            elif silent or self._better(reign, new, observation):
                reign = Reign(time, name, observation.rank, time)
                self.reigns.append(reign)
                del self.reigns[:-_REIGNS]
            else:
                return False
        reign.last = max(reign.last, time)
        return True

    def _better(self, reign: Reign, new: bool, observation: Observation) -> bool:
        if observation.rank == 0 and reign.rank:
            return True
        # A file that begins where the leader stopped: other ranks' files begin where the leader's did.
        step, last = observation.step, self.last_step
        return (
            new and step is not None and last is not None and step > last and observation.time >= reign.last
        )

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
        if self.last_step is None or time > self.last_step_time:
            if self.last_step is not None and step > self.last_step:
                self.intervals = (self.intervals[1], time - self.last_step_time)
            if step != self.last_step:
                self.last_step, self.last_step_time = step, time

    # -- bounds -------------------------------------------------------------------------------------------

    def affordable(self, count: int, time: int, limit: int) -> bool:
        minute = time // _MINUTE
        spent = self.minutes.get(minute, 0) + count
        if spent > limit:
            return False
        self.minutes[minute] = spent
        if len(self.minutes) > _MINUTES:
            del self.minutes[next(iter(self.minutes))]
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

    _PLAIN = ("last_step", "last_step_time", "names", "shown")

    def dump(self) -> dict[str, Any]:
        return {
            **{key: getattr(self, key) for key in self._PLAIN},
            "sources": list(self.sources),
            "reigns": [asdict(reign) for reign in self.reigns],
            "steps": [[step, first, said] for step, (first, said) in self.steps.items()],
            "intervals": self.intervals,
            "spreads": {node: spread.dump() for node, spread in self.spreads.items()},
            "events": self.events,
            "minutes": list(self.minutes.items()),
        }

    @classmethod
    def load(cls, value: dict[str, Any]) -> Job:
        job = cls()
        for key in cls._PLAIN:
            setattr(job, key, value[key])
        job.sources = dict.fromkeys(map(str, value["sources"]))
        job.reigns = [Reign(**reign) for reign in value["reigns"]]
        job.steps = {int(step): (int(first), list(said)) for step, first, said in value["steps"]}
        job.intervals = (int(value["intervals"][0]), int(value["intervals"][1]))
        job.spreads = {node: Spread.load(spread) for node, spread in value["spreads"].items()}
        job.events = {key: (int(count), int(last)) for key, (count, last) in value["events"].items()}
        job.minutes = {int(minute): int(count) for minute, count in value["minutes"]}
        return job
