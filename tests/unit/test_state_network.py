"""The text that host_state reads and writes about rules, shapes and links (cases 25, 29, 32, 34)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from contract_kit import lab
from sideband import links
from sideband.contract import compile_site
from sideband.state import netfilter, rivals, shaping
from sideband.state.fragment import parse
from sideband.state.system import Result, StateError
from state_kit import FakeHost

RULES = """\
table netdev sideband {
  counter edge0_unlisted { }
  chain ingress_edge0 {
    type filter hook ingress device "edge0" priority 0; policy accept;
    ip saddr { 10.0.0.1, 10.0.0.2 } accept
  }
  chain ingress_core0 {
    type filter hook ingress device "core0" priority 0; policy accept;
    counter name edge0_unlisted drop
  }
}
"""
RATES = {
    "rate_bits_per_second": 10_000_000,
    "ceil_bits_per_second": 20_000_000,
    "quantum_bytes": 1514,
    "burst_bytes": 5000,
    "cburst_bytes": 10000,
}
SHAPE: dict[str, Any] = {
    "device": "edge0",
    "plane": "edge",
    "rate_bits_per_second": 20_000_000,
    "quantum_bytes": 2500,
    "burst_bytes": 10000,
    "cburst_bytes": 10000,
    "default_class": 99,
    "default": RATES,
    "classes": [{"id": 10, "flow": "push", "dscp": "cs1", "tos": 32, **RATES}],
}
# What iproute2 6.1 and 6.15 print for that tree.
CLASSES = """\
class htb 5b:10 parent 5b:1 prio 0 quantum 1514 rate 10Mbit ceil 20Mbit linklayer ethernet burst 5000b/1 mpu 0b cburst 10000b/1 mpu 0b level 0
class htb 5b:99 parent 5b:1 prio 0 quantum 1514 rate 10Mbit ceil 20Mbit linklayer ethernet burst 5000b/1mpu 0b cburst 10000b/1mpu 0b level 0
class htb 5b:1 root rate 20Mbit ceil 20Mbit linklayer ethernet burst 10000b/1 mpu 0b cburst 10000b/1 mpu 0b level 7
"""  # noqa: E501  # tc's own lines
FILTERS = """\
filter protocol ip pref 10 u32 chain 0
filter protocol ip pref 10 u32 chain 0 fh 800: ht divisor 1
filter protocol ip pref 10 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 5b:10 not_in_hw
  match 00200000/00fc0000 at 0
filter protocol ipv6 pref 11 u32 chain 0
filter protocol ipv6 pref 11 u32 chain 0 fh 801: ht divisor 1
filter protocol ipv6 pref 11 u32 chain 0 fh 801::800 order 2048 key ht 801 bkt 0 *flowid 5b:10 not_in_hw
  match 02000000/0fc00000 at 0
