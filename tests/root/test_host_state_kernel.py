"""host_state against a real kernel, in a network namespace of its own (cases 23, 25, 32, 34)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sideband.state import recovery
from sideband.state.system import Result, StateError, System
from state_kit import FakeHost

pytestmark = pytest.mark.root

SPACE = "sbtest-state"
REAL = ("ip", "nft", "tc")
FOREIGN = "table ip nat {\n  chain DOCKER { tcp dport 80 accept; }\n  chain KUBE-SERVICES { }\n}\n"
RULES = """\
table netdev sideband {{
  counter {counter} {{ }}
  set peers {{ type ipv4_addr; elements = {{ 10.0.0.1, 10.0.0.2 }} }}
  chain ingress_edge0 {{
    type filter hook ingress device "edge0" priority 0; policy accept;
    ip saddr @peers accept
    counter name {counter} drop
  }}
  chain ingress_core0 {{
    type filter hook ingress device "core0" priority 0; policy accept;
    counter name {counter} drop
  }}
}}
"""
RATES = {
    "rate_bits_per_second": 2_000_000_000,
    "ceil_bits_per_second": 100_000_000_000,
    "quantum_bytes": 60000,
    "burst_bytes": 300000,
    "cburst_bytes": 1048576,
}


def shape(device: str) -> dict[str, Any]:
    return {
        "device": device,
        "plane": "edge",
        "default_class": 99,
        "default": RATES,
        "rate_bits_per_second": 100_000_000_000,
        "quantum_bytes": 60000,
        "burst_bytes": 1048576,
        "cburst_bytes": 1048576,
        "classes": [
            {"id": 10, "flow": "push", "dscp": "cs1", "tos": 32, **RATES},
            {"id": 11, "flow": "ask", "dscp": "af11", "tos": 40, **RATES},
        ],
    }


def fragment(counter: str = "edge0_unlisted", shapes: Sequence[str] = ("edge0",)) -> dict[str, Any]:
    return {
        "nftables": {
            "path": "/etc/sideband/sideband.nft",
            "family": "netdev",
            "table": "sideband",
            "ruleset": RULES.format(counter=counter),
        },
        "shapes": [shape(device) for device in shapes],
    }


class SpaceHost(FakeHost):
    """A played host whose links, rules and queues are a namespace's."""

    def run(self, argv: Sequence[str], stdin: str | None = None, timeout: float = 120) -> Result:
        if argv[0] in REAL:
            return System.run(self, ["ip", "netns", "exec", SPACE, *argv], stdin, timeout)
        return super().run(argv, stdin, timeout)

    def here(self, *words: str, stdin: str | None = None) -> str:
        return System.must(self, ["ip", "netns", "exec", SPACE, *words], "test", stdin).out


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SpaceHost]:
    subprocess.run(["ip", "netns", "add", SPACE], check=True)
    try:
        space = SpaceHost(tmp_path / "host")
        for device in ("edge0", "core0"):
            add_link(space, device)
        yield space
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


def add_link(host: SpaceHost, device: str) -> None:
    host.here("ip", "link", "add", device, "type", "veth", "peer", "name", f"{device}-p")


def test_rules_load_once_and_again_only_for_a_change(host: SpaceHost) -> None:
    assert host.present(fragment())["changed"]
    assert not host.present(fragment())["changed"]
    host.here("nft", "add", "rule", "netdev", "sideband", "ingress_core0", "accept")
    host.here("ip", "link", "set", "edge0", "up")  # traffic and counts are no drift
    assert host.present(fragment())["plan"] == [
        "nftables netdev sideband: load (the kernel's rules differ from those loaded)"
    ]
    assert not host.present(fragment())["changed"]


