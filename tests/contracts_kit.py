"""Random contracts that hold, as hypothesis strategies: inventories of every size that a test affords."""

from __future__ import annotations

import random
from typing import Any

from contract_kit import Groups, HostVars, lab
from hypothesis import strategies as st
from sideband.model import Host, Site
from sideband.semantics import ECHO, ICMP_ERRORS, Packet
from sideband.units import DSCP

DEVICES = {"training": "train0", "edge": "edge0", "core": "core0", "query": "query0", "management": "mgmt0"}
PORTS = (22, 8427, 8428, 8429, 8430, 8443, 9100, 40000)
ZONES = {
    "node": ("training", "edge", "management"),
    "rack": ("edge", "core", "management"),
    "region": ("core", "management"),
    "lake": ("core", "management"),
    "gateway": ("core", "query", "management"),
    "policy": ("management",),
}
# Who may be joined to whom, and where.
ENDS = (
    ("sideband_node", "sideband_rack", "edge"),
    ("sideband_rack", "sideband_region", "core"),
    ("sideband_rack", "sideband_lake", "core"),
    ("sideband_region", "sideband_lake", "core"),
    ("sideband_lake", "sideband_region", "core"),
    ("sideband_gateway", "sideband_lake", "core"),
    ("sideband_gateway", "sideband_region", "core"),
    ("clients", "sideband_gateway", "query"),
)


@st.composite
def contracts(draw: st.DrawFn) -> tuple[HostVars, Groups]:
    """(hostvars, groups) of a site that validates: racks, families, modes, ports and flows at random."""
    racks = [f"rack{n}" for n in range(1, draw(st.integers(1, 3)) + 1)]
    families = {
        plane: draw(st.sampled_from([(4, 6), (4,), (6,)] if plane != "training" else [(4, 6)]))
        for plane in DEVICES
    }
    planes, subnets = _planes(draw, racks, families)
    groups, rack_of = _hosts(draw, racks)
    site = lab()[0]["node1"]
    nouns: dict[str, Any] = {
        name: site[f"sideband_{name}"] for name in ("site", "ladder", "tiers", "versions")
    } | {
        "planes": planes,
        "zones": [
            {"group": f"sideband_{word}", "plane": plane, "device": DEVICES[plane]}
            for word, places in ZONES.items()
            for plane in places
        ],
        "flows": draw(_flows()),
        "tenants": [{"name": rack, "certificate": rack, "racks": [rack]} for rack in racks],
    }
    hostvars: HostVars = {}
    number = 0
    for group, members in groups.items():
        for host in members:
            number += 1
            own: dict[str, Any] = {f"sideband_{noun}": value for noun, value in nouns.items()}
            own["ansible_host"] = f"192.0.2.{number}"
            if host in rack_of:
                own["sideband_rack"] = rack_of[host]
            own["sideband_addresses"] = {
                plane: _addresses(subnets[plane, rack_of.get(host, "")], families[plane], 10 + number)
                for plane in ZONES[group[len("sideband_") :]]
            }
            hostvars[host] = own
    return hostvars, groups | {"sideband": sorted(hostvars)}


def _planes(
    draw: st.DrawFn, racks: list[str], families: dict[str, tuple[int, ...]]
) -> tuple[dict[str, Any], dict[tuple[str, str], dict[int, str]]]:
    kinds = {"edge": "telemetry", "core": "telemetry"}
    planes: dict[str, Any] = {}
    subnets: dict[tuple[str, str], dict[int, str]] = {}
    vlan = 9
    for plane in DEVICES:
        kind = kinds.get(plane, plane)
        spec: dict[str, Any] = {"kind": kind}
        if kind != "training":
            spec["mode"] = draw(st.sampled_from(["enforce", "enforce", "observe"]))
        if kind in ("telemetry", "query"):
            spec["egress_rate"] = "1Gbit"
        per_rack = plane == "edge" and draw(st.booleans())
        segments: dict[str, Any] = {}
        for rack in racks if per_rack else [""]:
            vlan += 1
            both = {4: f"10.{vlan}.0.0/24", 6: f"fd00:{vlan}::/64"}
            segments[rack] = {"vlan": vlan, "subnets": [both[family] for family in families[plane]]}
            for name in racks if not per_rack and plane == "edge" else [rack]:
                subnets[plane, name] = both
        if plane != "edge":
            for rack in [*racks, ""]:
                subnets[plane, rack] = both
        planes[plane] = spec | ({"per_rack": segments} if per_rack else segments[""])
    return planes, subnets


def _hosts(draw: st.DrawFn, racks: list[str]) -> tuple[Groups, dict[str, str]]:
    rack_of: dict[str, str] = {}
    groups: Groups = {f"sideband_{word}": [] for word in ZONES}
    for rack in racks:
        for number in range(draw(st.integers(1, 2))):
            name = f"n-{rack}-{number}"
            groups["sideband_node"].append(name)
            rack_of[name] = rack
        groups["sideband_rack"].append(f"r-{rack}")
        rack_of[f"r-{rack}"] = rack
    for word in ("region", "lake", "gateway", "policy"):
        groups[f"sideband_{word}"] = [f"{word}{n}" for n in range(1, draw(st.integers(1, 2)) + 1)]
    return groups, rack_of


