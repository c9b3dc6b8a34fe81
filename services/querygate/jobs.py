"""Heavy questions: taken at once, answered later, from aggregated tiers only (Q3).

What is known of a job stands in one SQLite file, its answer in a file beside it; both go when its time is
over. huey, on a second SQLite file, hands jobs to the workers, which are a process of their own: a heavy
answer holds up nobody's small one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from huey import SqliteHuey

from services import durable

from .answer import Answer
from .config import Config, Identity
from .degraded import Degraded
from .plan import Ask, Plan, plan_query
from .refusal import Refused
from .stores import Stores

_TABLE = """CREATE TABLE IF NOT EXISTS job (
    id TEXT PRIMARY KEY, identity TEXT NOT NULL, state TEXT NOT NULL, ask TEXT NOT NULL, tier TEXT NOT NULL,
    created REAL NOT NULL, started REAL, finished REAL, bytes INTEGER, status INTEGER, reason TEXT, error TEXT
)"""
_COLUMNS = "id, identity, state, ask, tier, created, started, finished, bytes, status, reason, error"


@dataclass(frozen=True)
class Job:
    id: str
    identity: str
    state: str  # queued, running, done, failed
    ask: str
    tier: str
    created: float
    started: float | None
    finished: float | None
    bytes: int | None
    status: int | None
    reason: str | None
    error: str | None

    def public(self, keep_seconds: int) -> dict[str, Any]:
        names = ("id", "state", "tier", "created", "started", "finished", "bytes", "reason", "error")
        shown = {name: getattr(self, name) for name in names}
        shown["expires"] = (self.finished or self.created) + keep_seconds
        return shown


class JobStore:
    def __init__(self, config: Config) -> None:
        self._keep = config.jobs.keep_seconds
        self._most = config.jobs.per_identity
        self._most_bytes = config.jobs.keep_bytes
        self._database = os.path.join(config.state_directory, "jobs.sqlite")
        self._answers = os.path.join(config.state_directory, "answers")

    def prepare(self) -> None:
        os.makedirs(self._answers, mode=0o750, exist_ok=True)
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(_TABLE)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one piece of work, which is a transaction."""
        database = sqlite3.connect(self._database, timeout=10)
        try:
            with database:
                yield database
        finally:
            database.close()

    def add(self, identity: Identity, ask: Ask, tier: str) -> str:
        """The new job's name, which cannot be guessed. Refused where too many of this identity still wait."""
        job = secrets.token_hex(16)
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            (many,) = database.execute(
                "SELECT count(*) FROM job WHERE identity = ? AND state IN ('queued', 'running')",
                (identity.key,),
            ).fetchone()
            if many >= self._most:
                raise Refused(
                    429, "queue", f"{many} jobs wait or run, {self._most} may: ask when one is done"
                )
            database.execute(
                "INSERT INTO job (id, identity, state, ask, tier, created) VALUES (?, ?, 'queued', ?, ?, ?)",
                (job, identity.key, json.dumps(ask.record()), tier, time.time()),
            )
        return job

    def get(self, job: str, identity: Identity) -> Job:
        """An identity's own job. Another's is as absent as one that never was."""
        with self._open() as database:
            row = database.execute(f"SELECT {_COLUMNS} FROM job WHERE id = ?", (job,)).fetchone()
        found = Job(*row) if row else None
        over = found and time.time() > (found.finished or found.created) + self._keep
        if found is None or over or found.identity != identity.key:
            raise Refused(404, "job", "no such job of yours: it never was, or its time is over; ask again")
        return found

    def answer(self, job: Job) -> IO[bytes]:
        """The open file; it stays whole also where the job goes meanwhile."""
        if job.state != "done":
            said = job.error or "ask for the answer when the state is done"
            raise Refused(job.status or 404, job.reason or "job", f"the job is {job.state}: {said}")
        try:
            return open(self._path(job.id), "rb")  # whoever sends it closes it
        except OSError:
            raise Refused(404, "job", "the answer is gone: its time is over; ask again") from None

    def take(self, job: str) -> Job | None:
        """For the worker: a queued job becomes a running one, once."""
        with self._open() as database:
            changed = database.execute(
                "UPDATE job SET state = 'running', started = ? WHERE id = ? AND state = 'queued'",
                (time.time(), job),
            ).rowcount
            row = database.execute(f"SELECT {_COLUMNS} FROM job WHERE id = ?", (job,)).fetchone()
        return Job(*row) if changed and row else None

    def done(self, job: str, tier: str, answer: Answer) -> None:
        durable.write(self._path(job), answer.pieces(), mode=0o640)
        self._end(job, "done", tier, answer.size, None)

    def failed(self, job: str, problem: Refused) -> None:
        self._end(job, "failed", "", 0, problem)

    def _end(self, job: str, state: str, tier: str, size: int, problem: Refused | None) -> None:
        said = (problem.status, problem.reason, problem.text) if problem else (None, None, None)
        with self._open() as database:
            database.execute(
                "UPDATE job SET state = ?, tier = coalesce(nullif(?, ''), tier), finished = ?, bytes = ?,"
                " status = ?, reason = ?, error = ? WHERE id = ?",
                (state, tier, time.time(), size, *said, job),
            )

    def interrupted(self) -> None:
        """At a worker's start nothing runs: what says so was cut off."""
        text = "the worker was restarted while it ran: ask again"
        with self._open() as database:
            database.execute(
                "UPDATE job SET state = 'failed', finished = ?, status = 503, reason = 'restart', error = ?"
                " WHERE state = 'running'",
                (time.time(), text),
            )

    def queued(self) -> Sequence[str]:
        """Jobs that wait; at a worker's start some of them may be in nobody's queue."""
        with self._open() as database:
            return [job for (job,) in database.execute("SELECT id FROM job WHERE state = 'queued'")]

    def purge(self) -> int:
        """Rows and answers whose time is over or which are too many, and answers without a row."""
        limit = time.time() - self._keep
        with self._open() as database:
            gone = database.execute(
                "DELETE FROM job WHERE coalesce(finished, created) < ?", (limit,)
            ).rowcount
            gone += database.execute(
                "DELETE FROM job WHERE id IN (SELECT id FROM (SELECT id, sum(bytes) OVER"
                " (PARTITION BY identity ORDER BY finished DESC, id) AS total FROM job WHERE state = 'done')"
                " WHERE total > ?)",
                (self._most_bytes,),
            ).rowcount
            kept = {f"{job}.json" for (job,) in database.execute("SELECT id FROM job")}
        for name in os.listdir(self._answers):
            path = os.path.join(self._answers, name)
            with contextlib.suppress(FileNotFoundError):  # the other process purges too
                if name not in kept and os.stat(path).st_mtime < time.time() - 60:
                    os.unlink(path)
        return gone

    def counts(self) -> dict[str, int]:
        with self._open() as database:
            return dict(database.execute("SELECT state, count(*) FROM job GROUP BY state").fetchall())

    def _path(self, job: str) -> str:
        return os.path.join(self._answers, f"{job}.json")


