"""Verify in network namespaces, with the real nft: a sound site is green, and each thing that can break is
broken once and seen red, named by its cause (B2, B3; the design's "a check that cannot fail is a defect")."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pairs import pairs
from probe_kit import ROOT, Site, lab_model, lab_options
from sideband.verify_checks import Verdict
from sideband.verify_pairs import list_pairs

pytestmark = pytest.mark.root
TOPOLOGY = str(ROOT / "lab" / "topology.yml")


# Enough to break each thing on, and half the time of the whole site.
SMALL = ("node1", "node2", "node3", "rack1", "rack2", "region1", "gateway1", "tor1")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site(lab_model(hosts=SMALL))
    yield made
    made.close()


@pytest.fixture
def sound(site: Site) -> Iterator[Site]:
    """The site, with every host's rules as compiled again afterwards."""
    yield site
    for name, host in site.hosts.items():
        site.load(name, host["ruleset"])


def drop_rule(site: Site, host: str, pattern: str) -> int:
    """Delete by hand every rule that matches; how many."""
    listed = site.run(host, "nft", "-a", "list", "table", "netdev", "sideband")
    chain, gone = "", 0
    for line in listed.splitlines():
        found = re.match(r"\s*chain (\S+) {", line)
        chain = found.group(1) if found else chain
        handle = re.search(r"# handle (\d+)$", line)
        if handle and re.search(pattern, line) and not found:
            site.run(host, "nft", "delete", "rule", "netdev", "sideband", chain, "handle", handle.group(1))
            gone += 1
    return gone


def words(verdict: Verdict) -> str:
    """What the verdict says, and what its cells say."""
    said = [str(cause) for cause in verdict.causes]
    said += [one.cause for _, mine in verdict.cells.values() for one in mine if one.cause]
    return "\n".join(said)


def test_a_sound_site_is_green_and_every_pair_of_the_wiring_is_tested() -> None:
    whole = Site(lab_model())
    try:
        verdict = whole.verify(expected=tuple(pairs(TOPOLOGY)))
    finally:
        whole.close()
    assert verdict.passed, words(verdict)
    figures = verdict.figures
    assert (figures["pairs_expected"], figures["pairs_untested"]) == (414, 0)
    assert figures["negative"] >= 100
    assert (figures["negative_without_counter"], figures["positive_failed"]) == (0, 0)
    assert figures["dscp_seen"] == figures["dscp_expected"] == 18
    assert {state for state, _ in verdict.cells.values()} == {"pass"}


@pytest.mark.parametrize(
    ("host", "pattern", "cause"),
    [
        ("node1", r'counter name "mgmt0_source" drop', "node1: mgmt0_source: .* is answered"),
        ("node1", r'counter name "edge0_unlisted" drop', "node1: edge0_unlisted: .* is answered"),
        ("node1", r'ip6 daddr .*counter name "mgmt0_address" drop', "node1: mgmt0_address: .* is answered"),
        ("rack1", r'ip daddr != .*"edge0_address" drop', "rack1: edge0_address: it did not count all"),
        (
            "rack1",
            r"ip6 saddr .* tcp dport 8427 accept",
            "rack1: edge0_unlisted: drops what flow push allows",
        ),
        ("node1", r"ip daddr .* tcp dport 8427 ip dscp set cs1", "dscp push ipv4 out"),
        ("rack1", r"ip6 daddr .* tcp sport 8427 ip6 dscp set cs1", "dscp push ipv6 back"),
    ],
)
def test_one_rule_removed_by_hand_is_red_and_named(sound: Site, host: str, pattern: str, cause: str) -> None:
    assert drop_rule(sound, host, pattern) >= 1
    verdict = sound.verify(lab_options(only=("node1",)))
    assert not verdict.passed
    assert re.search(cause, words(verdict)), words(verdict)


def test_a_reply_rule_that_admits_bare_syns_is_red(sound: Site) -> None:
    """Source port = service port: what lets replies in must not let connections in."""
    ruleset = sound.hosts["node1"]["ruleset"]
    loose = re.sub(r"(tcp sport 8427) tcp flags & \(syn \| ack\) != syn accept", r"\1 accept", ruleset)
    assert loose != ruleset
    sound.load("node1", loose)
    verdict = sound.verify(lab_options(only=("node1",)))
    assert not verdict.passed
    assert "a SYN to 10.21.0.11 port 48427 with source port 8427" in words(verdict)


