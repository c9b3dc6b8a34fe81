"""What the rollback bench reads off the kernel's own words (acceptance 4)."""

from __future__ import annotations

from bench import rollback

QDISCS = "qdisc htb 5b: root refcnt 3 r2q 1000 default 0x99 direct_packets_stat 0\n Sent 384193 bytes\n"
CLASSES = """class htb 5b:99 parent 5b:1 prio 0 rate 10Mbit ceil 20Mbit burst 5000b cburst 10000b
 Sent 10770 bytes 167 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0

class htb 5b:10 parent 5b:1 prio 0 rate 10Mbit ceil 20Mbit burst 5000b cburst 10000b
 Sent 373423 bytes 1158 pkt (dropped 0, overlimits 0 requeues 0)

class htb 5b:1 root rate 20Mbit ceil 20Mbit burst 10000b cburst 10000b
 Sent 384193 bytes 1325 pkt (dropped 0, overlimits 0 requeues 0)
"""


def test_only_our_flows_classes_are_counted() -> None:
    assert rollback.class_bytes(QDISCS, CLASSES) == 373423


def test_an_interface_without_a_tree_is_told_apart_from_a_silent_one() -> None:
    assert rollback.class_bytes("qdisc noqueue 0: root refcnt 2\n", "") is None
    assert rollback.class_bytes(QDISCS, CLASSES.replace("373423", "0")) == 0


def test_a_kept_session_counts_as_a_connection() -> None:
    quiet = {"opened": 0, "ssh": 0, "datagrams": 3}
    assert rollback.connections({"node1": quiet, "node2": quiet}) == 0
    assert rollback.connections({"node1": quiet, "node2": {**quiet, "ssh": 40}}) == 1
    assert rollback.connections({"node1": {**quiet, "opened": 2, "ssh": 40}, "node2": quiet}) == 2


def test_the_plan_is_the_price_of_what_the_node_has() -> None:
    """core: the sampler every 30 s, a report every 10 s, a poll every 2 s."""
    sampler, reports, polls = 4 * (575 + 20 * 5), 12 * (575 + 45 * 16), 60 * 283
    assert rollback.planned_bytes({"node": 5, "policy": 16}, "core", 120) == sampler + reports + polls
