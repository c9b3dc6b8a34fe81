"""The compiled rules and shapes in a kernel: what reported faults of such bundles did, and ours must not
(cases 23, 25, 26, 34, 35)."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract_kit import change, lab
from frames_kit import must, pid_name, run, socket_in
from sideband.contract import compile_site
from sideband.qdisc import Shape, ShapeClass, shape_record
from sideband.state import shaping

pytestmark = pytest.mark.root

FOREIGN = """
table ip nat {
  chain DOCKER { tcp dport 8080 dnat to 172.17.0.2:80; }
  chain KUBE-SERVICES { ip daddr 10.96.0.1 tcp dport 443 counter; }
  chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; jump DOCKER; }
}
table netdev other {
  chain mine { type filter hook ingress device "edge0" priority 5; }
}
"""
ECHO_SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
print("ready", flush=True)
while True:
    one, _ = server.accept()
    while data := one.recv(100):
        one.sendall(data)
"""


class Pair:
    """node1 and rack1 on one wire: devices and addresses as the contract has them."""

    def __init__(self, name: str) -> None:
        self.model = compile_site(*lab())
        self.names = {"node1": f"{name}-node1", "rack1": f"{name}-rack1"}
        self.servers: list[subprocess.Popen[str]] = []
        self.close()
        node, rack = self.names.values()
        for namespace in (node, rack):
            must("ip", "netns", "add", namespace)
            must("ip", "link", "set", "lo", "up", namespace=namespace)
        must(
            "ip",
            "link",
            "add",
            "edge0",
            "netns",
            node,
            "type",
            "veth",
            "peer",
            "name",
            "edge0",
            "netns",
            rack,
        )
        for host, namespace in self.names.items():
            edge = self.model["hosts"][host]["interfaces"]["edge"]
            # The host's other interfaces carry rules too, and rules want a device.
            for part in self.model["hosts"][host]["interfaces"].values():
                if part["device"] != "edge0":
                    ends = ["type", "veth", "peer", "name", f"x{part['device']}"]
                    must("ip", "link", "add", part["device"], *ends, namespace=namespace)
            for cidr in (edge["cidr4"], edge["cidr6"]):
                flags = ["nodad"] if ":" in cidr else []
                must("ip", "addr", "add", cidr, "dev", "edge0", *flags, namespace=namespace)
            must("ip", "link", "set", "edge0", "up", namespace=namespace)

    def close(self) -> None:
        for server in self.servers:
            server.kill()
            server.wait()
        for namespace in self.names.values():
            run("ip", "netns", "del", namespace)

    def load(self, host: str) -> None:
        must("nft", "-f", "-", text=self.model["hosts"][host]["ruleset"], namespace=self.names[host])

    def address(self, host: str, family: int) -> str:
        return str(self.model["hosts"][host]["interfaces"]["edge"][f"ipv{family}"])

    def serve(self, host: str, address: str, port: int) -> None:
        command = [
            "ip",
            "netns",
            "exec",
            self.names[host],
            sys.executable,
            "-c",
            ECHO_SERVER,
            address,
            str(port),
        ]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.servers.append(server)
        assert server.stdout
        assert server.stdout.readline().strip() == "ready"


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(pid_name("wire"))
    yield made
    made.close()


def tables(namespace: str) -> dict[str, str]:
    listed = json.loads(must("nft", "-j", "list", "tables", namespace=namespace))["nftables"]
    names = [(entry["table"]["family"], entry["table"]["name"]) for entry in listed if "table" in entry]
    return {f"{f} {n}": must("nft", "list", "table", f, n, namespace=namespace) for f, n in names}


def test_foreign_tables_stay_byte_identical(pair: Pair) -> None:
    """Case 23: two loads beside Docker's and Kubernetes' tables, and beside another netdev table."""
    namespace = pair.names["rack1"]
    must("nft", "-f", "-", text=FOREIGN, namespace=namespace)
    before = tables(namespace)
    pair.load("rack1")
    pair.load("rack1")
    after = tables(namespace)
    assert after.pop("netdev sideband")
    assert after == before