def test_a_rule_that_asks_for_syn_only_lets_bare_acks_through_and_is_red(sound: Site) -> None:
    ruleset = sound.hosts["node1"]["ruleset"]
    loose = re.sub(
        r"(    )(counter name edge0_unlisted drop)", r"\1tcp flags & (syn | ack) == ack accept\n\1\2", ruleset
    )
    assert loose != ruleset
    sound.load("node1", loose)
    verdict = sound.verify(lab_options(only=("node1",)))
    assert not verdict.passed
    assert "a bare ACK to 10.21.0.11" in words(verdict)


def test_a_flow_that_trusts_any_source_is_red_for_a_spoofed_one(sound: Site) -> None:
    ruleset = sound.hosts["rack1"]["ruleset"]
    loose = re.sub(r"ip saddr \{[^}]*\} (tcp dport 8427 accept)", r"\1", ruleset)
    assert loose != ruleset
    sound.load("rack1", loose)
    verdict = sound.verify(lab_options(only=("rack1",)))
    assert not verdict.passed
    assert "with the spoofed source 10.90.0.11" in words(verdict)


def test_rules_that_were_never_loaded_are_red(sound: Site) -> None:
    sound.run("region1", "nft", "delete", "table", "netdev", "sideband")
    verdict = sound.verify(lab_options(only=("region1",)))
    assert not verdict.passed
    assert "region1: core0_unlisted: no such counter in force" in words(verdict)


def test_a_port_in_the_wrong_segment_is_red(sound: Site) -> None:
    """What a wrong VLAN entry does: node1's edge link ends in rack2's edge."""
    links = json.loads(sound.run("switch", "ip", "-j", "link", "show"))
    bridge = {link["ifname"]: link.get("master", "") for link in links}
    node1 = peer(sound, "node1", "edge0")
    rack2 = peer(sound, "rack2", "edge0")
    home, away = bridge[node1], bridge[rack2]
    sound.run("switch", "ip", "link", "set", node1, "master", away)
    try:
        verdict = sound.verify(lab_options(only=("node1",)))
    finally:
        sound.run("switch", "ip", "link", "set", node1, "master", home)
    assert not verdict.passed
    assert "rack1: edge0: frames of node1 do not arrive" in words(verdict)
    assert "rack2: edge0: a frame of node1's edge0 reached it across segments" in words(verdict)
    assert "tor1 port vec2, VLAN 21" in words(verdict)


def peer(site: Site, host: str, device: str) -> str:
    """The switch's end of a host's link."""
    index = json.loads(site.run(host, "ip", "-j", "link", "show", "dev", device))[0]["link_index"]
    links = json.loads(site.run("switch", "ip", "-j", "link", "show"))
    return str(next(link["ifname"] for link in links if link["ifindex"] == index))


