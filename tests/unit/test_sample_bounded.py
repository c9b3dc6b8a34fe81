"""Calls that may never return: the others go on, nothing piles up, no late answer is taken for a new one."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from services.nodeagent.bounded import Bounded, Hung


def never(hung: object, other: object) -> bool:
    return False


class Stuck:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        self.gate.wait(30)
        return "late"


def test_values_and_errors_come_back_in_order() -> None:
    def fail() -> None:
        raise KeyError("x")

    order: list[str] = []
    calls: list[Any] = [
        ("a", lambda: order.append("a") or 1),
        ("b", fail),
        ("c", lambda: order.append("c") or 3),
    ]
    found = Bounded().run(calls, 5, never)
    assert (found["a"], found["c"], order) == (1, 3, ["a", "c"])
    assert isinstance(found["b"], KeyError)
    assert Bounded().run([], 5, never) == {}


def test_one_that_hangs_takes_no_other_along() -> None:
    bounded, stuck = Bounded(), Stuck()
    asked: list[int] = []
    try:
        started = time.monotonic()
        found = bounded.run(
            [("a", lambda: 1), ("b", stuck), ("c", lambda: asked.append(1) or 3)], 0.05, never
        )
        assert time.monotonic() - started < 5
        assert (found["a"], found["c"]) == (1, 3)
        assert isinstance(found["b"], Hung)
        assert bounded.hung() == ["b"]
    finally:
        stuck.gate.set()
    deadline = time.monotonic() + 10
    while bounded.hung() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert asked == [1]  # the thread that was given up does not go on with the rest


def test_what_hangs_is_not_asked_again_until_it_has_returned() -> None:
    bounded, stuck = Bounded(), Stuck()
    try:
        for _ in range(5):
            started = time.monotonic()
            assert isinstance(bounded.run([("b", stuck)], 0.05, never)["b"], Hung)
        assert time.monotonic() - started < 0.04  # the second time costs no wait
        assert stuck.asked == 1
        assert threading.active_count() <= 2 + sum("pytest" in one.name for one in threading.enumerate())
    finally:
        stuck.gate.set()
    deadline = time.monotonic() + 10
    while bounded.hung() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert bounded.hung() == []
    assert bounded.run([("b", stuck)], 5, never) == {"b": "late"}
    assert stuck.asked == 2


def test_all_together_hold_a_fixed_number_of_threads() -> None:
    bounded, stuck = Bounded(most_hung=3), Stuck()
    try:
        found = bounded.run([(number, stuck) for number in range(10)], 0.02, never)
        assert all(isinstance(one, Hung) for one in found.values())
        assert stuck.asked == 3
        assert isinstance(bounded.run([("well", lambda: 1)], 5, never)["well"], Hung)
    finally:
        stuck.gate.set()


def test_a_hung_call_may_stand_for_its_neighbours() -> None:
    bounded, stuck, asked = Bounded(), Stuck(), []
    calls: list[Any] = [((0, "a"), stuck), ((0, "b"), lambda: asked.append("b")), ((1, "a"), lambda: "well")]
    try:
        found = bounded.run(calls, 0.05, lambda hung, other: hung[0] == other[0])  # type: ignore[index]
        assert isinstance(found[0, "b"], Hung)
        assert found[1, "a"] == "well"
        assert asked == []
    finally:
        stuck.gate.set()


def test_ask_raises_what_the_call_raised() -> None:
    bounded, stuck = Bounded(), Stuck()
    with pytest.raises(ZeroDivisionError):
        bounded.ask("x", lambda: 1 // 0, 5)
    try:
        with pytest.raises(Hung):
            bounded.ask("y", stuck, 0.02)
    finally:
        stuck.gate.set()


def test_slow_but_steady_is_not_hung() -> None:
    """The deadline is each call's, not the walk's."""
    calls = [(number, lambda: time.sleep(0.05)) for number in range(8)]
    found = Bounded().run(calls, 0.2, never)
    assert not any(isinstance(one, Hung) for one in found.values())
