"""querygate's parts that keep something: audit trail, D5's file, places, jobs (Q2, Q3, Q5, D5)."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from querygate.kit import configuration

from services.querygate import config as configs
from services.querygate import inbox
from services.querygate import jobs as jobs_module
from services.querygate.answer import LABEL_SETS, NAMES, Answer, Rows
from services.querygate.audit import Audit
from services.querygate.degraded import Degraded
from services.querygate.jobs import JobStore, run_job
from services.querygate.plan import Ask, Plan
from services.querygate.promql_tree import Matcher
from services.querygate.refusal import Refused
from services.querygate.slots import Slots


@pytest.fixture
def config(tmp_path: Path) -> configs.Config:
    return configs.parse(configuration(tmp_path, {}))


# -- audit


def test_a_line_is_on_the_disk_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle))
    audit = Audit(str(tmp_path), 7)
    audit.write({"who": "a", "what": "x\n" * 5000})
    (path,) = tmp_path.iterdir()
    assert len(synced) == 2  # the line, and the directory that the new file stands in
    Audit(str(tmp_path), 7).write({"who": "b"})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["who"] for line in lines] == ["a", "b"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_was_renamed_away_is_begun_anew(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path), 7)
    audit.write({"n": 1})
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "audit.1")
    audit.write({"n": 2})
    assert (path.read_text(), (tmp_path / "audit.1").read_text()) == ('{"n": 2}\n', '{"n": 1}\n')


def test_a_full_disk_is_an_error_and_cuts_no_later_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(str(tmp_path), 7)
    audit.write({"n": 1})
    (path,) = tmp_path.iterdir()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: real(handle, data[:4] if len(data) > 4 else data))
        with pytest.raises(OSError, match="4 of"):
            audit.write({"n": 2})
    audit.write({"n": 3})
    assert path.read_text().splitlines() == ['{"n": 1}', '{"n"', '{"n": 3}']


def test_a_day_is_a_file_and_old_ones_go(tmp_path: Path) -> None:
    today = datetime.datetime.now(datetime.timezone.utc).date()
    names = [f"{today - datetime.timedelta(days=days)}.jsonl" for days in (0, 7, 8, 400)]
    for name in (*names[1:], "9999-99-99.jsonl", "kept.by.hand"):
        (tmp_path / name).write_text("{}\n")
    Audit(str(tmp_path), 7).write({"n": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*names[:2], "9999-99-99.jsonl", "kept.by.hand"]
    )


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


def test_who_is_broken_off_while_it_runs_gives_its_place_to_the_next(config: configs.Config) -> None:
    alpha = replace(config.identities["tenant/alpha"], running=1, waiting=4)

    async def scene() -> None:
        slots = Slots(8, wait_seconds=60)

        async def hold() -> None:
            async with slots.taken(alpha):
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(hold()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert (slots.running[alpha.key], slots.waiting[alpha.key]) == (1, 2)
        tasks[0].cancel()
        await asyncio.sleep(0.01)
        assert (slots.running[alpha.key], slots.waiting[alpha.key]) == (1, 1)
        # The place comes and the one who waited for it goes, in the same moment.
        tasks[1].cancel()
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert slots.running.total() == slots.waiting.total() == 0

    asyncio.run(scene())


# -- jobs

ASK = Ask("gpu_util", 1.0, 2.0, 1.0)


def answer(text: bytes) -> Answer:
    made = Answer("/tmp", "application/json")
    made.write(text)
    return made


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
    store.done(job, "hour", answer(b"{}"))
    found = store.get(job, alpha)
    with store.answer(found) as file:
        assert (found.state, found.tier, found.bytes, file.read()) == ("done", "hour", 2, b"{}")
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
    store.done(job, "minute", answer(b"{}"))
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


def test_the_oldest_answers_go_where_one_asker_keeps_too_much(config: configs.Config) -> None:
    small = replace(config, jobs=replace(config.jobs, keep_bytes=10, per_identity=9))
    store = JobStore(small)
    store.prepare()
    alpha, beta = small.identities["tenant/alpha"], small.identities["tenant/beta"]
    jobs = []
    for who in (alpha, alpha, alpha, beta):
        job = store.add(who, ASK, "minute")
        store.take(job)
        store.done(job, "minute", answer(b"12345"))
        jobs.append((job, who))
    assert store.purge() == 1
    with pytest.raises(Refused, match="no such job"):
        store.get(*jobs[0])
    assert {store.get(*one).state for one in jobs[1:]} == {"done"}


def test_a_restarted_worker_says_what_it_left(config: configs.Config, store: JobStore) -> None:
    alpha = config.identities["tenant/alpha"]
    job, waiting = store.add(alpha, ASK, "minute"), store.add(alpha, ASK, "minute")
    store.take(job)
    store.interrupted()
    assert store.get(job, alpha).reason == "restart"
    assert store.get(waiting, alpha).state == "queued"
    assert store.queued() == [waiting]  # handed out again at its start


def test_a_job_is_judged_when_it_runs(
    config: configs.Config, store: JobStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What changed while it waited holds: a tenant who left, D5, a smaller bound."""
    alpha = config.identities["tenant/alpha"]
    plans: list[Plan] = []

    async def fetch(_: configs.Config, plan: Plan) -> Answer:
        plans.append(plan)
        return answer(b"{}")

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


