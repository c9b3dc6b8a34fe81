"""Links and bridge ports: reload of the network's own manager, addresses in use, VLAN entries."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from .change import Change
from .system import StateError, System

# What systemd-networkd sets in the kernel for any link that it is given, and leaves so when it is given it no
# more (networkd 252 to 257, seen on hosts).
SETTINGS = {"networkctl": ("ipv4/conf/{}/promote_secondaries", "ipv6/conf/{}/accept_ra"), "ifreload": ()}
RELOADS = {"networkctl": ["networkctl", "reload"], "ifreload": ["ifreload", "-a"]}


@dataclass(frozen=True)
class Network:
    reload: str
    paths: tuple[str, ...]
    addresses: tuple[tuple[str, str], ...] = ()  # (device, "10.21.0.11/24")
    vlans: tuple[tuple[str, int], ...] = ()  # (bridge port, access VLAN)
    accept_rivals: tuple[str, ...] = ()
    kind = "network"

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(sorted({device for device, _ in self.addresses} | {port for port, _ in self.vlans}))


def read_addresses(system: System) -> dict[tuple[str, str], str] | None:
    """(device, cidr) -> "ready", "tentative" or "dadfailed"; None where `ip` cannot say."""
    result = system.run(["ip", "-j", "address", "show"])
    if result.rc != 0:
        return None
    found: dict[tuple[str, str], str] = {}
    for link in json.loads(result.out or "[]"):
        for entry in link.get("addr_info", []):
            if "local" in entry:
                state = (
                    "dadfailed"
                    if entry.get("dadfailed")
                    else "tentative"
                    if entry.get("tentative")
                    else "ready"
                )
                found[(link["ifname"], f"{entry['local']}/{entry['prefixlen']}")] = state
    return found


def read_vlans(system: System, ports: list[str]) -> dict[str, list[tuple[int, bool]]]:
    """Port -> [(VLAN, is it the untagged PVID)]."""
    result = system.run(["bridge", "-j", "vlan", "show"])
    found: dict[str, list[tuple[int, bool]]] = {port: [] for port in ports}
    if result.rc == 0:
        for link in json.loads(result.out or "[]"):
            if link.get("ifname") in found:
                for entry in link.get("vlans", []):
                    flags = set(entry.get("flags", []))
                    for vlan in range(entry["vlan"], entry.get("vlanEnd", entry["vlan"]) + 1):
                        found[link["ifname"]].append((vlan, {"PVID", "Egress Untagged"} <= flags))
    return found


def read_links(system: System) -> dict[str, bool]:
    """Device -> whether it is set up."""
    result = system.run(["ip", "-j", "link", "show"])
    if result.rc != 0:
        return {}
    return {link["ifname"]: "UP" in link.get("flags", []) for link in json.loads(result.out or "[]")}


def read_settings(system: System, reload: str, device: str) -> dict[str, str]:
    """Path below /proc/sys/net -> value, of those that the link's manager will set."""
    found = {}
    for place in SETTINGS[reload]:
        value = system.content(f"/proc/sys/net/{place.format(device)}")
        if value is not None:
            found[place.format(device)] = value.decode().strip()
    return found


def plan_given_up(system: System, ledger: dict[str, Any], want: Network | None) -> list[Change]:
    """What an earlier generation set and this one does not: managers leave addresses on links that they are
    no longer told about. A link goes back to being down if it was down before us."""
    if not ledger:
        return []
    changes: list[Change] = []
    if want is None:
        changes.append(Change("old network", ledger["reload"], "reload", "its files are wanted no more"))
    have = read_addresses(system) or {}
    kept = set(want.addresses) if want else set()
    for device, cidr in ledger["addresses"]:
        if (device, cidr) in have and (device, cidr) not in kept:
            changes.append(Change("old address", f"{cidr} {device}", "remove"))
    links = read_links(system)
    for device, was_up in sorted(ledger["links"].items()):
        if device not in (want.devices if want else ()) and device in links and links[device] != was_up:
            changes.append(Change("old link", device, "up" if was_up else "down", "as it was before"))
    for device, before in sorted(ledger.get("settings", {}).items()):
        if device not in (want.devices if want else ()):
            now = read_settings(system, ledger["reload"], device)
            changes += [
                Change("old setting", f"/proc/sys/net/{path}", value, "as it was before")
                for path, value in before.items()
                if now.get(path, value) != value
            ]
    return changes


