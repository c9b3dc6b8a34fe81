"""From observations to samples: a pure fold, so that what is read back from disk gives the same again."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass
from typing import Any

from services.curves.job import Job
from services.curves.samples import Observation, Sample
from services.curves.spread import Seen


@dataclass(frozen=True)
class Limits:
    """What one rack spends at most; beyond it is dropped and counted."""

    jobs: int = 256
    sources: int = 64  # of one job: files and streams that are told apart
    validation_names: int = 32  # of one job
    samples_per_minute: int = 30_000  # of one job, by the lines' own time: what comes late was not fast
    line_bytes: int = 131_072
    queue_bytes: int = 8_388_608  # that wait for vmagent; then rsyslog's queue on disk keeps the rest


_REASONS = ("job_evicted", "rate", "refused", "source_evicted", "state_damaged", "validation_names")


class Fold:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.jobs: dict[str, Job] = {}  # the least recent first
        self.seen = Seen()
        self.dropped = collections.Counter(dict.fromkeys(_REASONS, 0))
        self.skipped: collections.Counter[str] = collections.Counter()  # on purpose; not kept

    def replayed(self, observation: Observation) -> bool:
        """Whether this very line has been taken before."""
        if not self.seen.knows(observation.key):
            return False
        self.skipped["replayed"] += 1
        return True

    def feed(self, observation: Observation) -> list[Sample]:
        if self.replayed(observation):
            return []
        job = self._job(observation.job)
        name, new, forgotten = job.source(observation, self._limits.sources)
        self.dropped["source_evicted"] += forgotten
        samples = [one for kind in observation.events for one in self._event(job, observation, kind)]
        leads = bool(observation.values) and job.leads(name, new, observation)
        if leads:
            samples += self._curve(job, observation)
        elif observation.values:
            self.skipped["other_rank"] += 1
        if leads or observation.events:  # other lines yield nothing, however often they come
            self.seen.add(observation.key)
        return samples

    def _job(self, name: str) -> Job:
        job = self.jobs.pop(name, None) or Job()
        self.jobs[name] = job
        while len(self.jobs) > self._limits.jobs:
            del self.jobs[next(iter(self.jobs))]
            self.dropped["job_evicted"] += 1
        return job

    def _afford(self, job: Job, count: int, time: int) -> bool:
        if job.affordable(count, time, self._limits.samples_per_minute):
            return True
        self.dropped["rate"] += count
        return False

    def _event(self, job: Job, observation: Observation, kind: str) -> list[Sample]:
        value, last = job.count(observation.node, kind, observation.time)
        if not self._afford(job, 2, observation.time):
            return []  # it is counted, and the next sample says so
        labels = (*_labels(observation), ("kind", kind))
        return [
            Sample("sideband_nccl_events_total", labels, value - 1, last - 1),
            Sample("sideband_nccl_events_total", labels, value, last),
        ]

    def _curve(self, job: Job, observation: Observation) -> list[Sample]:
        values = job.fresh(observation)
        if not values:
            self.skipped["said_before"] += 1
            return []
        for key in [key for key in values if key.startswith("validation/") and key not in job.names]:
            if len(job.names) < self._limits.validation_names:
                job.names.append(key)
            else:
                del values[key]
                self.dropped["validation_names"] += 1
        unbounded = [key for key, value in values.items() if key == "loss" and not math.isfinite(value)]
        count = len(values) + len(unbounded) + (observation.step is not None)
        if not values or not self._afford(job, count, observation.time):
            return []
        job.note(observation, values)
        at = job.millisecond(observation.node, observation.time, self._limits.sources)
        labels = _labels(observation)
        samples = []
        for key, value in values.items():
            quantity, _, name = key.partition("/")
            more = (("name", name),) if quantity == "validation" else ()
            samples.append(Sample(f"sideband_train_{quantity}", labels + more, value, at))
        if unbounded:
            # VictoriaMetrics stores no NaN; this companion says that there was one.
            samples.append(Sample("sideband_train_loss_nonfinite", labels, 1.0, at))
        if observation.step is not None:
            samples.append(Sample("sideband_train_step", labels, observation.step, at))
        return samples

    def dump(self) -> dict[str, Any]:
        return {
            "jobs": [[name, job.dump()] for name, job in self.jobs.items()],
            "seen": self.seen.dump(),
            "dropped": dict(self.dropped),
        }

    def restore(self, value: dict[str, Any]) -> None:
        jobs = {str(name): Job.load(job) for name, job in value["jobs"]}
        seen = Seen.load(value["seen"])
        self.dropped.update({str(reason): int(count) for reason, count in value["dropped"].items()})
        self.jobs, self.seen = jobs, seen


def _labels(observation: Observation) -> tuple[tuple[str, str], ...]:
    return (("job", observation.job), ("tenant", observation.tenant), ("node", observation.node))
