"""The compiled model: deterministic, right in both families, indifferent to odd names (cases 4, 5, 7)."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

import pytest
from contract_kit import change, lab, spelling
from sideband.check import check_site
from sideband.contract import compile_site
from sideband.model import sort_addresses
from sideband.nftables import labels

Model = dict[str, Any]


@pytest.fixture(scope="module")
def model() -> Model:
    return compile_site(*lab())


def test_the_same_contract_gives_the_same_model() -> None:
    hostvars, groups = lab()
    shuffled = {name: hostvars[name] for name in sorted(hostvars, reverse=True)}
    turned = {name: list(reversed(groups[name])) for name in sorted(groups, reverse=True)}
    assert json.dumps(compile_site(hostvars, groups)) == json.dumps(compile_site(shuffled, turned))


def test_the_model_is_plain_data(model: Model) -> None:
    assert json.loads(json.dumps(model)) == model


def test_the_digest_follows_the_contract(model: Model) -> None:
    changed = compile_site(*change(*lab(), {"set": {"all.sideband_flows.push.port": 9427}}))
    assert changed["digest"] != model["digest"]


def test_every_host_of_the_play_is_in_the_model(model: Model) -> None:
    assert set(model["hosts"]) == set(lab()[1]["all"])
    assert model["hosts"]["tor1"]["words"] == ["fabric"]
    assert model["hosts"]["tor1"]["ruleset"] == ""
    assert model["hosts"]["mgmt1"]["words"] == ["mirror", "policy"]


def test_an_interface(model: Model) -> None:
    assert model["hosts"]["node3"]["interfaces"]["edge"] == {
        "device": "edge0", "kind": "telemetry", "mode": "enforce", "vlan": 22,
        "ipv4": "10.22.0.13", "ipv4_prefix": 24, "ipv6": "fd00:5b:22::13", "ipv6_prefix": 64,
        "cidr4": "10.22.0.13/24", "cidr6": "fd00:5b:22::13/64", "mac": "", "managed": True,
    }  # fmt: skip
    assert not model["hosts"]["node3"]["interfaces"]["training"]["managed"]
    assert not model["hosts"]["node3"]["interfaces"]["management"]["managed"]


def test_a_node_reaches_its_own_rack_only(model: Model) -> None:
    assert [end["host"] for end in model["hosts"]["node3"]["reaches"]["push"]] == ["rack2"]
    assert [end["host"] for end in model["hosts"]["rack1"]["serves"]["push"]["peers"]] == ["node1", "node2"]
    assert model["hosts"]["node1"]["serves"] == {}


def test_clients_are_no_peers(model: Model) -> None:
    serves = model["hosts"]["gateway1"]["serves"]["query"]
    assert (serves["clients"], serves["peers"]) == (True, [])


def test_the_training_interface_is_never_named_in_rules_or_shapes(model: Model) -> None:
    """B7."""
    for host in model["hosts"].values():
        assert "train0" not in host["ruleset"]
        assert all(shape["device"] != "train0" for shape in host["shapes"])
        assert all(counter["device"] != "train0" for counter in host["counters"])


def test_sources_are_every_address_of_those_who_may_not_call(model: Model) -> None:
    """B3: on every plane, their management addresses too; never a node's or the management host's."""
    assert "10.90.0.21" in model["sources"]["4"]
    assert "fd00:5b:40::51" in model["sources"]["6"]
    assert not any(address.endswith((".11", ".61")) for address in model["sources"]["4"])


def test_switch_ports_follow_plane_and_rack(model: Model) -> None:
    vlans = {port["port"]: port["vlan"] for port in model["switches"]["tor1"]["ports"]}
    assert (vlans["vec1"], vlans["vec2"], vlans["vec6"], vlans["vec15"]) == (10, 21, 22, 40)
    assert model["switches"]["tor1"]["vlans"] == [10, 21, 22, 30, 40]


def test_racks(model: Model) -> None:
    assert model["racks"]["rack1"] == {"nodes": ["node1", "node2"], "receivers": ["rack1"]}


def test_levels_keep_what_they_name(model: Model) -> None:
    levels = model["ladder"]["levels"]
    full, core = re.compile(levels["full"]["keep"]), re.compile(levels["core"]["keep"])
    assert full.search("node_memory_MemFree_bytes")
    assert not full.search("xnode_memory_MemFree_bytes")
    assert core.search("node_load1")
    assert not core.search("node_load15")
    last = re.compile(levels["heartbeat"]["keep"])
    assert last.search("sideband_gpu_xid_errors_total")  # severe errors, D8
    assert not last.search("node_load1")


def test_a_lower_level_is_let_in_less(model: Model) -> None:
    """The rack's limit at a level admits its largest node and clamps a small one that stays above it."""
    limits = [model["ladder"]["levels"][name]["intake_bytes_per_second"] for name in model["ladder"]["order"]]
    assert limits == sorted(limits, reverse=True)
    assert all(limit > 0 for limit in limits)


def test_tenants_match_whole_rack_names() -> None:
    changed = change(*lab(), {"set": {"all.sideband_tenants.alpha.racks": ["rack1", "rack2"]}})
    assert compile_site(*changed)["tenants"][0]["rack_regex"] == "rack1|rack2"


# Case 4 ------------------------------------------------------------------------------------------------

SIX_ONLY = {
    "set": {
        "all.sideband_planes.core.subnets": ["2001:db8:30::/64"],
        **{
            f"{host}.sideband_addresses.core": {"ipv6": f"2001:DB8:30:0::{number}"}
            for number, host in enumerate(["rack1", "rack2", "region1", "lake1", "gateway1"], 21)
        },
        "lake1.ansible_host": "2001:db8:10::21",
    }
}


