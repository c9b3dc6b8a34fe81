"""Rules about ways in: how Ansible reaches a host, and where hosts reach the site's mirror."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from .errors import Error, got
from .facts import Facts, rule
from .load import PREFIX

LOCAL = ("local", "ansible.builtin.local")
SSH = "22"
# Who may be the machine that Ansible runs on: no hop of the data's way, and no switch.
MANAGERS = {"mirror", "pki", "policy"}
WEB = {"http": 80, "https": 443}


@rule()
def ways_in(facts: Facts) -> Iterator[Error]:
    """How Ansible reaches a host: by name or bare address; one host behind each, and none of them here."""
    owners: dict[tuple[str, str], str] = {}
    many = len(facts.inventory.hosts) > 1
    for host, way in facts.inventory.ways.items():
        yield from (
            Error(host, name, "is an old name", hint=f"write {name.replace('ssh_', '')}; we read no other")
            for name in way.old
        )
        faults = [*_odd_address(host, way.host), *_odd_port(host, way.port)]
        yield from faults
        if faults:
            continue
        here, address = way.connection in LOCAL, _place(way.host or host)
        port = str(way.port or SSH)
        if many and here and not set(facts.words(host)) <= MANAGERS:
            hint = "remove it; of many hosts only one for management may be the machine that Ansible runs on"
            yield Error(host, "ansible_connection", "is the controller itself", got(way.connection), hint)
        elif many and not here and not way.jumps and port == SSH and _loops(address):
            hint = "give the host's own; what is meant for it would be done to where Ansible runs"
            yield Error(host, "ansible_host", "is the controller itself", got(way.host or host), hint)
        key = ("the controller", "") if here else (address, port)
        owner = owners.setdefault(key, host)
        if owner != host:
            yield Error(
                host,
                "ansible_connection" if here else "ansible_host",
                f"is the way to {owner} too" if here else f"is the address of {owner} too",
                got(way.connection if here else way.host or host),
                "each host has its own; two names for one host are one host too many",
            )


def _place(text: str) -> str:
    """One spelling for each address or name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text.lower().rstrip(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _loops(place: str) -> bool:
    try:
        return ipaddress.ip_address(place).is_loopback
    except ValueError:
        return place == "localhost"


def _odd_address(host: str, address: object) -> Iterator[Error]:
    problem, hint = "", ""
    if address is None or address == "":
        return
    if not isinstance(address, str):
        problem, hint = "is no text", "write a name or an address, bare; in quotes where YAML reads a number"
    elif bracketed := re.fullmatch(r"\[(.*)\](?::[0-9]+)?", address):
        problem = "is an address in brackets"
        hint = f"write it bare, {bracketed.group(1)!r}; a port goes into ansible_port"
    elif re.search(r"\s", address):
        problem, hint = "has a blank in it", "write a name or an address, bare"
    elif re.fullmatch(r"[^:]+:[0-9]+", address):
        problem, hint = "has a port in it", f"put {address.rpartition(':')[2]} into ansible_port"
    elif re.fullmatch(r"[0-9.]+", address) and not _is_address(address):
        problem, hint = "is no whole IPv4 address", "four numbers, for example 10.21.0.11"
    elif ":" in address and not _is_address(address):
        problem, hint = "is no IPv6 address", 'in quotes, without brackets, for example "fd00:21::11"'
    if problem:
        yield Error(host, "ansible_host", problem, got(address), hint)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _odd_port(host: str, port: object) -> Iterator[Error]:
    if port is None or port == "":
        return
    number = int(port) if isinstance(port, str) and re.fullmatch("[0-9]{1,9}", port) else port
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 65535:
        yield Error(host, "ansible_port", "must be a port, 1 to 65535", got(port), "for example 22")


@rule()
def mirrored(facts: Facts) -> Iterator[Error]:
    """Where the mirror's host listens is where others ask, unless something of the site's stands between."""
    ports = {
        host: one.value
        for one in facts.inventory.settings.get(f"{PREFIX}mirror_port", [])
        for host in one.hosts
        if one.usable
    }
    said: set[tuple[str, str]] = set()
    for _, name, text in facts.inventory.urls:
        for host in facts.members(f"{PREFIX}mirror") if name == f"{PREFIX}mirror_url" else ():
            asked = _port_of(text, _places(facts, host))
            if asked and host in ports and str(ports[host]) != str(asked) and (host, text) not in said:
                said.add((host, text))
                problem, hint = "is not the port of the URL", f"{name} asks this host at {asked}"
                yield Error(host, f"{PREFIX}mirror_port", problem, got(ports[host]), hint)


def _places(facts: Facts, host: str) -> set[str]:
    given = facts.inventory.hosts[host].get("addresses") if (host, "addresses") in facts.right else None
    addresses = [end[key] for end in (given or {}).values() for key in ("ipv4", "ipv6") if key in end]
    return {_place(text) for text in (host, str(facts.inventory.hosts[host]["address"]), *addresses)}


def _port_of(url: str, places: set[str]) -> int:
    """The port that a URL asks for, 0 where it asks another host or is none."""
    try:
        parts = urlsplit(url)
        known = parts.hostname is not None and _place(parts.hostname) in places
        return (parts.port or WEB.get(parts.scheme, 0)) if known else 0
    except ValueError:
        return 0