def test_nothing_tracks_connections(pair: Pair) -> None:
    """B7: one `ct` expression would start connection tracking on the training interface too."""
    for host, part in pair.model["hosts"].items():
        assert not re.search(r"\bct\b|train0", part["ruleset"]), host


def test_a_reload_leaves_nothing_of_the_last(pair: Pair) -> None:
    """Case 25: a first load in an empty namespace succeeds; the renamed is gone; three loads are one."""
    namespace = pair.names["rack1"]
    renamed = compile_site(
        *change(
            *lab(), {"set": {"all.sideband_zones.3.device": "edge9", "all.sideband_flows.push.port": 9427}}
        )
    )["hosts"]["rack1"]["ruleset"]
    must("ip", "link", "add", "edge9", "type", "veth", "peer", "name", "xedge9", namespace=namespace)
    must("nft", "-f", "-", text=renamed, namespace=namespace)
    assert "edge9_address" in tables(namespace)["netdev sideband"]
    pair.load("rack1")
    once = tables(namespace)["netdev sideband"]
    for _ in range(3):
        pair.load("rack1")
    again = tables(namespace)["netdev sideband"]
    assert again == once
    assert "edge9" not in again
    assert "9427" not in again
    assert len(re.findall(r"chain ingress_edge0 ", again)) == 1


def test_a_refused_load_changes_nothing(pair: Pair) -> None:
    """Case 20: the load is one transaction; a fault in its last line leaves all as it was."""
    namespace = pair.names["rack1"]
    pair.load("rack1")
    before = tables(namespace)
    text = pair.model["hosts"]["rack1"]["ruleset"]
    broken = text + "add rule netdev sideband ingress_mgmt0 counter name nosuch\n"
    assert run("nft", "-f", "-", text=broken, namespace=namespace).returncode != 0
    assert tables(namespace) == before


def talk(sock: socket.socket) -> bool:
    sock.settimeout(5)
    sock.sendall(b"still here")
    return sock.recv(100) == b"still here"