@pytest.mark.parametrize(
    "by_hand",
    [
        ["delete", "element", "netdev", "sideband", "peers", "{ 10.0.0.2 }"],
        ["flush", "chain", "netdev", "sideband", "ingress_edge0"],
        ["delete", "table", "netdev", "sideband"],
        ["add", "chain", "netdev", "sideband", "extra"],
    ],
)
def test_what_is_changed_by_hand_is_restored(host: SpaceHost, by_hand: list[str]) -> None:
    host.present(fragment())
    before = host.here("nft", "-s", "list", "ruleset")
    host.here("nft", *by_hand)
    assert host.present(fragment(), check=True)["changed"]
    host.present(fragment())
    assert host.here("nft", "-s", "list", "ruleset") == before


def test_foreign_tables_stay_byte_identical_and_renamed_parts_leave_nothing_cases_23_25(
    host: SpaceHost,
) -> None:
    host.here("nft", "-f", "-", stdin=FOREIGN)
    foreign = host.here("nft", "-a", "list", "table", "ip", "nat")
    host.present(fragment())
    host.present(fragment("renamed"))
    host.present(fragment("renamed"))
    assert host.here("nft", "-a", "list", "table", "ip", "nat") == foreign
    assert "edge0_unlisted" not in host.here("nft", "list", "ruleset")
    host.perform("absent")
    assert host.here("nft", "list", "tables") == "table ip nat\n"
    assert host.here("nft", "-a", "list", "table", "ip", "nat") == foreign


def test_rules_that_the_kernel_refuses_change_nothing(host: SpaceHost) -> None:
    host.present(fragment())
    before = host.here("nft", "-s", "list", "ruleset")
    broken = fragment()
    broken["nftables"]["ruleset"] = broken["nftables"]["ruleset"].replace("@peers", "@nowhere")
    broken["files"] = [{"path": "/etc/other", "content": ""}]
    with pytest.raises(StateError, match="nothing was changed"):
        host.present(broken)
    assert host.here("nft", "-s", "list", "ruleset") == before
    assert not (host.base / "etc/other").exists()


def test_a_missing_link_does_not_keep_the_others_bare_and_is_served_when_it_comes_case_32(
    host: SpaceHost,
) -> None:
    host.here("ip", "link", "del", "edge0")
    assert host.present(fragment())["changed"]
    assert "ingress_core0" in host.here("nft", "list", "ruleset")
    assert not host.present(fragment())["changed"]
    add_link(host, "edge0")
    assert recovery.load(host, "rack") != []
    assert "ingress_edge0" in host.here("nft", "list", "ruleset")
    assert "htb 5b:10" in host.here("tc", "class", "show", "dev", "edge0")
    assert recovery.load(host, "rack") == []
    assert not host.present(fragment())["changed"]


def test_a_link_that_is_deleted_and_made_again_gets_its_rules_and_shape_back_case_32(host: SpaceHost) -> None:
    host.present(fragment())
    rules = host.here("nft", "-s", "list", "ruleset")
    classes = host.here("tc", "-d", "class", "show", "dev", "edge0")
    host.here("ip", "link", "del", "edge0")
    add_link(host, "edge0")
    recovery.load(host, "rack")
    assert host.here("nft", "-s", "list", "ruleset") == rules
    assert host.here("tc", "-d", "class", "show", "dev", "edge0") == classes


def test_an_empty_kernel_is_filled_at_boot(host: SpaceHost) -> None:
    host.present(fragment())
    rules = host.here("nft", "-s", "list", "ruleset")
    host.here("nft", "delete", "table", "netdev", "sideband")
    host.here("tc", "qdisc", "del", "dev", "edge0", "root")
    assert len(recovery.load(host, "rack")) == 2
    assert host.here("nft", "-s", "list", "ruleset") == rules


