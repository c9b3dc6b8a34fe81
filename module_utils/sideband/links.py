"""What a host and a switch are told about their links: the fragments of roles `planes` and `fabric`.

The contract's compilers say which addresses, rules, shapes and VLANs there are; this says in which files a
system keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NETWORKD = "/etc/systemd/network"
RT_TABLES = "/etc/iproute2/rt_tables.d"
IFUPDOWN = "/etc/network/interfaces.d/sideband"
RULES = "/etc/sideband/nftables/sideband.nft"
BRIDGE = "sideband0"


def network_file(interface: Mapping[str, Any]) -> str:
    """One systemd-networkd file. Addresses are up without a carrier, so daemons can bind before the switch
    is there; router advertisements and DHCP stay out: a plane's routes are its own subnets."""
    addresses = [interface[key] for key in ("cidr4", "cidr6") if interface[key]]
    lines = [
        "[Match]",
        f"Name={interface['device']}",
        "",
        "[Link]",
        "RequiredForOnline=no",
        "",
        "[Network]",
        *(f"Address={address}" for address in addresses),
        "LinkLocalAddressing=ipv6",
        "IPv6AcceptRA=no",
        "DHCP=no",
        "LLMNR=no",
        "MulticastDNS=no",
        "EmitLLDP=no",
        "ConfigureWithoutCarrier=yes",
    ]
    return "\n".join(lines) + "\n"


def network_path(interface: Mapping[str, Any]) -> str:
    return f"{NETWORKD}/50-sideband-{interface['device']}.network"


def planes_fragment(
    host: Mapping[str, Any], programs: Mapping[str, str], guard_seconds: int, accept_rivals: Sequence[str]
) -> dict[str, Any]:
    """Links, rules and shapes of one host. `programs` maps the paths of our units and scripts to their text;
    a host with nothing to load at boot gets none of them."""
    managed = [interface for interface in host["interfaces"].values() if interface["managed"]]
    fragment: dict[str, Any] = {
        "software": ["iproute", "traffic_control", *(["networkd"] if managed else [])],
        "files": [{"path": network_path(one), "content": network_file(one)} for one in managed],
        "guarded": True,
        "guard_seconds": guard_seconds,
    }
    if managed:
        fragment["units"] = [{"name": "systemd-networkd.service", "enabled": True, "running": True}]
        fragment["network"] = {
            "reload": "networkctl",
            "paths": [network_path(one) for one in managed],
            "addresses": [
                {"device": one["device"], "address": one[key]}
                for one in managed
                for key in ("cidr4", "cidr6")
                if one[key]
            ],
            "accept_rivals": list(accept_rivals),
        }
    if host["ruleset"] or host["shapes"]:
        fragment["software"].append("nftables")
        fragment["nftables"] = {
            "path": RULES,
            "family": "netdev",
            "table": "sideband",
            "ruleset": host["ruleset"],
        }
        fragment["shapes"] = list(host["shapes"])
        fragment["files"] += [
            {"path": path, "content": text, "mode": "0755" if text.startswith("#!") else "0644"}
            for path, text in sorted(programs.items())
        ]
        fragment["units"] = fragment.get("units", []) + [
            {"name": "sideband-planes.service", "enabled": True, "running": True},
            {
                "name": "sideband-planes-watch.service",
                "enabled": True,
                "running": True,
                "restart_on": sorted(path for path in programs if not path.endswith(".service")),
            },
        ]
    return fragment


def bridge_file(ports: Sequence[Mapping[str, Any]], vlans: Sequence[int]) -> str:
    """One VLAN-aware bridge for ifupdown2. The switch has no address on it: no plane ends here."""
    lines = ["# What port is in which VLAN; compiled from the contract."]
    for port in ports:
        lines += [
            "",
            f"# {port['host']}, {port['plane']}",
            f"auto {port['port']}",
            f"iface {port['port']}",
            f"    bridge-access {port['vlan']}",
        ]
    lines += [
        "",
        f"auto {BRIDGE}",
        f"iface {BRIDGE}",
        f"    bridge-ports {' '.join(port['port'] for port in ports)}",
        "    bridge-vlan-aware yes",
        f"    bridge-vids {' '.join(str(vlan) for vlan in vlans)}",
        "    bridge-stp off",
        "    bridge-mcsnoop no",
    ]
    return "\n".join(lines) + "\n"


def fabric_fragment(
    switch: Mapping[str, Any], guard_seconds: int, accept_rivals: Sequence[str]
) -> dict[str, Any]:
    """A switch with ifupdown2. Its own management port is not on the bridge and is not named here."""
    return {
        "software": ["ifupdown2"],
        # ifupdown2 writes a map there at every change of a bridge, and fails where a newer iproute2 has none.
        "directories": [{"path": RT_TABLES, "mode": "0755"}],
        "files": [{"path": IFUPDOWN, "content": bridge_file(switch["ports"], switch["vlans"])}],
        "network": {
            "reload": "ifreload",
            "paths": [IFUPDOWN],
            "vlans": [{"port": port["port"], "vlan": port["vlan"]} for port in switch["ports"]],
            "accept_rivals": list(accept_rivals),
        },
        "guarded": True,
        "guard_seconds": guard_seconds,
    }
