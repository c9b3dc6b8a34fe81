"""The plays of a rollout, run for real over a fleet in a directory (O2, cases 13 and 14)."""

from __future__ import annotations

from pathlib import Path

import pytest
from rollout_kit import Fleet

pytestmark = pytest.mark.root

RINGS = {"n1": "canary", "n2": "early", "n3": "", "n4": ""}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, RINGS)


def test_a_good_release_passes_through_all_rings_and_then_nothing_is_left_to_do(fleet: Fleet) -> None:
    fleet.release("v2")
    assert fleet.run().returncode == 0, fleet.log
    assert set(fleet.contents().values()) == {"v2"}
    assert fleet.states() == {"canary": "passed", "early": "passed", "fleet_1": "passed"}
    assert fleet.run().returncode == 0, fleet.log
    assert "changed=0" in fleet.log
    assert "changed=1" not in fleet.log


def test_the_canary_alone_and_the_rollout_goes_on_from_there(fleet: Fleet) -> None:
    fleet.release("v2")
    assert fleet.run("canary").returncode == 0, fleet.log
    assert fleet.contents() == {"n1": "v2", "n2": "v1", "n3": "v1", "n4": "v1"}
    assert fleet.recorded == ""
    assert fleet.run().returncode == 0, fleet.log
    assert "goes on where it stopped" in fleet.log
    assert set(fleet.contents().values()) == {"v2"}
    assert '"n4": "v2"' in fleet.recorded


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("fails", "n1: apply: the change did not go through"),
        ("listens", "n1: listeners: sideband-toy.service listens on tcp 0.0.0.0:9"),
    ],
)
def test_a_bad_canary_goes_back_and_later_rings_are_untouched(fleet: Fleet, fault: str, cause: str) -> None:
    before = {name: (fleet.directory / "hosts" / name).read_bytes() for name in ("n2", "n3", "n4")}
    fleet.release("v2", {"n1": fault})
    assert fleet.run().returncode == 2, fleet.log
    assert fleet.contents() == {"n1": "v1", "n2": "v1", "n3": "v1", "n4": "v1"}
    assert {name: (fleet.directory / "hosts" / name).read_bytes() for name in before} == before
    assert fleet.states() == {"canary": "failed", "early": "waiting", "fleet_1": "waiting"}
    assert fleet.ledger["canary"]["cause"].startswith(cause)
    assert f"stopped at canary: {cause}" in fleet.log
    assert "n1 is back, byte for byte" in fleet.log
    assert fleet.recorded == ""


def test_case_13_an_unreachable_canary_is_failed_and_nothing_later_begins(fleet: Fleet) -> None:
    fleet.unreachable = {"n1"}
    fleet.release("v2")
    assert fleet.run().returncode != 0
    assert fleet.contents() == {"n1": "v1", "n2": "v1", "n3": "v1", "n4": "v1"}
    assert fleet.states() == {"canary": "failed", "early": "waiting", "fleet_1": "waiting"}
    assert fleet.ledger["canary"]["cause"].startswith("n1: reach: did not answer before the change")
    assert "Connection refused" in fleet.ledger["canary"]["cause"]


def test_case_14_one_failure_a_batch_stops_at_the_agreed_total(tmp_path: Path) -> None:
    """One budget for the whole fleet: a failed host goes back alone while the budget lasts."""
    hosts = {"n0": "canary", **{f"n{number}": "" for number in range(1, 9)}}
    fleet = Fleet(tmp_path, hosts, {"batch": "2", "failure_budget": 1})
    fleet.release("v2", {"n1": "fails", "n3": "fails"})
    assert fleet.run().returncode == 2, fleet.log
    assert fleet.states() == {"canary": "passed", "fleet_1": "passed", "fleet_2": "failed",
                              "fleet_3": "waiting", "fleet_4": "waiting"}  # fmt: skip
    contents = fleet.contents()
    assert contents == {"n0": "v2", "n1": "v1", "n2": "v2", **{f"n{number}": "v1" for number in range(3, 9)}}
    assert "2 hosts failed in this rollout, 1 may: n1, n3" in fleet.ledger["fleet_2"]["cause"]


def test_a_killed_rollout_is_finished_by_the_next_run(fleet: Fleet) -> None:
    fleet.release("v2", {"n2": "hangs"})
    fleet.kill_when(fleet.run(wait=False), "n2", "v2:hangs")
    assert fleet.states() == {"canary": "passed", "early": "applying", "fleet_1": "waiting"}
    fleet.release("v2")
    # The release that hung is another one, so what it left half done goes back first.
    assert fleet.run().returncode == 0, fleet.log
    assert set(fleet.contents().values()) == {"v2"}
    assert set(fleet.states().values()) == {"passed"}


def test_after_a_kill_a_worse_release_still_finds_the_way_back_to_the_first(fleet: Fleet) -> None:
    fleet.release("v2", {"n1": "hangs"})
    fleet.kill_when(fleet.run(wait=False), "n1", "v2:hangs")
    fleet.release("v3", {"n1": "fails"})
    assert fleet.run().returncode == 2, fleet.log
    assert set(fleet.contents().values()) == {"v1"}


def test_a_dry_run_shows_every_ring_and_writes_nothing(fleet: Fleet) -> None:
    before = {path.name: path.read_bytes() for path in (fleet.directory / "hosts").iterdir()}
    fleet.release("v2")
    assert fleet.run("rollout", "--check").returncode == 0, fleet.log
    assert {path.name: path.read_bytes() for path in (fleet.directory / "hosts").iterdir()} == before
    assert not (fleet.directory / ".sideband").exists()
    assert fleet.log.count("changed: [") == len(RINGS)


def test_a_limit_is_refused(fleet: Fleet) -> None:
    fleet.release("v2")
    assert fleet.run("rollout", "--limit", "n1,localhost").returncode == 2
    assert "--limit is not for rollouts" in fleet.log
    assert set(fleet.contents().values()) == {"v1"}
