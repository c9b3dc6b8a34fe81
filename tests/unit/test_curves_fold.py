"""Every step once, with its own time, whatever comes twice, late or from several ranks (C11)."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from curves_kit import SECOND, START, named, observation, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from services.curves.fold import Fold, Limits
from services.curves.samples import Observation, Sample
from services.curves.spread import LINES, TAKEN, Seen, Spread


def run(observations: list[Observation], fold: Fold | None = None) -> list[Sample]:
    fold = fold or Fold(Limits())
    return [sample for one in observations for sample in fold.feed(one)]


def steps(samples: list[Sample]) -> list[int]:
    return [int(sample.value) for sample in samples if sample.name == "sideband_train_step"]


def every(seconds: float, numbers: range, start: int = START, **more: object) -> list[Observation]:
    return [
        observation(start + int(index * seconds * SECOND), step, **more)  # type: ignore[arg-type]
        for index, step in enumerate(numbers)
    ]


# -- one file ---------------------------------------------------------------------------------------------


def test_a_line_becomes_a_sample_and_its_step_at_the_line_s_own_time() -> None:
    assert texts(run([observation(START + 1234, 12, values={"loss": 2.5, "validation/acc": 0.5})])) == [
        'sideband_train_loss{job="7",tenant="alpha",node="node1"} 2.5 1780000000001\n',
        'sideband_train_validation{job="7",tenant="alpha",node="node1",name="acc"} 0.5 1780000000001\n',
        'sideband_train_step{job="7",tenant="alpha",node="node1"} 12 1780000000001\n',
    ]


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "NaN"), (float("-inf"), "-Inf")])
def test_a_loss_that_is_no_number_is_kept_and_said(value: float, text: str) -> None:
    lines = texts(run([observation(START, 1, values={"loss": value})]))
    assert lines[0].split()[1] == text
    assert named(lines, "sideband_train_loss_nonfinite") == [(1.0, START // 1000)]


def test_lines_of_the_same_millisecond_are_spread_in_their_order() -> None:
    samples = run([observation(START + index, index) for index in range(300)])
    assert [one.millisecond for one in samples if one.name == "sideband_train_loss"] == [
        START // 1000 + index for index in range(300)
    ]


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.sampled_from([0, 100, 1000, 5000, 2_000_000]),
    st.sampled_from([0, 5, 300]),
    st.dictionaries(st.integers(0, 299), st.integers(1, 300), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_any_order_and_any_replay_give_every_step_once_at_its_time(
    seed: int, length: int, pace: int, mixed: int, replays: dict[int, int]
) -> None:
    chance = random.Random(seed)
    stream = [observation(START + index * pace, index, key=f"{index:016x}") for index in range(length)]
    # rsyslog's queues hand out what they hold in memory and on disk side by side.
    stream.sort(key=lambda one: (one.step or 0) + chance.uniform(0, mixed))
    again: list[Observation] = []
    for index, one in enumerate(stream):
        again.append(one)
        if index in replays:
            again += stream[max(0, index + 1 - replays[index]) : index + 1]
    once, twice = texts(run(stream)), texts(run(again))
    assert twice == once
    # No two samples of a series share a time.
    assert max(Counter(line.rsplit(" ", 2)[0] + line.rsplit(" ", 1)[1] for line in once).values()) == 1
    assert steps(run(stream)) == [one.step for one in stream]
    late = max(
        one.millisecond - (START + int(one.value) * pace) // 1000
        for one in run(stream)
        if one.name.endswith("step")
    )
    assert 0 <= late <= (0 if pace >= 1000 else length)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=400), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_a_state_that_is_written_and_read_goes_on_the_same(moves: list[int], cut: int) -> None:
    stream = [observation(START + sum(moves[:index]), index) for index in range(len(moves))]
    stream.insert(len(stream) // 2, observation(START, None, values={}, events=("timeout",)))
    stream.insert(len(stream) // 3, observation(START, None))
    before, after = Fold(Limits()), Fold(Limits())
    samples = run(stream[:cut], before)
    after.restore(json.loads(json.dumps(before.dump())))
    assert run(stream[:cut], after) == []
    assert texts(samples + run(stream[cut:], after)) == texts(run(stream))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=400))
@settings(max_examples=100, deadline=None)
def test_a_millisecond_is_given_once_and_never_an_earlier_one(wanted: list[int]) -> None:
    spread = Spread()
    given_out = [spread.take(one) for one in wanted]
    assert len(set(given_out)) == len(wanted)
    assert all(got >= one for got, one in zip(given_out, wanted))
    assert len(spread.dump()) <= TAKEN


def test_a_clock_that_steps_back_loses_nothing() -> None:
    ahead = every(1, range(1, 31))
    back = every(1, range(31, 61), start=START + 5 * SECOND)
    assert steps(run(ahead + back)) == list(range(1, 61))


def test_what_a_node_reads_again_and_stamps_anew_counts_once() -> None:
    def stream(start: int, name: str = "") -> list[Observation]:  # a key of the place, without the time
        return [observation(start + step * SECOND, step, key=f"{name}{step:016x}") for step in range(1, 101)]

    read_again, started_over = stream(START + 600 * SECOND)[50:], stream(START + 600 * SECOND, "emptied")
    assert steps(run(stream(START) + read_again)) == list(range(1, 101))
    assert steps(run(stream(START) + started_over)) == 2 * list(range(1, 101))


def test_a_file_that_goes_on_where_another_stopped_takes_over_at_once() -> None:
    stream = every(1, range(1, 31)) + every(1, range(31, 61), START + 30 * SECOND, source="a.log.1")
    assert steps(run(stream)) == list(range(1, 61))


# -- resumed from a checkpoint ----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["a.log", "b.log"])
@pytest.mark.parametrize("node", ["node1", "node2"])
@pytest.mark.parametrize("first", [1, 95, 101])
def test_a_job_that_is_resumed_is_recorded_again(source: str, node: str, first: int) -> None:
    stream = every(1, range(1, 101))
    resumed = every(1, range(first, first + 60), START + 160 * SECOND, source=source, node=node)
    assert steps(run(stream + resumed)) == [*range(1, 101), *range(first, first + 60)]


def test_the_first_lines_of_a_resumed_job_may_come_after_its_later_ones() -> None:
    stream = every(1, range(1, 101))
    resumed = every(1, range(90, 150), START + 160 * SECOND, source="b.log", node="node2")
    arrived = stream[:50] + resumed[30:] + stream[50:] + resumed[:30]
    assert Counter(steps(run(arrived))) == Counter([*range(1, 101), *range(90, 150)])


def test_a_spool_that_comes_after_the_job_was_resumed_elsewhere_is_recorded() -> None:
    stream = every(1, range(1, 101))
    resumed = every(1, range(90, 150), START + 160 * SECOND, source="b.log", node="node2")
    found = run(stream[:60] + resumed + stream[60:])
    assert Counter(steps(found)) == Counter([*range(1, 101), *range(90, 150)])
    late = [one for one in found if one.name == "sideband_train_step" and one.value == 80]
    assert [one.millisecond for one in late] == [START // 1000 + 79_000]


# -- several ranks ----------------------------------------------------------------------------------------


def test_ranks_that_write_into_one_file_count_once() -> None:
    stream = [
        observation(START + step * SECOND + rank, step, key=f"{step}-{rank}")
        for step in range(1, 50)
        for rank in range(4)
    ]
    stream[4:12] = [stream[4], stream[8], stream[5], stream[9], stream[6], stream[7], stream[10], stream[11]]
    fold = Fold(Limits())
    assert steps(run(stream, fold)) == list(range(1, 50))
    assert steps(run(stream, fold)) == []


def test_another_quantity_of_the_same_step_is_recorded() -> None:
    found = run([observation(START, 5), observation(START + 10, 5, values={"learning_rate": 0.1})])
    assert [one.name for one in found] == [
        "sideband_train_loss", "sideband_train_step", "sideband_train_learning_rate", "sideband_train_step",
    ]  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 40), st.sampled_from([0.2, 1.0, 30.0]))
@settings(max_examples=150, deadline=None)
def test_files_of_several_ranks_make_one_curve_in_whatever_order_they_arrive(
    seed: int, ranks: int, length: int, seconds: float
) -> None:
    chance = random.Random(seed)
    apart = int(min(seconds * 0.9, 5) * SECOND)  # ranks wait for one another in every step
    files = [
        [
            observation(
                START + int(step * seconds * SECOND) + chance.randrange(apart),
                step,
                source="rank.log",
                node=f"node{rank}",
            )
            for step in range(1, length + 1)
        ]
        for rank in range(ranks)
    ]
    arrived = []
    while any(files):
        file = chance.choice([file for file in files if file])
        for _ in range(chance.choice([1, 1, 2, 30])):  # an outage: then many at once
            if file:
                arrived.append(file.pop(0))
    assert sorted(steps(run(arrived))) == list(range(1, length + 1))


def test_rank_0_is_preferred_where_lines_name_their_rank() -> None:
    stream = []
    for step in range(1, 10):
        for rank in (3, 0):
            source, values = f"a.log#{rank}", {"loss": rank + 0.5}
            stream.append(observation(START + step * SECOND + rank, step, source, rank=rank, values=values))
    found = [one.value for one in run(stream) if one.name == "sideband_train_loss"]
    assert found == [3.5] + [0.5] * 8


def test_a_second_run_in_the_same_job_does_not_mix_into_the_first() -> None:
    first, second = (
        every(1, range(500, 540)),
        every(1, range(1, 40), source="b.log", start=START + SECOND // 2),
    )
    fold = Fold(Limits())
    mixed = [one for pair in zip(first, second) for one in pair]
    assert steps(run(mixed, fold)) == list(range(500, 539))
    assert fold.skipped["other_rank"] == 39


# -- scores that stay on the line -------------------------------------------------------------------------


def test_a_score_that_a_bar_goes_on_showing_is_recorded_when_it_changes() -> None:
    shown = ("validation/val_loss",)
    scores = [0.9, 0.9, 0.8, 0.8, 0.9]
    stream = [
        observation(START + step * SECOND, step, values={"validation/val_loss": score}, shown=shown)
        for step, score in enumerate(scores)
    ]
    found = [one.value for one in run(stream) if one.name == "sideband_train_validation"]
    assert found == [0.9, 0.8, 0.9]


# -- events -----------------------------------------------------------------------------------------------


def test_events_are_counted_by_kind_and_node_and_a_rate_sees_the_first() -> None:
    stream = [
        observation(START + index, None, values={}, events=("timeout",), node=node, key=str(index))
        for index, node in enumerate(["node1", "node2", "node1"])
    ]
    fold = Fold(Limits())
    lines = texts(run(stream, fold))
    at = START // 1000
    first = [line for line in lines if 'node="node1"' in line]
    assert first[0].startswith(
        'sideband_nccl_events_total{job="7",tenant="alpha",node="node1",kind="timeout"}'
    )
    assert named(first, "sideband_nccl_events_total") == [(0, at - 1), (1, at), (1, at + 1), (2, at + 2)]
    assert run(stream, fold) == []


# -- bounds -----------------------------------------------------------------------------------------------


def test_jobs_beyond_the_bound_are_forgotten_the_least_recent_first() -> None:
    fold = Fold(Limits(jobs=2))
    for index, job in enumerate(("1", "2", "1", "3")):
        fold.feed(observation(START + index, 1, job=job))
    assert sorted(fold.jobs) == ["1", "3"]
    assert fold.dropped["job_evicted"] == 1


def test_files_beyond_the_bound_are_forgotten_but_not_the_leader() -> None:
    fold = Fold(Limits(sources=4))
    stream = [
        observation(START + step * SECOND + file, step, source=f"{file}.log")
        for step in range(1, 20)
        for file in range(10)
    ]
    assert steps(run(stream, fold)) == list(range(1, 20))
    assert len(fold.jobs["7"].sources) <= 4
    assert fold.dropped["source_evicted"] > 0
    assert steps(run(stream, fold)) == []


def test_names_of_scores_are_bounded_and_the_rest_is_counted() -> None:
    fold = Fold(Limits(validation_names=3))
    for step in range(10):
        fold.feed(observation(START + step * SECOND, step, values={f"validation/n{step}": 1.0, "loss": 1.0}))
    assert len(fold.jobs["7"].names) == 3
    assert fold.dropped["validation_names"] == 7


def test_a_job_s_rate_is_bounded_and_the_rest_is_counted() -> None:
    fold = Fold(Limits(samples_per_minute=100))
    stream = [observation(START + step, step) for step in range(1000)]
    assert len(run(stream, fold)) == 100
    assert fold.dropped["rate"] == 2 * 950
    assert run(stream[:50], fold) == []
    assert (
        len(run([observation(START + 60 * SECOND + step, 2000 + step) for step in range(1000)], fold)) == 100
    )
    assert len(run([observation(START + step, step, job="8") for step in range(10)], fold)) == 20


def test_what_comes_late_after_an_outage_is_not_fast() -> None:
    fold = Fold(Limits(samples_per_minute=200))
    stream = every(1, range(1, 3601))
    stream = stream[:600] + [one for pair in zip(stream[2100:], stream[600:2100]) for one in pair]
    assert sorted(steps(run(stream, fold))) == list(range(1, 3601))


def test_what_is_remembered_of_a_job_is_bounded() -> None:
    fold = Fold(Limits())
    sizes = []
    for block in range(4):
        run([observation(START + (block * 3000 + n) * SECOND, block * 3000 + n) for n in range(3000)], fold)
        sizes.append(len(json.dumps(fold.jobs["7"].dump())))
    assert sizes[3] < sizes[1] * 1.1


def test_what_is_remembered_of_lines_is_bounded() -> None:
    seen = Seen()
    for index in range(LINES + 100):
        seen.add(str(index))
    assert len(seen.dump()) == LINES
    assert not seen.knows("99")
    assert seen.knows("100")