@pytest.mark.parametrize(
    "by_hand",
    [
        [
            "class",
            "change",
            "dev",
            "edge0",
            "parent",
            "5b:1",
            "classid",
            "5b:10",
            "htb",
            "rate",
            "1gbit",
            "ceil",
            "100gbit",
        ],
        ["class", "del", "dev", "edge0", "classid", "5b:11"],
        ["qdisc", "del", "dev", "edge0", "root"],
        [
            "filter",
            "add",
            "dev",
            "edge0",
            "parent",
            "5b:",
            "protocol",
            "ip",
            "prio",
            "99",
            "u32",
            "match",
            "ip",
            "tos",
            "0x80",
            "0xfc",
            "flowid",
            "5b:10",
        ],
    ],
)
def test_a_tree_that_is_changed_by_hand_is_restored_case_34(host: SpaceHost, by_hand: list[str]) -> None:
    host.present(fragment())
    assert not host.present(fragment())["changed"]
    if by_hand[:2] == ["class", "del"]:
        host.here("tc", "filter", "del", "dev", "edge0", "parent", "5b:")
    host.here("tc", *by_hand)
    assert [line.split(":")[0] for line in host.present(fragment())["plan"]] == ["shape edge0"]
    assert not host.present(fragment())["changed"]


def test_a_shape_wanted_no_more_goes_and_a_foreign_one_stays(host: SpaceHost) -> None:
    host.here("tc", "qdisc", "add", "dev", "core0", "root", "handle", "7:", "pfifo", "limit", "9")
    foreign = host.here("tc", "qdisc", "show", "dev", "core0")
    plain = host.here("tc", "qdisc", "show", "dev", "edge0")
    host.present(fragment())
    with pytest.raises(StateError, match="its root qdisc 7: is not sideband's"):
        host.present(fragment(shapes=("edge0", "core0")))
    host.perform("absent")
    assert host.here("tc", "qdisc", "show", "dev", "edge0") == plain
    assert host.here("tc", "qdisc", "show", "dev", "core0") == foreign


def test_reverted_brings_the_previous_rules_and_shapes_back(host: SpaceHost) -> None:
    host.present(fragment())
    rules, classes = (
        host.here("nft", "-s", "list", "ruleset"),
        host.here("tc", "class", "show", "dev", "edge0"),
    )
    other = fragment("other", shapes=("core0",))
    host.present(other)
    assert host.here("nft", "-s", "list", "ruleset") != rules
    host.perform("reverted")
    assert host.here("nft", "-s", "list", "ruleset") == rules
    assert host.here("tc", "class", "show", "dev", "edge0") == classes
    assert "htb" not in host.here("tc", "qdisc", "show", "dev", "core0")


def test_a_link_goes_back_to_being_down_and_bare(host: SpaceHost) -> None:
    """No network manager here: the test plays it, and the two settings that one leaves behind."""
    settings = {"ipv4/conf/edge0/promote_secondaries": "0", "ipv6/conf/edge0/accept_ra": "1"}
    for path, value in settings.items():
        place = host.base / "proc/sys/net" / path
        place.parent.mkdir(parents=True)
        place.write_text(f"{value}\n")
    host.play_networkctl = lambda words: Result(0, "", "")  # type: ignore[attr-defined]
    wanted = {
        "network": {"reload": "networkctl", "addresses": [{"device": "edge0", "address": "10.0.0.1/24"}]}
    }
    reload = host.play_networkctl  # type: ignore[attr-defined]

    def manager(words: list[str]) -> Result:
        if words == ["reload"] and "10.0.0.1" not in host.here("ip", "address", "show", "edge0"):
            host.here("ip", "address", "add", "10.0.0.1/24", "dev", "edge0")
            host.here("ip", "link", "set", "edge0", "up")
            for path, value in settings.items():
                (host.base / "proc/sys/net" / path).write_text(f"{1 - int(value)}\n")
        return reload(words)  # type: ignore[no-any-return]

    host.play_networkctl = manager  # type: ignore[attr-defined]
    host.present(wanted)
    assert not host.present(wanted)["changed"]
    host.play_networkctl = reload  # type: ignore[attr-defined]
    host.perform("absent")
    shown = host.here("ip", "address", "show", "edge0")
    assert "10.0.0.1" not in shown
    assert ",UP" not in shown
    assert {path: (host.base / "proc/sys/net" / path).read_text().strip() for path in settings} == settings