def give_up(system: System, changes: list[Change]) -> None:
    for change in changes:
        if change.kind == "old network" and system.run(RELOADS[change.name], timeout=90).rc not in (0, 127):
            raise StateError(
                f"`{' '.join(RELOADS[change.name])}` failed; look at `journalctl -u systemd-networkd`"
            )
    have = read_addresses(system) or {}
    for change in changes:
        if change.kind == "old address":
            cidr, device = change.name.split()
            if (device, cidr) in have:
                system.must(["ip", "address", "del", cidr, "dev", device], "look at `ip address`")
        elif change.kind == "old link":
            system.must(["ip", "link", "set", "dev", change.name, change.action], "look at `ip link`")
        elif change.kind == "old setting":
            with open(system.at(change.name), "w", encoding="ascii") as file:
                file.write(change.action)


def plan(system: System, want: Network, stale: str) -> list[Change]:
    """`stale` says why the files call for a reload, or is empty."""
    changes: list[Change] = []
    have = read_addresses(system) or {}
    lost = [f"{cidr} on {device}" for device, cidr in want.addresses if (device, cidr) not in have]
    if stale or lost:
        changes.append(Change("network", want.reload, "reload", stale or f"missing: {', '.join(lost)}"))
    vlans = read_vlans(system, [port for port, _ in want.vlans])
    for port, vlan in want.vlans:
        if vlans[port] != [(vlan, True)]:
            now = (
                ", ".join(f"{number}{' untagged' if access else ''}" for number, access in vlans[port])
                or "none"
            )
            changes.append(Change("bridge port", port, f"VLAN {vlan}", f"has {now}"))
    return changes


def apply(system: System, want: Network, changes: list[Change]) -> None:
    if any(change.kind == "network" for change in changes):
        system.must(RELOADS[want.reload], f"the network files are {', '.join(want.paths)}", timeout=90)
        if want.reload == "networkctl":
            # A reload looks at changed files only; an address that was taken away by hand needs more.
            have = read_addresses(system) or {}
            lost = sorted({device for device, cidr in want.addresses if (device, cidr) not in have})
            if lost:
                system.must(["networkctl", "reconfigure", *lost], "look at `networkctl status`", timeout=60)
    if want.vlans:
        repair_vlans(system, want)
    wait_for_addresses(system, want)


def repair_vlans(system: System, want: Network) -> None:
    """Whatever the manager's reload left different is set entry by entry."""
    have = read_vlans(system, [port for port, _ in want.vlans])
    lines = []
    for port, vlan in want.vlans:
        if have[port] != [(vlan, True)]:
            lines += [f"vlan del dev {port} vid {number}" for number, _ in have[port] if number != vlan]
            lines.append(f"vlan add dev {port} vid {vlan} pvid untagged")
    if lines:
        system.must(["bridge", "-batch", "-"], "look at `bridge vlan show`", stdin="\n".join(lines) + "\n")


def wait_for_addresses(system: System, want: Network, seconds: float = 15) -> None:
    """An IPv6 address is usable only after duplicate address detection."""
    deadline = time.monotonic() + seconds
    while True:
        have = read_addresses(system) or {}
        waiting = {
            f"{cidr} on {device}": have.get((device, cidr), "missing") for device, cidr in want.addresses
        }
        waiting = {name: state for name, state in waiting.items() if state != "ready"}
        if not waiting:
            return
        if any(state == "dadfailed" for state in waiting.values()) or time.monotonic() >= deadline:
            told = "; ".join(f"{name} is {state}" for name, state in waiting.items())
            hint = (
                "another machine has this address"
                if "dadfailed" in waiting.values()
                else "look at `networkctl status` and at the link's carrier"
            )
            raise StateError(f"addresses are not usable: {told}; {hint}")
        time.sleep(0.2)
