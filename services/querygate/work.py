"""Working on jobs, a process of its own."""

from __future__ import annotations

from huey import crontab

from .config import Config
from .jobs import JobStore, queue


def work(config: Config) -> None:
    jobs = JobStore(config)
    jobs.prepare()
    jobs.interrupted()
    made, enqueue = queue(config, jobs)
    for job in jobs.queued():
        enqueue(job)  # twice does no harm: a job is taken once

    @made.periodic_task(crontab(minute="*/5"))  # type: ignore[untyped-decorator]
    def purge() -> None:
        jobs.purge()

    made.create_consumer(
        workers=config.jobs.workers, worker_type="thread", initial_delay=0.1, max_delay=1.0
    ).run()