@pytest.mark.parametrize("family", [4, 6])
def test_neighbours_pings_and_open_connections_survive(pair: Pair, family: int) -> None:
    """Case 26, in both families: the rules come while a connection is open and neighbour caches are stale."""
    node, rack = pair.names.values()
    server = pair.address("rack1", family)
    pair.serve("rack1", server, 8427)
    sock = socket_in(node, socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    sock.settimeout(5)
    sock.connect((server, 8427))
    assert talk(sock)
    for host in pair.names:
        pair.load(host)
    for namespace in (node, rack):
        must("ip", "neigh", "flush", "dev", "edge0", namespace=namespace)
    assert talk(sock)
    must("ping", f"-{family}", "-c", "1", "-W", "3", server, namespace=node)
    must("ping", f"-{family}", "-c", "1", "-W", "3", pair.address("node1", family), namespace=rack)
    sock.close()


@pytest.mark.parametrize("family", [4, 6])
def test_without_its_neighbour_rule_ipv6_dies(pair: Pair, family: int) -> None:
    """The test above can fail: without the rule for neighbours IPv6 does, and IPv4 does not."""
    text = pair.model["hosts"]["rack1"]["ruleset"]
    cut = re.sub(r"\n[^\n]*nd-neighbor-solicit[^\n]*", "", text)
    assert cut != text
    must("nft", "-f", "-", text=cut, namespace=pair.names["rack1"])
    ping = ["ping", f"-{family}", "-c", "1", "-W", "1", pair.address("rack1", family)]
    answered = run(*ping, namespace=pair.names["node1"]).returncode == 0
    assert answered == (family == 4)


def tos_seen(pair: Pair, family: int, port: int) -> set[int]:
    """The type of service of what arrives at rack1 when node1 calls this port of it."""
    node, rack = pair.names.values()
    server = pair.address("rack1", family)
    tap = socket_in(rack, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800 if family == 4 else 0x86DD))
    tap.bind(("edge0", 0))
    tap.settimeout(0.2)
    caller = socket_in(node, socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    caller.settimeout(3)
    with contextlib.suppress(OSError):  # refused or dropped: the SYN has been on the wire all the same
        caller.connect((server, port))
    caller.close()
    seen = set()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            data = tap.recv(2000)
        except TimeoutError:
            break
        head = data[14:]
        protocol, dport_at = (head[9], 22) if family == 4 else (head[6], 42)
        if protocol == 6 and int.from_bytes(head[dport_at : dport_at + 2], "big") == port:
            tos = head[1] if family == 4 else (head[0] & 15) << 4 | head[1] >> 4
            seen.add(tos & 0xFC)
    tap.close()
    return seen


@pytest.mark.parametrize("family", [4, 6])
def test_the_far_end_sees_the_class(pair: Pair, family: int) -> None:
    """Case 35: marked where packets leave, in both families; a flow that is not ours stays as it was."""
    pair.load("node1")
    assert tos_seen(pair, family, 8427) == {32}
    assert tos_seen(pair, family, 9999) == {0}


@pytest.mark.parametrize("family", [4, 6])
def test_marks_in_the_wrong_hook_do_nothing(pair: Pair, family: int) -> None:
    """The test above can fail: the same rules at ingress mark nothing that leaves (case 35)."""
    text = pair.model["hosts"]["node1"]["ruleset"].replace("hook egress", "hook ingress")
    must("nft", "-f", "-", text=text, namespace=pair.names["node1"])
    assert tos_seen(pair, family, 8427) == {0}


FAST = Shape(
    "edge0", "edge", 100 * 10**9, (ShapeClass(10, ("push",), "cs1", 32, 2 * 10**9, 100 * 10**9),), 10**9
)


def classes(namespace: str) -> str:
    return must("tc", "-d", "class", "show", "dev", "edge0", namespace=namespace)


def test_a_fast_link_gets_explicit_values(pair: Pair) -> None:
    """Case 34: 2 Gbit of 100 Gbit: quantum, burst and cburst as computed, no warning, the same twice."""
    namespace = pair.names["node1"]
    record = shape_record(FAST)
    part = record["classes"][0]  # type: ignore[index]
    assert (part["quantum_bytes"], part["burst_bytes"], part["cburst_bytes"]) == (60_000, 1_000_000, 2**20)
    listed = []
    for replace in (False, True):
        text = shaping.commands(shaping.from_model(record), replace)
        done = run("tc", "-batch", "-", text=text, namespace=namespace)
        assert (done.returncode, done.stderr) == (0, "")
        listed.append(re.sub(r"\s+", " ", classes(namespace)))
    assert listed[0] == listed[1]
    ours = re.search(r"class htb 5b:10 [^\n]*", classes(namespace))
    assert ours
    assert "quantum 60000 " in ours.group(0)
    assert "rate 2Gbit ceil 100Gbit" in ours.group(0)


def test_without_explicit_values_the_kernel_warns(pair: Pair) -> None:
    """The test above can fail: tc's own quantum is too big, which it says on stderr with exit code 0."""
    namespace = pair.names["node1"]
    text = "qdisc add dev edge0 root handle 1: htb default 99\n"
    text += "class add dev edge0 parent 1: classid 1:10 htb rate 2gbit ceil 100gbit\n"
    done = run("tc", "-batch", "-", text=text, namespace=namespace)
    assert done.returncode == 0
    assert "quantum" in done.stderr


@pytest.mark.parametrize("host", sorted(compile_site(*lab())["hosts"]))
def test_every_ruleset_of_the_lab_loads_and_lists_its_counters(host: str) -> None:
    """Each host's file is complete: it loads where only its devices are."""
    part: dict[str, Any] = compile_site(*lab())["hosts"][host]
    namespace = pid_name("load")
    run("ip", "netns", "del", namespace)
    must("ip", "netns", "add", namespace)
    try:
        for number, interface in enumerate(part["interfaces"].values()):
            ends = ["type", "veth", "peer", "name", f"far{number}"]
            must("ip", "link", "add", interface["device"], *ends, namespace=namespace)
        must("nft", "-f", "-", text=part["ruleset"], namespace=namespace)
        listed = json.loads(must("nft", "-j", "list", "counters", namespace=namespace))["nftables"]
        names = sorted(entry["counter"]["name"] for entry in listed if "counter" in entry)
        assert names == sorted(counter["name"] for counter in part["counters"])
    finally:
        run("ip", "netns", "del", namespace)