def _addresses(subnets: dict[int, str], families: tuple[int, ...], number: int) -> dict[str, str]:
    stems = {4: subnets[4].replace("0/24", str(number)), 6: subnets[6].replace("/64", f"{number:x}")}
    return {f"ipv{family}": stems[family] for family in families}


def _flows() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.tuples(
        st.sampled_from(ENDS), st.sampled_from(PORTS[1:6]), st.sampled_from(sorted(DSCP)), st.booleans()
    )

    def spell(drawn: list[tuple[tuple[str, str, str], int, str, bool]]) -> list[dict[str, Any]]:
        taken: set[tuple[str, str, int]] = set()
        flows = []
        for (source, target, plane), port, dscp, bound in drawn:
            if (plane, target, port) in taken:
                continue
            taken.add((plane, target, port))
            flow = {"name": f"flow{len(flows)}", "from": source, "to": target, "plane": plane, "proto": "tcp",
                    "port": port, "dscp": dscp, "rate": "10Mbit", "connections": 8}  # fmt: skip
            flows.append(flow | ({"same_rack": True} if bound and plane == "edge" else {}))
        return flows

    return st.lists(one, min_size=1, max_size=8).map(spell)


# The hops that roles serve, by the names that they know them by.
SERVED = (
    ("push", "sideband_node", "sideband_rack", "edge"),
    ("relay", "sideband_rack", "sideband_region", "core"),
    ("store", "sideband_region", "sideband_lake", "core"),
    ("ask", "sideband_gateway", "sideband_lake", "core"),
    ("query", "clients", "sideband_gateway", "query"),
)


def served_flows(seed: int) -> list[dict[str, Any]]:
    """The five hops with ports, marks, rates and connections at random: roles can be rendered for them. By a
    seed of their own: hypothesis repeats itself within a run, and the same file would be looked at again."""
    chance = random.Random(seed)
    flows = []
    for (name, source, target, plane), port in zip(SERVED, chance.sample(range(1024, 65536), len(SERVED))):
        flow: dict[str, Any] = {
            "name": name,
            "from": source,
            "to": target,
            "plane": plane,
            "proto": "tcp",
            "port": port,
            "dscp": chance.choice(sorted(DSCP)),
            "rate": chance.choice(["1Mbit", "50Mbit", "200Mbit"]),
            "connections": chance.randint(1, 1000),
        }
        flows.append(flow | ({"same_rack": True} if name == "push" else {}))
    return flows


def packets(site: Site, host: Host, count: int, seed: int) -> list[tuple[str, Packet]]:
    """(device, packet): aimed where mistakes are: own and others' addresses, service ports on either side,
    bare and answered SYN, every ICMP that a rule names. By a seed of its own: hypothesis draws too slowly."""
    chance = random.Random(seed)
    return [_packet(chance, site, host) for _ in range(count)]


def _packet(chance: random.Random, site: Site, host: Host) -> tuple[str, Packet]:
    interface = chance.choice(list(host.interfaces.values()))
    families = [family for family in (4, 6) if interface.address(family)]
    family = chance.choice(families if chance.random() < 0.9 else [4, 6])
    everyone = [
        (other_plane, address)
        for other in site.hosts.values()
        for other_plane, i in other.interfaces.items()
        if (address := i.address(family))
    ]
    here = [address for plane, address in everyone if plane == interface.plane]
    own = [i.address(family) for i in host.interfaces.values() if i.address(family)]
    stranger = "203.0.113.9" if family == 4 else "2001:db8::9"
    segments = [text for _, s in site.planes[interface.plane].segments() for text in s.subnets()]
    clients = [
        text.replace("0/24", "200") if family == 4 else text.replace("/64", "200")
        for text in segments
        if (":" in text) == (family == 6)
    ]
    mine = [interface.address(family)] if interface.address(family) else []
    proto = chance.choice(["tcp", "tcp", "tcp", "tcp", "udp", "icmp"])
    types = [
        *ECHO[family],
        *ICMP_ERRORS[family],
        *([133, 134, 135, 136, 130, 143] if family == 6 else [5, 13]),
    ]
    ports = [*sorted({flow.port for flow in site.flows if flow.plane == interface.plane}) * 3, *PORTS]
    strangers = [stranger] if family == 4 else [stranger, "fe80::9"]
    senders = [here, here, [address for _, address in everyone], clients, strangers]
    receivers = [mine, mine, mine, mine, own, [stranger], [address for _, address in everyone]]
    return interface.device, Packet(
        family=family,
        saddr=chance.choice(chance.choice([pool for pool in senders if pool])),
        daddr=chance.choice(chance.choice([pool for pool in receivers if pool])),
        proto=proto,
        sport=chance.choice(ports),
        dport=chance.choice(ports),
        syn=chance.random() < 0.5,
        ack=chance.random() < 0.5,
        icmp_type=chance.choice(types) if proto == "icmp" else 0,
        hop_limit=chance.choice([255, 255, 64, 1]),
    )