# -- answers


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(0, 30), st.booleans())
def test_rows_are_counted_however_an_answer_is_cut(cuts: list[int], number: int, names: bool) -> None:
    row = 'a","b' if names else {"__name__": "up", "value": '"},{"', "empty": ""}
    text = json.dumps({"status": "success", "data": [row] * number}, separators=(",", ":")).encode()
    rows, at = Rows(NAMES if names else LABEL_SETS), 0
    for cut in [*cuts, len(text)]:
        rows.add(text[at : at + cut])
        at += cut
    assert rows.found == number


# -- inbox

WALL = (
    (Matcher("tenant", "=", "alpha"),),
    (Matcher("rack", "=~", "rack1|rack2"), Matcher("tenant", "=", "")),
)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ({"tenant": "alpha", "rack": "rack9"}, True),
        ({"tenant": "beta", "rack": "rack1"}, False),
        ({"tenant": "unassigned", "rack": "rack1"}, False),
        ({"rack": "rack1"}, True),
        ({"rack": "rack11"}, False),
        ({}, False),
    ],
)
def test_the_wall_holds_for_notifications(labels: dict[str, str], shown: bool) -> None:
    assert inbox.seen(WALL, labels) is shown
    assert inbox.seen(None, labels)


def alert(number: int, now: float, state: str = "firing") -> inbox.Alert:
    ended = now if state == "resolved" else None
    return inbox.Alert(f"{number:x}", 5.0, ended, state, {"alertname": "A"}, "s", "t", "inbox", now)


def test_an_alert_is_one_row_until_its_time_is_over(config: configs.Config) -> None:
    box, ops = (
        inbox.Inbox(replace(config, inbox=configs.Inbox(100, 3))),
        config.identities["administrator/ops"],
    )
    box.prepare()
    box.take([alert(1, 10.0)], 10.0)
    box.take([alert(1, 20.0, "resolved")], 20.0)
    box.take([alert(1, 30.0)], 30.0)  # late, from the other of two Alertmanagers
    (row,) = box.show(ops, {}, 31.0)
    assert (row["status"], row["ended"], row["updated"]) == ("resolved", 20.0, 20.0)
    box.take([alert(number, 40.0 + number) for number in (2, 3, 4)], 50.0)
    assert [row["fingerprint"] for row in box.show(ops, {}, 50.0)] == ["4", "3", "2"]
    assert [row["fingerprint"] for row in box.show(ops, {"limit": "1", "status": "firing"}, 50.0)] == ["4"]
    assert len(box.show(ops, {"since": "43"}, 50.0)) == 2
    with pytest.raises(Refused, match="status: one of firing, resolved"):
        box.show(ops, {"status": "open"}, 50.0)
    box.take([], 500.0)
    assert box.count() == 0


def test_what_alertmanager_sends_is_cut_to_what_is_kept() -> None:
    labels = {f"l{number:02}": "x" * 1000 for number in range(60)} | {"weird name": "y"}
    one = {"status": "firing", "fingerprint": "1", "startsAt": "2026-01-02T03:04:05+01:00", "labels": labels,
           "annotations": {"description": "温" * 3000}}  # fmt: skip
    (found,) = inbox.read(json.dumps({"version": "4", "alerts": [one]}).encode(), 1.0)
    assert (len(found.labels), len(found.labels["l00"]), len(found.attempt)) == (40, 256, 1024)
    assert found.started == 1767319445.0
