"""Rings over an inventory's groups, and the steps that a rollout walks (O2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sideband.ring_plays import TURN, layer_play, layers, render
from sideband.rings import BATCHES, batch_size, batches, read, step_names, steps

HOSTS = ["lake1", "node1", "node2", "node3", "rack1"]
RACKS = {"node1": "r1", "node2": "r1", "node3": "r2", "rack1": "r1", "lake1": ""}


def test_a_host_in_no_ring_belongs_to_the_fleet() -> None:
    rings, errors = read(
        {"sideband_ring_canary": ["node1"], "sideband_ring_early": ["node2"], "all": HOSTS}, HOSTS
    )
    assert not errors
    assert [(ring.name, ring.hosts) for ring in rings] == [
        ("canary", ("node1",)),
        ("early", ("node2",)),
        ("fleet", ("lake1", "node3", "rack1")),
    ]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            {"sideband_ring_canary": ["node1"], "sideband_ring_early": ["node1"]},
            "node1: sideband_ring_early: is in ring canary already; a host belongs to one ring",
        ),
        (
            {"sideband_ring_canary": ["user1"]},
            "user1: sideband_ring_canary: no sideband host; "
            "put it into a sideband_<word> group, or out of the ring",
        ),
        (
            {"sideband_ring_canary": ["node1"], "sideband_ring_earli": ["node2"]},
            "all: sideband_ring_earli: unknown ring (got 'earli'); did you mean sideband_ring_early?",
        ),
        ({}, "all: sideband_ring_canary: has no host; name the hosts that a change reaches first"),
    ],
)
def test_faults_of_rings_are_named(groups: dict[str, Any], said: str) -> None:
    _, errors = read(groups, HOSTS)
    assert [str(error) for error in errors] == [said]


def test_a_batch_is_a_share_or_a_number() -> None:
    assert [batch_size(text, 10) for text in ("25%", "1%", "100%", "4")] == [3, 1, 10, 4]


def test_a_rack_is_never_split_and_what_racks_stand_on_goes_first() -> None:
    assert batches(HOSTS, RACKS, 2) == [("lake1",), ("node1", "node2", "rack1"), ("node3",)]


def test_more_batches_than_plays_is_an_error_with_its_number() -> None:
    hosts = [f"node{number:02}" for number in range(20)]
    rings, _ = read({"sideband_ring_canary": ["node00"]}, hosts)
    _, errors = steps(rings, {}, "1")
    assert str(errors[0]) == (
        "all: sideband_rollout.batch: makes 19 batches of the fleet's 19 hosts, and there may be 10 "
        "(got '1'); "
        "take a larger batch"
    )


def test_steps_have_names_that_the_play_knows() -> None:
    rings, _ = read({"sideband_ring_canary": ["node1"]}, HOSTS)
    found, errors = steps(rings, RACKS, "50%")
    assert not errors
    assert [step.name for step in found] == ["canary", "fleet_1", "fleet_2", "fleet_3"]
    assert {step.name for step in found} <= set(step_names())
    assert len(step_names()) == BATCHES + 2


@given(
    st.dictionaries(
        st.sampled_from([f"h{n}" for n in range(30)]), st.sampled_from(["", "r1", "r2", "r3"]), min_size=1
    ),
    st.integers(1, 40),
)
def test_batches_hold_every_host_once_and_whole_racks(racks: dict[str, str], size: int) -> None:
    made = batches(sorted(racks), racks, size)
    assert sorted(host for batch in made for host in batch) == sorted(racks)
    for rack in {rack for rack in racks.values() if rack}:
        assert sum(any(racks[host] == rack for host in batch) for batch in made) == 1
    largest = max([list(racks.values()).count(rack) for rack in {"r1", "r2", "r3"}] + [1])
    assert all(len(batch) <= max(size, largest) for batch in made)


# playbooks/ring.yml

PLAYS = Path(__file__).resolve().parent.parent.parent / "playbooks"


def test_ring_yml_is_what_site_yml_says() -> None:
    """A rollout does what the site's own layers do, and nothing else; `tools/rings` prints it anew."""
    assert (PLAYS / "ring.yml").read_text(encoding="utf-8") == render(PLAYS)


def test_rollout_yml_has_a_play_for_every_step() -> None:
    text = (PLAYS / "rollout.yml").read_text(encoding="utf-8")
    assert [line.split(": ")[1] for line in text.splitlines() if "sideband_rollout_step" in line] == list(
        step_names()
    )


def test_every_layer_is_cut_down_to_the_step_and_has_the_stand_in() -> None:
    for play in layers(PLAYS):
        made = layer_play(play)
        assert made["hosts"][-2:] == ["sideband_stand_in", f"&{TURN}"]
        assert made["pre_tasks"][0]["ansible.builtin.meta"] == "end_host"
        assert made.get("roles") == play.get("roles")
        assert made.get("tasks") == play.get("tasks")
        assert made["pre_tasks"][1:] == play.get("pre_tasks", [])


ROOT = Path(__file__).resolve().parent.parent.parent


def test_site_looks_at_the_world_before_its_first_change_and_a_ring_does_not_look_again() -> None:
    site = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    books = [entry["ansible.builtin.import_playbook"] for entry in site]
    assert books[:3] == ["contract.yml", "preflight.yml", "mirror.yml"]
    assert site[1]["vars"] == {"sideband_rollout_whole_world": False}
    assert "world" not in (ROOT / "playbooks/ring.yml").read_text()
    for book in ("rollout.yml", "canary.yml"):
        entries = yaml.safe_load((ROOT / "playbooks" / book).read_text())
        looks = [
            entry for entry in entries if entry.get("ansible.builtin.import_playbook") == "preflight.yml"
        ]
        assert len(looks) == 1
        assert "sideband_rollout_whole_world" not in looks[0].get("vars", {})
