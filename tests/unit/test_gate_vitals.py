"""What a host says of itself is read right: sockets of both families, units, counters, queues, cgroups."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from sideband import vitals
from sideband.state.system import System

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1145 1 0
   1: 0100007F:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1146 1 0
   2: 1500150A:20EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1147 1 0
   3: 1500150A:20EB 0B00150A:9A0B 01 00000000:00000000 00:00000000 00000000     0        0 1148 1 0
"""
TCP6 = """  sl  local_address                         remote_address                        st tx_queue
   0: 5B0000FD000000002100000021000000:20EB 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 21 1
   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 22 1
   2: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 23 1
   3: 0000000000000000FFFF00000100007F:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 24 1
"""


def test_listening_sockets_of_both_families_without_loopback() -> None:
    assert vitals.parse_sockets(TCP, "tcp", vitals.TCP_LISTEN) == [
        ("tcp 0.0.0.0:22", "1145"),
        ("tcp 10.21.0.21:8427", "1147"),
    ]
    assert vitals.parse_sockets(TCP6, "tcp", vitals.TCP_LISTEN) == [
        ("tcp [fd00:5b::21:0:21]:8427", "21"),
        ("tcp [::]:22", "23"),
    ]


def test_a_real_listener_is_seen_and_a_loopback_one_is_not() -> None:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("0.0.0.0", 0))
        two.bind(("127.0.0.1", 0))
        one.listen()
        two.listen()
        ports = {each.partition(" by ")[0] for each in vitals.listeners()}
        assert f"tcp 0.0.0.0:{one.getsockname()[1]}" in ports
        assert not any(each.endswith(f":{two.getsockname()[1]}") for each in ports)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/sideband.slice/sideband-agent.service\n", "sideband-agent.service"),
        ("9:name=systemd:/sideband.slice/sideband-agent.service\n0::/\n", "sideband-agent.service"),
        (
            "9:name=systemd:/lab/node1/sideband.slice/sideband-agent.service\n4:memory:/x\n",
            "sideband-agent.service",
        ),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "session-1.scope"),
        ("4:memory:/sideband-agent.service\n0::/\n", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_process(text: str, unit: str) -> None:
    assert vitals.unit_of(text) == unit


def test_units_and_what_is_expected_of_them() -> None:
    text = (
        "Type=simple\nNRestarts=2\nId=sideband-agent.service\nActiveState=active\nSubState=running\n"
        "UnitFileState=enabled\n\n"
        "Type=oneshot\nNRestarts=0\nId=sideband-load.service\nActiveState=inactive\nSubState=dead\n"
        "UnitFileState=enabled\n\n"
        "Id=sideband-watch.path\nActiveState=active\nSubState=waiting\nUnitFileState=disabled\n"
    )
    found = vitals.parse_units(text)
    assert found["sideband-agent.service"] == {
        "active": "active",
        "sub": "running",
        "wanted": True,
        "restarts": 2,
    }
    assert found["sideband-load.service"]["wanted"] is False
    assert found["sideband-watch.path"] == {
        "active": "active",
        "sub": "waiting",
        "wanted": False,
        "restarts": 0,
    }
    assert vitals.parse_units("") == {}


def test_only_our_own_counters_count() -> None:
    text = (
        '{"nftables": [{"metainfo": {}}, {"counter": {"family": "netdev", "table": "sideband", "name": '
        '"edge0_unlisted", "packets": 3, "bytes": 9}}, {"counter": {"family": "inet", "table": "docker", '
        '"name": "other", "packets": 8}}]}'
    )
    assert vitals.parse_counters(text) == {"edge0_unlisted": 3}
    assert vitals.parse_counters("") == {}
    assert vitals.parse_counters("no json") == {}


def test_drops_of_queues_that_we_shape() -> None:
    text = (
        '[{"kind": "htb", "handle": "5b:", "dev": "edge0", "root": true, "drops": 2},'
        '{"kind": "pfifo", "handle": "1:", "dev": "edge0", "parent": "5b:10", "drops": 1},'
        '{"kind": "mq", "handle": "0:", "dev": "mgmt0", "root": true, "drops": 7}]'
    )
    assert vitals.parse_queues(text, "5b:") == {"edge0": 3}


def test_what_an_agent_gave_up_is_counted_and_what_rules_leave_out_is_not() -> None:
    text = (
        'vmagent_remotewrite_packets_dropped_total{url="1"} 2\n'
        'vmagent_remotewrite_packets_dropped_total{url="2"} 3\n'
        'vmagent_remotewrite_relabel_metrics_dropped_total{url="1"} 900\n'
        'vm_persistentqueue_bytes_dropped_total{path="x"} 0\n'
    )
    assert vitals.parse_agent(text) == 5


def test_the_last_words_of_a_unit_are_its_own_not_systemds() -> None:
    journal = (
        '{"_TRANSPORT": "stdout", "MESSAGE": "unknown flag -x"}\n{"_TRANSPORT": "stdout", "MESSAGE": " "}\n'
        '{"_TRANSPORT": "journal", "MESSAGE": "Main process exited"}\nbroken\n'
    )
    assert vitals.last_words(journal) == "unknown flag -x"
    assert vitals.last_words("") == ""


def test_the_manifest_tells_content_mode_owner_and_target(tmp_path: Path) -> None:
    (tmp_path / "etc/sideband/x").mkdir(parents=True)
    file = tmp_path / "etc/sideband/x/a"
    file.write_text("one")
    (tmp_path / "etc/sideband/link").symlink_to("x/a")
    system = System(str(tmp_path))
    first = vitals.manifest(system, ["/etc/sideband", "/nowhere"], ["/etc/absent"])
    assert sorted(first) == ["/etc/sideband/link", "/etc/sideband/x", "/etc/sideband/x/a"]
    assert first["/etc/sideband/link"] == "link x/a"
    file.chmod(0o600)
    second = vitals.manifest(system, ["/etc/sideband"])
    file.write_text("two")
    third = vitals.manifest(system, ["/etc/sideband"])
    assert len({each["/etc/sideband/x/a"] for each in (first, second, third)}) == 3


def test_a_boot_is_told_from_the_next() -> None:
    assert vitals.boot() == vitals.boot()
    assert len(vitals.boot().split()) == 2


def test_an_address_that_takes_no_connection_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        there = f"127.0.0.1:{server.getsockname()[1]}"
        assert vitals.unanswered([there], 2) == {}
    assert vitals.unanswered([there, "nonsense"], 2).keys() == {there, "nonsense"}
    assert "refused" in vitals.unanswered([there], 2)[there]
    assert vitals.unanswered([], 2) == {}


def test_memory_of_a_process_is_found_with_and_without_rollup(tmp_path: Path) -> None:
    assert vitals._memory(str(os.getpid()), 1) > 2**20
    assert vitals._memory("0", 3) == 3 * os.sysconf("SC_PAGE_SIZE")
