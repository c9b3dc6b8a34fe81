"""From an inventory's variables to plain data: what a contract's checks and compilers start from.

The inventory reaches us as mappings that may hold anything: vaulted values, wrappers that subclass str and
int, a structure that contains itself. Here it becomes builtins once, and what cannot is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import Error
from .model import WORDS

SITE = "all"
SITE_NOUNS = ("site", "planes", "zones", "flows", "ladder", "tiers", "tenants", "versions")
HOST_NOUNS = ("rack", "addresses", "fabric_ports")
PREFIX = "sideband_"


@dataclass
class Inventory:
    """The contract as the inventory gives it, in builtins, unchecked."""

    nouns: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    errors: list[Error] = field(default_factory=list)


class _Unusable(Exception):
    def __init__(self, path: str, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.path, self.problem, self.hint = path, problem, hint


def _is_vaulted(value: object) -> bool:
    if hasattr(value, "_ciphertext"):
        return True
    if isinstance(value, Mapping):
        return "__ansible_vault" in value
    return isinstance(value, str) and value.startswith("$ANSIBLE_VAULT")


def plain(value: Any, path: str, above: tuple[int, ...] = ()) -> Any:
    """Builtins only, the same content; raises on a vaulted value and on a structure that contains itself."""
    if _is_vaulted(value):
        raise _Unusable(
            path, "a vaulted value inside the contract", "the contract holds no secrets; keep them in a file of their own"
        )
    if isinstance(value, bool) or value is None:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if id(value) in above:
        raise _Unusable(path, "contains itself", "remove the alias (*name) that points at what surrounds it")
    if isinstance(value, Mapping):
        return {
            plain(key, path): plain(value[key], f"{path}.{key}", (*above, id(value))) for key in list(value)
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{path}[{number}]", (*above, id(value))) for number, item in enumerate(value)]
    return str(value)


def contract_hosts(groups: Mapping[str, Iterable[str]]) -> list[str]:
    """The hosts that the contract is about: all in `sideband` or in any `sideband_<word>`."""
    hosts: set[str] = set()
    for group in ("sideband", *(f"{PREFIX}{word}" for word in WORDS)):
        hosts.update(str(host) for host in groups.get(group, ()))
    return sorted(hosts)


def gather(hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]]) -> Inventory:
    """Read the whole inventory's contract. A noun is read from the first host that has it; a host whose value
    differs is a later check's finding, so the values of all are compared here."""
    inventory = Inventory(groups={str(name): sorted(map(str, hosts)) for name, hosts in groups.items()})
    for name in contract_hosts(groups):
        variables = hostvars[name]
        inventory.names[name] = sorted(str(key) for key in variables)
        inventory.hosts[name] = {
            "words": [word for word in WORDS if name in inventory.groups.get(f"{PREFIX}{word}", ())],
            "address": str(variables.get("ansible_host") or name),
        }
        for noun in HOST_NOUNS:
            _read(inventory, variables, noun, name, inventory.hosts[name])
        _read_nouns(inventory, variables, name)
    return inventory


def _read(
    inventory: Inventory, variables: Mapping[str, Any], noun: str, host: str, into: dict[str, Any]
) -> None:
    name = PREFIX + noun
    if name not in variables:
        return
    try:
        into[noun] = plain(variables[name], name)
    except _Unusable as unusable:
        inventory.errors.append(Error(host, unusable.path, unusable.problem, hint=unusable.hint))


def _read_nouns(inventory: Inventory, variables: Mapping[str, Any], host: str) -> None:
    for noun in SITE_NOUNS:
        if noun in inventory.nouns:
            continue
        before = len(inventory.errors)
        _read(inventory, variables, noun, SITE, inventory.nouns)
        if len(inventory.errors) > before:
            inventory.nouns[noun] = None
