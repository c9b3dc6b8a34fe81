"""The lab's contract as plain data for tests, and small changes to it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from sideband.load import PREFIX, SITE_NOUNS
from sideband.model import WORDS

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "inventories" / "lab"
SINGLE = ROOT / "inventories" / "single"


class SpeltInt(int):
    """A whole number that remembers how its file spells it, as the inventory's loader does."""

    spelling = ""


class Vaulted:
    """What the inventory's loader makes of `!vault`."""

    def __init__(self, ciphertext: str) -> None:
        self._ciphertext = ciphertext


class InventoryLoader(yaml.SafeLoader):
    """YAML 1.1 as Ansible reads it."""


def _int(loader: InventoryLoader, node: yaml.ScalarNode) -> SpeltInt:
    value = SpeltInt(loader.construct_yaml_int(node))
    value.spelling = str(node.value)
    return value


InventoryLoader.add_constructor("tag:yaml.org,2002:int", _int)
InventoryLoader.add_constructor("!vault", lambda loader, node: Vaulted(str(node.value)))


def spelling(value: Any) -> str:
    return getattr(value, "spelling", "")


def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), InventoryLoader)


HostVars = dict[str, dict[str, Any]]
Groups = dict[str, list[str]]


@functools.cache
def _lab() -> tuple[HostVars, Groups]:
    groups: dict[str, set[str]] = {}

    def walk(name: str, spec: Mapping[str, Any] | None) -> set[str]:
        """A group may be named in several places; what its hosts and children are is said in one of them."""
        hosts = set((spec or {}).get("hosts") or {}) | groups.get(name, set())
        for child, inside in ((spec or {}).get("children") or {}).items():
            hosts |= walk(child, inside)
        groups[name] = hosts
        return hosts

    walk("all", load(LAB / "hosts.yml")["all"])
    site: dict[str, Any] = {}
    for path in sorted((LAB / "group_vars" / "all").iterdir()):
        # Only the contract's own nouns: the variables of roles are their roles' business.
        loaded = load(path) or {}
        site.update(
            # and the site's own that nouns name
            {name: value for name, value in loaded.items()
             if name[len(PREFIX) :] in SITE_NOUNS or name.startswith("lab_")}
        )  # fmt: skip
    hosts = {
        path.stem: {**site, "inventory_hostname": path.stem, **load(path)}
        for path in sorted((LAB / "host_vars").iterdir())
    }
    return hosts, {name: sorted(members) for name, members in groups.items()}


def lab() -> tuple[HostVars, Groups]:
    """(hostvars, groups) of the lab, free to change."""
    return copy.deepcopy(_lab())


def single(components: list[Any]) -> tuple[HostVars, Groups]:
    """(hostvars, groups) of inventories/single with these components; its templates are said in Python."""
    read: dict[str, Any] = {}
    for path in sorted((SINGLE / "group_vars" / "all").iterdir()):
        read.update(load(path) or {})
    flows = read["single_flows"] + (read["single_flows_of_gateway"] if "gateway" in components else [])
    if "gateway" in components and "alerts" in components:
        flows = flows + read["single_flows_of_alerts"]
    if "archive" in components:
        flows = flows + read["single_flows_of_archive"]
    site = {name: value for name, value in read.items() if name[len(PREFIX) :] in SITE_NOUNS}
    site.update(sideband_flows=flows, sideband_components=components)
    (path,) = (SINGLE / "host_vars").iterdir()
    host = {**site, "inventory_hostname": path.stem, **load(path)}
    groups = {"all": [path.stem], "sideband": [path.stem], "sideband_policy": [path.stem]}
    groups.update({f"sideband_{word}": [path.stem] for word in WORDS if word in components})
    return {path.stem: host}, groups


def _step(value: Any, step: str) -> Any:
    if isinstance(value, list):
        named = [item for item in value if isinstance(item, dict) and item.get("name") == step]
        return named[0] if named else value[int(step)]
    return value[step]


def _place(value: Any, path: str) -> tuple[Any, Any]:
    *steps, last = path.split(".")
    for step in steps:
        value = _step(value, step)
    if isinstance(value, list):
        return value, value.index(_step(value, last)) if not last.isdigit() else int(last)
    return value, last


def change(hostvars: HostVars, groups: Groups, spec: Mapping[str, Any]) -> tuple[HostVars, Groups]:
    """A changed copy. `set`: {path: value}; `remove`: [path]; `add`: {path of a list: item}; `groups`: {name:
    hosts}. A path begins with a host's name, or with `all` for every host."""
    # Host by host: a copy of the whole would keep what hosts share, and each change would come ten times.
    hostvars = {name: copy.deepcopy(variables) for name, variables in hostvars.items()}
    groups = copy.deepcopy(groups)
    groups.update({name: list(hosts) for name, hosts in spec.get("groups", {}).items()})

    def roots(path: str) -> tuple[list[dict[str, Any]], str]:
        first, _, rest = path.partition(".")
        return ([hostvars[name] for name in hostvars] if first == "all" else [hostvars[first]]), rest

    for path, value in spec.get("set", {}).items():
        for root in roots(path)[0]:
            where, last = _place(root, roots(path)[1])
            where[last] = value
    for path, item in spec.get("add", {}).items():
        for root in roots(path)[0]:
            where, last = _place(root, roots(path)[1])
            where[last] = [*where[last], item]
    for path in spec.get("remove", []):
        for root in roots(path)[0]:
            where, last = _place(root, roots(path)[1])
            del where[last]
    return hostvars, groups