"""


def test_a_chain_on_an_absent_device_is_left_out_and_the_rest_stays() -> None:
    part = netfilter.present_part(RULES, ["edge0", "lo"])
    assert "ingress_edge0" in part
    assert "core0" not in part
    assert part.count("{") == part.count("}")
    assert netfilter.present_part(RULES, ["edge0", "core0"]) == RULES


def test_a_ruleset_that_is_not_self_contained_is_made_so_case_25() -> None:
    table = netfilter.NftTable("netdev", "sideband", "/x", RULES)
    text = netfilter.self_contained(table)
    assert text.startswith("add table netdev sideband\ndelete table netdev sideband\ntable netdev sideband {")
    assert netfilter.self_contained(netfilter.NftTable("netdev", "sideband", "/x", text)) == text
    told = netfilter.NftTable("netdev", "sideband", "/x", f"# not: delete table netdev sideband\n{RULES}")
    assert netfilter.self_contained(told).startswith(
        "add table netdev sideband\ndelete table netdev sideband\n"
    )


def have(classes: str = CLASSES, filters: str = FILTERS, default: str = "99") -> shaping.Tree:
    return shaping.Tree(
        "edge0", default, tuple(sorted(shaping._classes(classes).items())), shaping._filters(filters)
    )


def test_what_packets_put_into_a_set_is_no_drift() -> None:
    """Whom an observing plane saw comes and goes; the elements that somebody wrote into a set do not."""

    def listed(flags: list[str], elements: list[str]) -> str:
        found = [{"set": {"name": "x", "flags": flags, "elem": elements, "handle": 3}}]
        return json.dumps(netfilter._stable(found))

    assert listed(["timeout"], ["a"]) == listed(["timeout"], ["a", "b"])
    assert listed([], ["a"]) != listed([], ["a", "b"])


def test_a_tree_equals_what_tc_prints_of_it() -> None:
    assert shaping.same(shaping.from_model(SHAPE), have())


@pytest.mark.parametrize(
    "differing",
    [
        have(
            CLASSES.replace(
                "rate 10Mbit ceil 20Mbit linklayer ethernet burst 5000b/1 ",
                "rate 11Mbit ceil 20Mbit burst 5000b ",
            )
        ),
        have(CLASSES.replace("quantum 1514", "quantum 200000")),
        have(CLASSES.replace("cburst 10000b/1 mpu 0b level 0", "cburst 0b/1 mpu 0b level 0")),
        have("\n".join(CLASSES.splitlines()[1:])),
        have(filters="\n".join(FILTERS.splitlines()[:4])),
        have(filters=FILTERS.replace("00200000", "00280000")),
        have(filters=FILTERS.replace("flowid 5b:10", "flowid 5b:99")),
        have(default="0"),
    ],
)
def test_any_difference_is_seen(differing: shaping.Tree) -> None:
    assert not shaping.same(shaping.from_model(SHAPE), differing)


def test_every_class_gets_explicit_quantum_burst_and_cburst_case_34() -> None:
    for line in shaping.commands(shaping.from_model(SHAPE), replace=False).splitlines():
        if line.startswith("class"):
            for word in (" quantum ", " burst ", " cburst "):
                assert word in line


def test_a_foreign_root_qdisc_is_not_replaced(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "host")
    host.play_tc = lambda words: Result(0, "qdisc tbf 8001: root refcnt 2 rate 1Mbit\n", "")  # type: ignore
    with pytest.raises(StateError, match="its root qdisc 8001: is not sideband's"):
        shaping.plan(host, shaping.from_model(SHAPE))


def test_links_that_cannot_be_listed_stop_the_change(tmp_path: Path) -> None:
    """No link would mean no rule: a failing `ip` must not bare a host."""
    host = FakeHost(tmp_path / "host")
    assert netfilter.devices(host) == []  # bare: no such program
    host.play_ip = lambda words: Result(1, "", "Cannot open netlink socket")  # type: ignore[attr-defined]
    with pytest.raises(StateError, match="ended with 1: Cannot open netlink socket; no rule was touched"):
        netfilter.devices(host)


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "etc/netplan/50-cloud-init.yaml",
            "network: {version: 2, renderer: NetworkManager, ethernets: {eth0: {dhcp4: true}}}\n",
            True,
        ),
        ("etc/netplan/50-cloud-init.yaml", "network:\n  ethernets:\n    eth0:\n      dhcp4: true\n", True),
        ("etc/netplan/01.yaml", 'network:\n  ethernets:\n    all:\n      match: {name: "e*"}\n', True),
        ("etc/netplan/01.yaml", "network:\n  ethernets:\n    eth01: {dhcp4: true}\n", False),
        ("etc/NetworkManager/system-connections/x.nmconnection", "[connection]\ninterface-name=eth0\n", True),
        (
            "etc/NetworkManager/system-connections/x.nmconnection",
            "[connection]\ninterface-name=eth00\n",
            False,
        ),
        ("etc/network/interfaces", "auto eth0\niface eth0 inet dhcp\n", True),
        ("etc/network/interfaces.d/x", "iface eth1 inet dhcp\n", False),
        ("etc/systemd/network/10-x.network", "[Match]\nName=eth*\n\n[Network]\nDHCP=yes\n", True),
        (
            "etc/systemd/network/10-x.network",
            "[Match]\nMACAddress=00:00:00:00:00:01\n[Network]\nName=eth0\n",
            False,
        ),
        ("etc/sysconfig/network-scripts/ifcfg-eth0", "DEVICE=eth0\nBOOTPROTO=dhcp\n", True),
    ],
)
def test_a_second_owner_of_a_device_is_found_case_29(
    tmp_path: Path, path: str, text: str, found: bool
) -> None:
    host = FakeHost(tmp_path / "host")
    (host.base / path).parent.mkdir(parents=True, exist_ok=True)
    (host.base / path).write_text(text)
    lines = rivals.find(host, ["eth0"], set(), [])
    assert [line.startswith(f"/{path} configures eth0 too") for line in lines] == ([True] if found else [])
    assert rivals.find(host, ["eth0"], set(), [f"/{path}"]) == []
    assert rivals.find(host, ["eth0"], {f"/{path}"}, []) == []


def test_a_second_owner_stops_everything_before_the_first_write_case_29(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "host")
    (host.base / "etc/netplan").mkdir()
    (host.base / "etc/netplan/50-cloud-init.yaml").write_text("network: {ethernets: {edge0: {dhcp4: true}}}")
    fragment = {
        "files": [{"path": "/etc/systemd/network/50-sideband-edge0.network", "content": "x"}],
        "network": {"reload": "networkctl", "addresses": [{"device": "edge0", "address": "10.0.0.1/24"}]},
    }
    with pytest.raises(StateError, match=r"/etc/netplan/50-cloud-init\.yaml configures edge0 too"):
        host.present(fragment)
    assert not (host.base / "etc/systemd/network").exists()


INTERFACE = {
    "device": "edge0",
    "kind": "telemetry",
    "managed": True,
    "cidr4": "10.21.0.11/24",
    "cidr6": "fd00:5b:21::11/64",
}
TRAINING = {**INTERFACE, "device": "train0", "kind": "training", "managed": False}


def host_model(**more: Any) -> dict[str, Any]:
    return {
        "interfaces": {"edge": INTERFACE, "training": TRAINING},
        "ruleset": RULES,
        "shapes": [SHAPE],
        **more,
    }


def test_the_training_interface_is_named_nowhere_in_a_host_s_fragment() -> None:
    fragment = links.planes_fragment(host_model(), {"/opt/sideband/planes/watch": "#!/bin/sh\n"}, 40, [])
    assert "train0" not in repr(fragment)
    assert fragment["guarded"] is True


def test_what_links_rules_and_shapes_the_lab_has_is_what_host_state_reads() -> None:
    model = compile_site(*lab())
    programs = {"/opt/sideband/planes/watch": "#!/bin/sh\n"}
    wanted = [links.planes_fragment(host, programs, 40, []) for host in model["hosts"].values()]
    wanted += [links.fabric_fragment(switch, 40, []) for switch in model["switches"].values()]
    read = [parse({key: one[key] for key in one if key != "software"}, []) for one in wanted]
    assert sum(bool(one.nftables) for one in read) > 5
    assert sum(bool(one.shapes) for one in read) > 0
    assert sum(bool(one.network and one.network.vlans) for one in read) == len(model["switches"]) > 0


def test_a_host_with_nothing_to_hook_gets_no_rules_units_or_links() -> None:
    fragment = links.planes_fragment(
        {"interfaces": {"training": TRAINING}, "ruleset": "", "shapes": []}, {"/opt/x": ""}, 40, []
    )
    assert fragment["files"] == []
    assert not {"units", "network", "nftables", "shapes"} & set(fragment)


def test_a_link_file_has_both_families_and_takes_nothing_from_the_wire() -> None:
    text = links.network_file(INTERFACE)
    for line in (
        "Name=edge0",
        "Address=10.21.0.11/24",
        "Address=fd00:5b:21::11/64",
        "IPv6AcceptRA=no",
        "DHCP=no",
    ):
        assert line in text.splitlines()


def test_a_switch_s_ports_become_access_ports_of_one_bridge() -> None:
    ports = [
        {"port": "vec1", "host": "node1", "plane": "training", "vlan": 10},
        {"port": "vec2", "host": "node1", "plane": "edge", "vlan": 21},
    ]
    fragment = links.fabric_fragment({"ports": ports, "vlans": [10, 21]}, 40, [])
    assert fragment["network"]["vlans"] == [{"port": "vec1", "vlan": 10}, {"port": "vec2", "vlan": 21}]
    assert "iface vec2\n    bridge-access 21\n" in fragment["files"][0]["content"]
    assert fragment["directories"] == [{"path": "/etc/iproute2/rt_tables.d", "mode": "0755"}]
