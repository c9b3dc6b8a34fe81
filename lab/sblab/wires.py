"""Links: a namespace per host, and one for the wires between hosts and switch ports.

The wires live in a namespace of their own. There bridge netfilter and IPv6 can be off without touching
the machine's own settings, and deleting the namespace takes every bridge, tap and cable away.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetNS, netns  # type: ignore[import-untyped]

from .paths import NETNS, RUN
from .say import run
from .topology import Host, Link, Topology

WIRES = "sbl-wires"
CONTROLLER = "sbl-mgmt"
BRIDGE = "mgmt"
BROKEN = RUN / "broken"
_OFFLOADS = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
_NODAD = 0x02

# In the namespace of the wires: nothing of the machine's filters frames, and bridges speak no IPv6.
_QUIET = """
for file in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e "$file" ] || echo 0 >"$file"; done
for name in all default; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; done
"""


def inside(namespace: str, *argv: str) -> str:
    return run(["nsenter", f"--net={NETNS / namespace}", *argv])


def namespaces() -> list[str]:
    return sorted(path.name for path in NETNS.glob("sbl-*")) if NETNS.is_dir() else []


def remove_namespace(name: str) -> None:
    if (NETNS / name).exists():
        # A second mount on the same name (an interrupted creation) hides the first: take all off.
        while (
            subprocess.run(["umount", "-l", NETNS / name], capture_output=True, check=False).returncode == 0
        ):
            pass
        (NETNS / name).unlink(missing_ok=True)


def _index(ip: Any, name: str) -> int:
    found = ip.link_lookup(ifname=name)
    return int(found[0]) if found else 0


def _bridge(ip: Any, name: str, **options: int) -> int:
    ip.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, **options)
    index = _index(ip, name)
    ip.link("set", index=index, state="up")
    return index


def _taps(names: Iterable[str]) -> None:
    commands = "".join(f"tuntap add {name} mode tap vnet_hdr\n" for name in names)
    run(["ip", "-n", WIRES, "-batch", "-"], stdin=commands)


def _enslave(ip: Any, name: str, master: int) -> None:
    ip.link("set", index=_index(ip, name), master=master, state="up")


def build(topology: Topology) -> None:
    """The wires without hosts: the management bridge, the controller on it, and a tap per switch port."""
    netns.create(WIRES)
    inside(WIRES, "sh", "-c", _QUIET)
    _taps(["t-vec0", *(f"t-{port}" for port in topology.ports)])
    with NetNS(WIRES) as wires, IPRoute() as machine:
        management = _bridge(wires, BRIDGE)
        _enslave(wires, "t-vec0", management)
        for port in topology.ports:
            # Two ends and no memory: a cable, not a switch that could learn or filter.
            cable = _bridge(wires, f"c-{port}", br_ageing_time=0)
            _enslave(wires, f"t-{port}", cable)
        wires.link(
            "add", ifname="m-machine", kind="veth", peer={"ifname": CONTROLLER, "net_ns_pid": os.getpid()}
        )
        _enslave(wires, "m-machine", management)
        index = _index(machine, CONTROLLER)
        for cidr in (topology.controller4, topology.controller6):
            address, _, prefix = cidr.partition("/")
            flags = {"flags": _NODAD} if ":" in address else {}
            machine.addr("add", index=index, address=address, prefixlen=int(prefix), **flags)
        machine.link("set", index=index, state="up")
    subprocess.run(["ethtool", "-K", CONTROLLER, *_OFFLOADS], capture_output=True, check=False)


def connect(host: Host) -> None:
    """A fresh namespace with the host's links, down and without addresses, as after a cold start."""
    disconnect(host)
    netns.create(host.namespace)
    with NetNS(WIRES) as wires:
        for link in host.links:
            wires.link(
                "add",
                ifname=link.machine_end,
                kind="veth",
                peer={"ifname": link.device, "address": link.mac, "net_ns_fd": host.namespace},
            )
            master = _index(wires, f"c-{link.port}" if link.port else BRIDGE)
            _enslave(wires, link.machine_end, master)
            if marker(link).exists():
                wires.link("set", index=_index(wires, link.machine_end), state="down")
    # A checksum that nobody computes would cross the switch wrong.
    script = "".join(f"ethtool -K {link.device} {' '.join(_OFFLOADS)} >/dev/null\n" for link in host.links)
    inside(host.namespace, "sh", "-c", script)


def disconnect(host: Host) -> None:
    remove_namespace(host.namespace)
    if (NETNS / WIRES).exists():
        with NetNS(WIRES) as wires:
            for link in host.links:
                with contextlib.suppress(IndexError):
                    index = _index(wires, link.machine_end)
                    if index:
                        wires.link("del", index=index)


def marker(link: Link) -> Path:
    return BROKEN / f"link-{link.host}-{link.device}"


def set_link(link: Link, up: bool) -> None:
    """Pulls or plugs the cable at the lab's side: the host sees its carrier go."""
    BROKEN.mkdir(parents=True, exist_ok=True)
    name = link.machine_end if link.device != "vec0" else "t-vec0"
    with NetNS(WIRES) as wires:
        index = _index(wires, name)
        if index:
            wires.link("set", index=index, state="up" if up else "down")
    if up:
        marker(link).unlink(missing_ok=True)
    else:
        marker(link).touch()


def remove() -> None:
    """Everything by name, whoever made it."""
    for name in namespaces():
        remove_namespace(name)
    with IPRoute() as machine:
        index = _index(machine, CONTROLLER)
        if index:
            machine.link("del", index=index)