def run_job(config: Config, jobs: JobStore, job_id: str) -> None:
    """A worker's work on one job. Judged anew: tenant, bounds and D5 as they are now, not as they were."""
    job = jobs.take(job_id)
    if job is None:
        return
    try:
        identity = config.identities.get(job.identity)
        if identity is None:
            raise Refused(403, "identity", "this certificate belongs to nobody of the site any more")
        degraded = Degraded(config.degraded_file).now()
        plan = plan_query(config, identity, Ask(**json.loads(job.ask)), time.time(), degraded, job=True)
        answer = asyncio.run(_fetch(config, plan))
        try:
            jobs.done(job_id, plan.source, answer)
        finally:
            answer.close()
    except Refused as problem:
        jobs.failed(job_id, problem)
    except Exception as error:  # the asker hears of it whatever it was; huey logs it
        jobs.failed(job_id, Refused(502, "store", f"broken off ({type(error).__name__}): ask again"))
        raise
    finally:
        jobs.purge()


async def _fetch(config: Config, plan: Plan) -> Answer:
    stores = Stores(config.tls, config.state_directory)
    try:
        return await stores.answer(plan)
    finally:
        await stores.close()


def queue(config: Config, jobs: JobStore) -> tuple[SqliteHuey, Callable[[str], Any]]:
    """huey and the function that puts a job's name into it; both ends make it alike."""
    made = SqliteHuey(
        "querygate", filename=os.path.join(config.state_directory, "queue.sqlite"), results=False
    )

    @made.task(name="run")  # type: ignore[untyped-decorator]
    def run(job_id: str) -> None:
        run_job(config, jobs, job_id)

    return made, run
