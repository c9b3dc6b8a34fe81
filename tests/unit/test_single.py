"""One machine (O3): what it may play, planes that never leave it, and what is said where it does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from contract_kit import change, load, single, spelling
from sideband.check import check_site
from sideband.contract import compile_site
from sideband.links import planes_fragment

ALL = ["node", "rack", "region", "lake", "gateway", "alerts"]
CASES: list[dict[str, Any]] = load(Path(__file__).with_name("goldens_single.yml"))
# What roles read and no noun is: here only that they are known.
KNOWN = ("sideband_mirror_url",)


def errors_of(case: dict[str, Any]) -> list[str]:
    hostvars, groups = change(*single(case.get("components", ALL)), case)
    return [str(error) for error in check_site(hostvars, groups, KNOWN, spelling, served=True)]


@pytest.mark.parametrize("components", [ALL, ALL[:5], ALL[:4], list(reversed(ALL)), [*ALL, "archive"]])
def test_the_contract_holds(components: list[str]) -> None:
    assert errors_of({"components": components}) == []


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_error(case: dict[str, Any]) -> None:
    assert errors_of(case) == case["errors"]
    for line in case["errors"]:
        assert "; " in line
        assert len(line) <= 240


def test_every_plane_answers_on_loopback_and_nothing_is_hooked_shaped_or_linked() -> None:
    model = compile_site(*single(ALL))
    host = model["hosts"]["machine1"]
    places = {name: (part["device"], part["cidr4"]) for name, part in host["interfaces"].items()}
    assert places == {
        "edge": ("lo", "127.21.0.1/24"),
        "core": ("lo", "127.30.0.1/24"),
        "query": ("lo", "127.40.0.1/24"),
    }
    assert not any(part["managed"] or part["ipv6"] for part in host["interfaces"].values())
    assert (host["ruleset"], host["counters"], host["shapes"]) == ("", [], [])
    fragment = planes_fragment(host, {"/opt/sideband/planes/watch": "#!/bin/sh\n"}, 40, [])
    assert not {"network", "nftables", "shapes", "units"} & set(fragment)
    assert fragment["files"] == []


def test_the_machine_reaches_itself_by_every_hop() -> None:
    host = compile_site(*single(ALL))["hosts"]["machine1"]
    reached = {name: [end["authority"] for end in ends] for name, ends in host["reaches"].items()}
    assert reached == {
        "push": ["127.21.0.1:8427"],
        "relay": ["127.30.0.1:8428"],
        "store": ["127.30.0.1:8429"],
        "ask": ["127.30.0.1:8430"],
        "notify": ["127.30.0.1:8445"],
    }
    peers = {name: [peer["host"] for peer in part["peers"]] for name, part in host["serves"].items()}
    assert peers == {**{name: ["machine1"] for name in reached}, "query": []}
    assert host["serves"]["query"]["listen4"] == "127.40.0.1:8443"


def test_without_a_gateway_nobody_asks_and_nothing_answers() -> None:
    host = compile_site(*single(ALL[:4]))["hosts"]["machine1"]
    assert sorted(host["serves"]) == sorted(host["reaches"]) == ["push", "relay", "store"]