@pytest.mark.parametrize("address", ["10.21.0.11", "fd00:5b:21::11"])
def test_a_listener_on_a_nodes_telemetry_plane_is_red(sound: Site, address: str) -> None:
    listen = ["python3", "-u", "-m", "http.server", "9100", "--bind", address]
    rogue = subprocess.Popen(
        ["ip", "netns", "exec", sound.space("node1"), *listen],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert rogue.stdout
    try:
        assert "Serving" in rogue.stdout.readline()
        verdict = sound.verify(lab_options(only=("node1",)))
    finally:
        rogue.kill()
        rogue.wait()
    assert not verdict.passed
    assert f"node1: listeners: does not hold (got ['tcp port 9100 of {address} (edge)" in words(verdict)


def test_a_rule_on_the_training_interface_is_red(sound: Site) -> None:
    """B7: whoever's table it is in."""
    hook = "chain c { type filter hook ingress device train0 priority 0; }"
    sound.load("node1", f"table netdev other {{\n{hook}\n}}\n")
    try:
        verdict = sound.verify(lab_options(only=("node1",)))
    finally:
        sound.run("node1", "nft", "delete", "table", "netdev", "other")
    assert not verdict.passed
    assert "node1: training hooks: does not hold (got ['netdev other c train0']" in words(verdict)


def test_a_queue_on_the_training_interface_is_red(sound: Site) -> None:
    """B7."""
    sound.run("node1", "tc", "qdisc", "add", "dev", "train0", "root", "handle", "1:", "htb")
    try:
        verdict = sound.verify(lab_options(only=("node1",)))
    finally:
        sound.run("node1", "tc", "qdisc", "del", "dev", "train0", "root")
    assert not verdict.passed
    assert "node1: training queues: does not hold (got ['train0 htb 1:']" in words(verdict)


def test_training_traffic_that_is_blocked_is_red(sound: Site) -> None:
    sound.load(
        "node1",
        "table netdev foreign { chain c {\n type filter hook ingress device train0 priority 0;\n"
        " tcp dport 48427 drop; }; }",
    )
    try:
        verdict = sound.verify(lab_options(only=("node1",)))
    finally:
        sound.run("node1", "nft", "delete", "table", "netdev", "foreign")
    assert not verdict.passed
    assert "training traffic does not pass" in words(verdict)


def test_silence_proves_nothing_where_the_listener_is_deaf(sound: Site) -> None:
    """A dead service behind a rule that drops everything looks safe, and is not proved."""
    at = list(sound.hosts).index("rack1")
    sound.services[at].kill()
    sound.services[at].wait()
    try:
        verdict = sound.verify(lab_options(only=("rack1",)))
    finally:
        names = list(sound.hosts)
        sound.services, kept = [], sound.services
        hosts, sound.hosts = sound.hosts, {"rack1": sound.hosts["rack1"]}
        sound._serve()
        sound.hosts = hosts
        sound.services = [*kept[:at], *sound.services, *kept[at + 1 :]]
        assert len(sound.services) == len(names)
    assert not verdict.passed
    assert "rack1: push/ipv4: port 8427 of 10.21.0.21 does not answer the host itself (got refused)" in words(
        verdict
    )
    assert verdict.figures["negative_without_counter"] > 0


def test_a_plane_in_observe_counts_and_lists_what_it_would_drop() -> None:
    """A site's first rollout: the packets pass, the counters tell."""

    def observe(hostvars: dict[str, dict[str, Any]]) -> None:
        for host in hostvars.values():
            host["sideband_planes"]["edge"]["mode"] = "observe"

    watched = Site(lab_model(observe, SMALL))
    try:
        verdict = watched.verify(lab_options(only=("node1",)))
    finally:
        watched.close()
    assert verdict.passed, words(verdict)
    assert verdict.figures["negative_observed"] > 0
    assert verdict.observed["node1 edge0_unlisted"] > 0
    assert "node1 mgmt0_source" not in verdict.observed
    assert "observed" in {state for state, _ in verdict.cells.values()}
    # By source and port: node2's frame for the port that only rack1 serves.
    assert any(
        re.fullmatch(r"node1 edge0: 10\.21\.0\.\d+ tcp \d+: [1-9]\d* packets", line) for line in verdict.hit
    )
    assert any(line.startswith("node1 edge0: fd00:5b:21::") for line in verdict.hit)
    assert not any("mgmt0" in line for line in verdict.hit)
    sources = {line.split()[2] for line in verdict.hit}
    assert all(source.startswith(("10.21.0.", "fd00:5b:21::", "fe80:")) for source in sources), sources


def test_an_observer_that_died_leaves_no_cell_green(sound: Site) -> None:
    def stop(phase: str) -> None:
        if phase == "collect":
            listed = sound.run("node1", "ss", "-Hlntp", "sport", "=", ":48427")
            os.kill(int(re.findall(r"pid=(\d+)", listed)[0]), signal.SIGKILL)

    verdict = sound.verify(lab_options(only=("node1",)), during=stop)
    assert not verdict.passed
    assert "node1: probe: not visited to the end (got the observer is gone" in words(verdict)
    assert verdict.figures["pairs_untested"] == verdict.figures["pairs_expected"]


def test_a_pair_that_nobody_planned_is_missed(site: Site) -> None:
    """The wiring counts, not the plan: a pair that the compiler forgets is untested, so red."""
    options = lab_options(only=("region1",))
    expected = (*map(str, list_pairs(site.model, options)), "region1 -> node9·training IPv4")
    verdict = site.verify(options, expected=expected)
    assert not verdict.passed
    assert verdict.figures["pairs_untested"] == 1


def test_probing_leaves_nothing_behind(site: Site) -> None:
    """Own listeners close when asked for their findings."""
    site.verify(lab_options(only=("region1",)))
    for name in site.hosts:
        assert ":48427" not in site.run(name, "ss", "-Hltun")


def test_listeners_close_by_themselves_when_nobody_collects(site: Site) -> None:
    from sideband import verify_plan
    from sideband.verify_request import request

    plan = verify_plan.make(site.model, lab_options(only=("region1",)))
    wish = request(site.model, plan, "region1", "open", {}, 0)
    site.visit("region1", "open", {"magic": 77, "seconds": 1.0, "rate": 0}, wish)
    assert ":48427" in site.run("region1", "ss", "-Hltun")
    wait_until(lambda: ":48427" not in site.run("region1", "ss", "-Hltun"))


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    import time

    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.1)
