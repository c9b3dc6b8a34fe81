"""querygate's parts that keep something: audit trail, D5's file, places, jobs (Q2, Q3, Q5, D5)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from querygate.kit import configuration

from services.querygate import config as configs
from services.querygate import jobs as jobs_module
from services.querygate.audit import Audit
from services.querygate.degraded import Degraded
from services.querygate.jobs import JobStore, run_job
from services.querygate.plan import Ask, Plan
from services.querygate.refusal import Refused
from services.querygate.slots import Slots


@pytest.fixture
def config(tmp_path: Path) -> configs.Config:
    return configs.parse(configuration(tmp_path, {}))


# -- audit


def test_a_line_is_on_the_disk_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle))
    audit = Audit(str(path))
    audit.write({"who": "a", "what": "x\n" * 5000})
    assert len(synced) == 2  # the line, and the directory that the new file stands in
    Audit(str(path)).write({"who": "b"})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["who"] for line in lines] == ["a", "b"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_renamed_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(str(path))
    audit.write({"n": 1})
    path.rename(tmp_path / "audit.1")
    audit.write({"n": 2})
    assert (path.read_text(), (tmp_path / "audit.1").read_text()) == ('{"n": 2}\n', '{"n": 1}\n')


def test_a_full_disk_is_an_error_and_cuts_no_later_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(str(tmp_path / "audit.jsonl"))
    audit.write({"n": 1})
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: real(handle, data[:4] if len(data) > 4 else data))
        with pytest.raises(OSError, match="4 of"):
            audit.write({"n": 2})
    audit.write({"n": 3})
    assert (tmp_path / "audit.jsonl").read_text().splitlines() == ['{"n": 1}', '{"n"', '{"n": 3}']


# -- D5


def test_the_file_switches_while_we_run(tmp_path: Path) -> None:
    path = tmp_path / "degraded.json"
    state = Degraded(str(path))
    assert not state.now()
    path.write_text('{"aggregated": true, "generation": 5}')
    assert state.now()
    path.write_text('{"aggregated": false, "generation": 66}')
    assert not state.now()
    path.write_text('{"aggregated": true}')
    assert state.now()
    path.unlink()
    assert not state.now()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"aggregated": 1}', "{}", "null"])
def test_a_damaged_file_changes_nothing_and_at_start_it_means_less_load(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "degraded.json"
    state = Degraded(str(path))
    assert not state.now()
    path.write_text(damage)
    assert (state.now(), state.damaged) == (False, True)
    fresh = Degraded(str(path))
    assert (fresh.now(), fresh.damaged) == (True, True)
    path.write_text('{"aggregated": false}  ')
    assert (fresh.now(), fresh.damaged) == (False, False)


# -- places


def test_places_are_bounded_by_identity_and_in_all(config: configs.Config) -> None:
    alpha = replace(config.identities["tenant/alpha"], running=2, waiting=1)
    beta = replace(config.identities["tenant/beta"], running=2, waiting=1)

    async def scene() -> None:
        slots = Slots(3, wait_seconds=1)
        entered: list[str] = []
        leave = asyncio.Event()

        async def ask(identity: configs.Identity, name: str) -> float:
            async with slots.taken(identity) as waited:
                entered.append(name)
                await leave.wait()
                return waited

        tasks = [asyncio.create_task(ask(alpha, f"a{number}")) for number in range(3)]
        await asyncio.sleep(0.05)
        assert entered == ["a0", "a1"]
        with pytest.raises(Refused, match="2 questions run and 1 wait") as refused:
            await ask(alpha, "a3")
        assert refused.value.status == 429
        tasks.append(asyncio.create_task(ask(beta, "b0")))  # the third place of all
        tasks.append(asyncio.create_task(ask(beta, "b1")))
        await asyncio.sleep(0.05)
        assert entered == ["a0", "a1", "b0"]
        leave.set()
        waited = await asyncio.gather(*tasks)
        assert sorted(entered) == ["a0", "a1", "a2", "b0", "b1"]
        assert waited[0] < 0.05 <= waited[2]
        assert slots.running.total() == slots.waiting.total() == 0

    asyncio.run(scene())


def test_who_waits_too_long_or_goes_leaves_no_place_behind(config: configs.Config) -> None:
    alpha = replace(config.identities["tenant/alpha"], running=1, waiting=4)

    async def scene() -> None:
        slots = Slots(8, wait_seconds=0)
        async with slots.taken(alpha):
            with pytest.raises(Refused, match="waited"):
                async with slots.taken(alpha):
                    pass
            slots = Slots(8, wait_seconds=60)
            async with slots.taken(alpha):
                waiter = asyncio.create_task(slots.taken(alpha).__aenter__())
                await asyncio.sleep(0.05)
                waiter.cancel()
                await asyncio.gather(waiter, return_exceptions=True)
            assert slots.running.total() == slots.waiting.total() == 0
            async with slots.taken(alpha):
                pass

    asyncio.run(scene())


# -- jobs

ASK = Ask("gpu_util", 1.0, 2.0, 1.0)


@pytest.fixture
def store(config: configs.Config) -> JobStore:
    store = JobStore(config)
    store.prepare()
    return store


def test_a_jobs_life(config: configs.Config, store: JobStore) -> None:
    alpha = config.identities["tenant/alpha"]
    job = store.add(alpha, ASK, "minute")
    assert store.get(job, alpha).state == "queued"
    with pytest.raises(Refused, match="queued"):
        store.answer(store.get(job, alpha))
    taken = store.take(job)
    assert taken is not None
    assert Ask(**json.loads(taken.ask)) == ASK
    assert store.take(job) is None  # once
    store.done(job, "hour", b"{}")
    found = store.get(job, alpha)
    assert (found.state, found.tier, found.bytes, store.answer(found)) == ("done", "hour", 2, b"{}")
    assert found.public(10)["expires"] == pytest.approx(time.time() + 10, abs=5)


def test_another_identitys_job_does_not_exist(config: configs.Config, store: JobStore) -> None:
    job = store.add(config.identities["tenant/alpha"], ASK, "minute")
    for key in ("tenant/beta", "administrator/ops"):
        with pytest.raises(Refused, match="no such job"):
            store.get(job, config.identities[key])


def test_jobs_are_bounded_by_identity(config: configs.Config, store: JobStore) -> None:
    alpha = config.identities["tenant/alpha"]
    jobs = [store.add(alpha, ASK, "minute") for _ in range(config.jobs.per_identity)]
    with pytest.raises(Refused, match="4 may"):
        store.add(alpha, ASK, "minute")
    store.add(config.identities["tenant/beta"], ASK, "minute")
    store.failed(jobs[0], Refused(422, "series", "too many"))
    store.add(alpha, ASK, "minute")
    with pytest.raises(Refused, match="too many") as refused:
        store.answer(store.get(jobs[0], alpha))
    assert refused.value.status == 422


def test_jobs_end_with_their_time(config: configs.Config, store: JobStore, tmp_path: Path) -> None:
    alpha = config.identities["tenant/alpha"]
    job = store.add(alpha, ASK, "minute")
    store.done(job, "minute", b"{}")
    stray = tmp_path / "answers/stray.json"
    stray.write_text("x")
    os.utime(stray, (1, 1))
    assert store.purge() == 0
    assert not stray.exists()
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("UPDATE job SET finished = 5")
    with pytest.raises(Refused, match="its time is over"):
        store.get(job, alpha)
    os.utime(tmp_path / f"answers/{job}.json", (1, 1))
    assert store.purge() == 1
    assert os.listdir(tmp_path / "answers") == []


def test_a_restarted_worker_says_what_it_left(config: configs.Config, store: JobStore) -> None:
    alpha = config.identities["tenant/alpha"]
    job, waiting = store.add(alpha, ASK, "minute"), store.add(alpha, ASK, "minute")
    store.take(job)
    store.interrupted()
    assert store.get(job, alpha).reason == "restart"
    assert store.get(waiting, alpha).state == "queued"


def test_a_job_is_judged_when_it_runs(
    config: configs.Config, store: JobStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What changed while it waited holds: a tenant who left, D5, a smaller bound."""
    alpha = config.identities["tenant/alpha"]
    plans: list[Plan] = []

    async def fetch(_: configs.Config, plan: Plan) -> bytes:
        plans.append(plan)
        return b"{}"

    monkeypatch.setattr(jobs_module, "_fetch", fetch)
    now = time.time()
    asked = Ask("gpu_util", now - 100 * 86400, now, 3600.0)
    job = store.add(alpha, asked, "hour")
    run_job(config, store, job)
    assert (store.get(job, alpha).state, plans[0].source, plans[0].seconds) == ("done", "hour", 50)
    (tmp_path / "degraded.json").write_text('{"aggregated": true}')
    job = store.add(alpha, asked, "hour")
    run_job(config, store, job)
    assert (store.get(job, alpha).state, store.get(job, alpha).reason) == ("failed", "range")
    job = store.add(alpha, asked, "hour")
    run_job(replace(config, identities={}), store, job)
    assert store.get(job, alpha).reason == "identity"
    assert len(plans) == 1
