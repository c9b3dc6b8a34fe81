"""The printed rules and the contract's meaning agree, packet by packet, in a kernel (B3)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from contract_kit import Groups, HostVars, lab
from contracts_kit import DEVICES, contracts, packets
from frames_kit import Bench, pid_name
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sideband.check import check_site
from sideband.load import gather
from sideband.model import Host, Site, parse_site
from sideband.nftables import compile_ruleset
from sideband.semantics import Packet, verdict

pytestmark = pytest.mark.root
PACKETS = 400
# A fixed seed and no shrinking: an error names the packet, and a shrunk contract would take minutes.
FIXED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench(pid_name("sem"), sorted(DEVICES.values()))
    yield made
    made.close()


def site_of(hostvars: HostVars, groups: Groups) -> Site:
    inventory = gather(hostvars, groups)
    return parse_site(inventory.nouns, inventory.hosts)


def disagreements(
    bench: Bench, site: Site, host: Host, sent: list[tuple[str, Packet]], text: str
) -> list[str]:
    """What the kernel does otherwise than the contract says."""
    bench.load(text)
    entered, counted = bench.send(sent)
    wrong = []
    expected: dict[str, int] = {}
    for (device, packet), did in zip(sent, entered):
        said = verdict(site, host, device, packet)
        if said.enters != did:
            wrong.append(f"{host.name} {device} {packet}: contract {said}, kernel {did}")
        if said.reason:
            expected[f"{device}_{said.reason}"] = expected.get(f"{device}_{said.reason}", 0) + 1
    grown = {name: count for name, count in counted.items() if count}
    if not wrong and grown != expected:
        wrong.append(f"{host.name}: counters {grown}, contract {expected}")
    return wrong


@FIXED
@given(data=st.data())
def test_rules_mean_what_the_contract_says(bench: Bench, data: st.DataObject) -> None:
    hostvars, groups = data.draw(contracts())
    assert check_site(hostvars, groups) == []
    site = site_of(hostvars, groups)
    host = data.draw(st.sampled_from(list(site.hosts.values())))
    sent = packets(site, host, PACKETS, data.draw(st.integers(0, 2**32)))
    assert disagreements(bench, site, host, sent, compile_ruleset(site, host).text) == []


def lab_packets(site: Site, host: Host) -> list[tuple[str, Packet]]:
    """Every pair of ends that the lab's contract knows, listed and not, by exhaustion."""
    sent: list[tuple[str, Packet]] = []
    ports = (22, *(flow.port for flow in site.flows))
    for interface, family in itertools.product(host.interfaces.values(), (4, 6)):
        own = [i.address(family) for i in host.interfaces.values()]
        desk = "10.40.0.71" if family == 4 else "fd00:5b:40::71"
        others = [i.address(family) for o in site.hosts.values() for i in o.interfaces.values()]
        # Every interface answers by an address that no contract lists.
        local = ["fe80::21"] if family == 6 else []
        for saddr, daddr in itertools.product(
            [*others, desk, *local], [*own, *(["fe80::11"] if local else [])]
        ):
            for port in ports:
                sent += [
                    (interface.device, Packet(family, saddr, daddr, "tcp", 40000, port, syn=True)),
                    (interface.device, Packet(family, saddr, daddr, "tcp", port, 40000, ack=True)),
                    (interface.device, Packet(family, saddr, daddr, "tcp", port, 40000, syn=True)),
                ]
            sent.append((interface.device, Packet(family, saddr, daddr, "udp", 40000, 8427)))
    return sent


@pytest.mark.parametrize("name", ["node1", "node3", "rack1", "region1", "lake1", "gateway1", "mgmt1"])
def test_the_lab_by_exhaustion(bench: Bench, name: str) -> None:
    site = site_of(*lab())
    host = site.hosts[name]
    assert disagreements(bench, site, host, lab_packets(site, host), compile_ruleset(site, host).text) == []


BREAKS: dict[str, tuple[str, Any]] = {
    "a missing accept": (r"\n    ip saddr \{ 10.21.0.21 \} tcp sport 8427[^\n]*accept", ""),
    "a missing drop of other addresses": (r"\n    ip daddr != 10.21.0.11 [^\n]*drop", ""),
    "a missing last drop": (r"\n    counter name edge0_unlisted drop", ""),
    "a reply rule that takes a bare SYN": (r"tcp flags & \(syn \| ack\) != syn accept", "accept"),
    "a rule of one family": (r"\n    ip6 saddr \{ fd00:5b:21::21 \} tcp[^\n]*accept", ""),
    "the other rack's peer": (r"10\.21\.0\.21 \} tcp", "10.21.0.22 } tcp"),
    "a wrong port": (r"sport 8427", "sport 8428"),
    "a source let in on management": (r"\n    ip saddr [^\n]*mgmt0_source drop", ""),
    "a source let in by its link-local address": (r"\n    ip6 saddr fe80::/10 [^\n]*mgmt0_source drop", ""),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_seen(bench: Bench, broken: str) -> None:
    """A check that cannot fail is a defect: each kind of rule, broken once."""
    site = site_of(*lab())
    host = site.hosts["node1"]
    text, count = re.subn(*BREAKS[broken], compile_ruleset(site, host).text)
    assert count
    assert disagreements(bench, site, host, lab_packets(site, host), text)
