"""The lab as data: lab/topology.yml is sound and tells the same as inventories/lab/."""

from __future__ import annotations

import copy
import ipaddress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.sblab import gpus, topology
from lab.sblab.say import LabError

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "inventories/lab"
DATA: dict[str, Any] = yaml.safe_load((ROOT / "lab/topology.yml").read_text())
LAB = topology.load()
# On no inventory, by design: a tenant's desk is no sideband host.
OUTSIDE = {"user1"}


def hostvars(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SITE / f"host_vars/{name}.yml").read_text())
    return found


def groups() -> dict[str, set[str]]:
    """Every group of the inventory with its hosts, those of its children included."""
    found: dict[str, set[str]] = {}

    def walk(name: str, spec: dict[str, Any] | None) -> set[str]:
        spec = spec or {}
        hosts = set(spec.get("hosts") or {})
        for child, inner in (spec.get("children") or {}).items():
            hosts |= walk(child, inner)
        found[name] = found.get(name, set()) | hosts
        return hosts

    walk("all", yaml.safe_load((SITE / "hosts.yml").read_text())["all"])
    return found


def test_the_lab_has_ten_systemd_hosts_and_one_switch() -> None:
    assert len(LAB.containers) == 10
    assert LAB.switch.name == "tor1"
    assert [h.name for h in LAB.hosts.values() if h.suite == "bookworm"] == ["node3"]
    assert list(LAB.ports) == [f"vec{number}" for number in range(1, 16)]


def test_the_inventory_has_exactly_the_hosts_of_the_topology_but_the_desk() -> None:
    assert groups()["all"] == set(LAB.hosts) - OUTSIDE
    assert not OUTSIDE & groups().get("sideband", set())


@pytest.mark.parametrize("name", sorted(set(LAB.hosts) - OUTSIDE))
def test_addresses_and_rack_agree_with_the_inventory(name: str) -> None:
    host, want = LAB.hosts[name], hostvars(name)
    assert host.address == want["ansible_host"]
    assert host.rack == want.get("sideband_rack", "")
    if host.system == "nspawn":
        mine = {
            link.plane: {
                "ipv4": str(ipaddress.ip_interface(link.ipv4).ip),
                "ipv6": str(ipaddress.ip_interface(link.ipv6).ip),
            }
            for link in host.links
        }
        assert mine == want["sideband_addresses"]


def test_every_training_node_has_gpus_of_its_own() -> None:
    with_gpus = [host for host in LAB.hosts.values() if host.gpus]
    assert {host.name for host in with_gpus} == groups()["sideband_node"]
    names = [line for host in with_gpus for line in gpus.script(host).splitlines() if " uuid " in line]
    assert len({line.split()[-1] for line in names}) == sum(host.gpus for host in with_gpus)
    log = yaml.safe_load((SITE / "group_vars/all/node.yml").read_text())["sideband_node_kernel_log"]
    assert log == f"/{gpus.KERNEL_LOG}"
    size = yaml.safe_load((SITE / "group_vars/all/budget.yml").read_text())["sideband_budget"]["nodes"][0][
        "size"
    ]
    assert {host.gpus for host in with_gpus} == {size["gpus"]}


def test_switch_ports_agree_with_the_inventory() -> None:
    want = hostvars("tor1")["sideband_fabric_ports"]
    assert {p: {"host": x.host, "plane": x.plane} for p, x in LAB.ports.items()} == want


def test_devices_agree_with_the_zones() -> None:
    zones = yaml.safe_load((SITE / "group_vars/all/zones.yml").read_text())["sideband_zones"]
    members = groups()
    want = {(host, z["plane"], z["device"]) for z in zones for host in members[z["group"]]}
    have = {
        (host.name, link.plane, link.device)
        for host in LAB.containers
        if host.name not in OUTSIDE
        for link in host.links
    }
    assert have == want


def test_addresses_lie_in_their_planes_subnets() -> None:
    planes = yaml.safe_load((SITE / "group_vars/all/planes.yml").read_text())["sideband_planes"]
    for host in LAB.hosts.values():
        for link in host.links:
            spec = planes[link.plane]
            spec = spec["per_rack"][host.rack] if "per_rack" in spec else spec
            mine = {str(ipaddress.ip_interface(cidr).network) for cidr in (link.ipv4, link.ipv6)}
            assert mine == set(spec["subnets"]), f"{host.name} {link.device}"


def test_only_edge_core_and_query_are_left_to_sideband() -> None:
    left = {link.plane for h in LAB.hosts.values() for link in h.links if link.configured == "sideband"}
    assert left == {"edge", "core", "query"}
    assert LAB.hosts["user1"].links[0].configured == "lab"
    assert LAB.hosts["user1"].management is None


def test_names_fit_the_kernels_limits_and_are_unique() -> None:
    ends = [link.machine_end for host in LAB.hosts.values() for link in host.links]
    macs = [link.mac for host in LAB.hosts.values() for link in host.links]
    assert len(set(ends)) == len(ends)
    assert len(set(macs)) == len(macs)
    assert max(map(len, ends)) <= 15


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["vec2"], "edge0"),
        (["node1", "edge0"], "edge0"),
        (["node1:edge"], "edge0"),
        (["node1/mgmt0"], "mgmt0"),
    ],
)
def test_a_link_is_found_by_each_of_its_names(words: list[str], want: str) -> None:
    link = LAB.find_link(words)
    assert (link.host, link.device) == ("node1", want)


@pytest.mark.parametrize(
    "words", [["vec77"], ["node1"], ["node1", "eth0"], ["nobody", "edge0"], ["a", "b", "c"]]
)
def test_an_unknown_link_is_refused_with_a_hint(words: list[str]) -> None:
    with pytest.raises(LabError) as error:
        LAB.find_link(words)
    assert error.value.hint


def broken(change: str) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    node = data["hosts"]["node1"]
    if change == "address twice":
        node["links"][0]["ipv4"] = "10.10.0.12/24"
    elif change == "port twice":
        node["links"][0]["port"] = "vec2"
    elif change == "unknown plane":
        node["links"][0]["plane"] = "trainning"
    elif change == "no port":
        del node["links"][1]["port"]
    elif change == "two switches":
        node["system"] = "uml"
    elif change == "long name":
        data["hosts"]["averyveryverylongname"] = data["hosts"].pop("node1")
    elif change == "gpus in the switch":
        data["hosts"]["tor1"]["gpus"] = 2
    elif change == "unknown extra":
        node["extra"] = "nothing"
    return data


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("address twice", "10.10.0.12/24 is also"),
        ("port twice", "vec2 is also"),
        ("unknown plane", "unknown plane (got trainning)"),
        ("no port", "has a switch port unless"),
        ("two switches", "one uml switch (got 2)"),
        ("long name", "at most 12"),
        ("gpus in the switch", "tor1.gpus: stand-ins are for nspawn hosts (got 2)"),
        ("unknown extra", "unknown (got nothing)"),
    ],
)
def test_a_broken_topology_is_refused_with_its_reason(change: str, words: str) -> None:
    topology.parse(copy.deepcopy(DATA))
    with pytest.raises(LabError, match=r"lab/topology\.yml") as error:
        topology.parse(broken(change))
    assert words in error.value.problem