def test_ipv6_literals_are_bracketed_wherever_a_port_follows() -> None:
    """Case 4: a site with one family only; every authority parses back to its address and port."""
    changed = change(*lab(), SIX_ONLY)
    assert [str(error) for error in check_site(*changed, ("sideband_mirror_url",), spelling)] == []
    model = compile_site(*changed)
    relay = model["hosts"]["rack1"]["reaches"]["relay"][0]
    assert (relay["authority"], relay["authority6"]) == ("[2001:db8:30::23]:8428", "[2001:db8:30::23]:8428")
    serves = model["hosts"]["region1"]["serves"]["relay"]
    assert (serves["listen4"], serves["listen6"]) == ("", "[2001:db8:30::23]:8428")
    assert model["hosts"]["lake1"]["address"] == "2001:db8:10::21"
    text = json.dumps(model)
    for found in re.findall(r'"(?:authority6?|listen[46])": "([^"]+)"', text):
        host, port = re.fullmatch(r"\[?([^\]]+?)\]?:([0-9]+)", found).groups()  # type: ignore[union-attr]
        assert (":" in host) == found.startswith("[")
        assert ipaddress.ip_address(host)
        assert 0 < int(port) < 65536


def test_a_family_that_an_interface_lacks_is_refused_there() -> None:
    """Case 4: no half rule for a family without an address: all of it is another's address."""
    ruleset = compile_site(*change(*lab(), SIX_ONLY))["hosts"]["lake1"]["ruleset"]
    assert "meta protocol ip counter name core0_address drop" in ruleset
    assert "ip saddr" not in ruleset


# Case 5 ------------------------------------------------------------------------------------------------


def test_odd_names_and_ports() -> None:
    """Case 5: a hyphenated group, a name in capitals with an underscore, its address and port elsewhere, and
    a host that is known by its name alone."""
    hostvars, groups = lab()
    for old, new in (("node1", "GPU_07"), ("node2", "gpu09.example")):
        hostvars[new] = hostvars.pop(old)
        for members in groups.values():
            members[:] = [new if name == old else name for name in members]
        for port in hostvars["tor1"]["sideband_fabric_ports"].values():
            port["host"] = new if port["host"] == old else port["host"]
    hostvars["GPU_07"] |= {"ansible_host": "10.9.0.7", "ansible_port": 2222}
    del hostvars["gpu09.example"]["ansible_host"]
    groups["gpu-rack-07"] = ["GPU_07", "gpu09.example"]
    assert [str(error) for error in check_site(hostvars, groups, (), spelling)] == []
    model = compile_site(hostvars, groups)
    assert model["hosts"]["GPU_07"]["address"] == "10.9.0.7"
    assert model["hosts"]["gpu09.example"]["address"] == "gpu09.example"
    assert model["racks"]["rack1"]["nodes"] == ["GPU_07", "gpu09.example"]
    assert [end["host"] for end in model["hosts"]["rack1"]["serves"]["push"]["peers"]] == [
        "GPU_07",
        "gpu09.example",
    ]


def test_two_hosts_behind_one_address_and_two_ports_are_two_hosts() -> None:
    """Case 5: a jump or a NAT may put two hosts behind one address, told apart by the port."""
    spec = {
        "set": {
            "node1.ansible_host": "10.9.0.7",
            "node2.ansible_host": "10.9.0.7",
            "node2.ansible_port": 2222,
        }
    }
    assert check_site(*change(*lab(), spec), (), spelling) == []


def test_devices_become_names_that_nft_takes() -> None:
    """Case 5, 28: any interface name, and never one name for two."""
    names = labels(["eth0.10", "eth0_10", "eth0-10", "0ven"])
    assert len(set(names.values())) == 4
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in names.values())


# Case 7 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{}, [], "", "false", 0, None])
@pytest.mark.parametrize("noun", ["planes", "zones", "flows", "ladder", "tenants", "versions"])
def test_an_empty_or_odd_value_is_decided_by_its_shape(noun: str, value: Any) -> None:
    """Case 7: never by its truth: each either holds or is an error of its own, and nothing stumbles."""
    errors = [
        str(e) for e in check_site(*change(*lab(), {"set": {f"all.sideband_{noun}": value}}), (), spelling)
    ]
    if noun == "tenants" and value == []:
        assert errors == []
    else:
        assert any(line.startswith(f"all: sideband_{noun}") for line in errors)


@pytest.mark.parametrize("value", [{}, [], "", "false", 0, None])
@pytest.mark.parametrize("noun", ["addresses", "fabric_ports"])
def test_a_mapping_of_a_host_may_be_empty_where_it_may_be_absent(noun: str, value: Any) -> None:
    """Case 7: `{}` on a host that needs none is as good as nothing; any other kind of emptiness is said."""
    host = "tor1" if noun == "addresses" else "node1"
    spec = {"set": {f"{host}.sideband_{noun}": value}}
    errors = [str(e) for e in check_site(*change(*lab(), spec), (), spelling)]
    said = [line for line in errors if "must be a mapping" in line]
    assert len(said) == (0 if value == {} else 1)


def test_addresses_sort_by_number() -> None:
    assert sort_addresses(["10.0.0.10", "10.0.0.9", "", "10.0.0.9", "fd00::a", "fd00::9"]) == [
        "10.0.0.9", "10.0.0.10", "fd00::9", "fd00::a",
    ]  # fmt: skip
