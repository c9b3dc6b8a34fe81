"""Filters that hand the compilers of module_utils/sideband to plays and templates."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

# Every process that Ansible forks for a task reads all filter files as soon as one filter of ours is used:
# what is heavy to import (jsonschema: a quarter of a second) is imported where it is needed.


@functools.cache
def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def _spelling(value: Any) -> str:
    """How a number is written in its file: YAML 1.1 reads 010 as 8 and tells nobody."""
    origin = Origin.get_tag(value)
    if origin is None or not origin.path or not origin.line_num or not origin.col_num:
        return ""
    try:
        text = _lines(origin.path)[origin.line_num - 1][origin.col_num - 1 :]
    except (OSError, IndexError):
        return ""
    return re.split(r"[\s,\]}#]", text, maxsplit=1)[0]


def sideband_deployed(hostvars: Any, records: str, groups: Any) -> dict[str, Any]:
    """What the last complete run recorded: `hostvars | sideband_deployed(directory of records, groups)`;
    empty where nothing is. The site's name is read here because a contract that does not hold may have
    none."""
    site = next(filter(None, (_text(hostvars[host], "sideband_site") for host in hostvars)), "")
    path = Path(records, site, "deployed.json")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", site):
        return {}
    from sideband.deployed import elsewhere, read

    if path.is_file():
        return read(path)
    lakes = {host: _text(hostvars[host], "ansible_host") or host for host in groups.get("sideband_lake", ())}
    return elsewhere(Path(records), site, lakes)


def _text(variables: Any, name: str) -> str:
    """A variable as text; '' where its template cannot be resolved, which the checks say in their words."""
    try:
        return str(variables.get(name, ""))
    except Exception:
        return ""


def sideband_hosts(groups: Any) -> list[str]:
    """The hosts that the contract is about: `groups | sideband_hosts`."""
    from sideband.load import contract_hosts

    return contract_hosts(groups)


def sideband_record(model: Any) -> dict[str, Any]:
    """What is in force after a complete run: `sideband_model | sideband_record`."""
    from sideband.deployed import record

    return record(model)


def sideband_errors(hostvars: Any, groups: Any, deployed: Any = None) -> list[str]:
    """Every fault of the contract, a line each: `hostvars | sideband_errors(groups, deployed)`."""
    from sideband import sources
    from sideband.check import check_site
    from sideband.deployed import CONFIRM_NAME
    from sideband.shape import settings

    places = {_text(hostvars[host], "inventory_dir") for host in hostvars} - {"", "None"}
    books = {_text(hostvars[host], "playbook_dir") for host in list(hostvars)[:1]} - {""}
    found = sources.twice(places) + sources.strays(places, map(str, hostvars), map(str, groups))
    found += sources.beside(books, places)
    # Only who starts the run may confirm: a variable of the inventory would confirm for ever.
    confirmed = str(load_extra_vars(DataLoader()).get(CONFIRM_NAME, ""))
    found += check_site(hostvars, groups, settings(), _spelling, deployed, confirmed, served=True)
    return [str(error) for error in found]


def sideband_extras(_: Any) -> list[str]:
    """What must not come with -e, a line each: it would stand in for what is checked and compiled here."""
    from sideband.rules_names import extras

    return [str(error) for error in extras(load_extra_vars(DataLoader()))]


def sideband_compile(hostvars: Any, groups: Any) -> dict[str, Any]:
    """The site's model from the whole inventory: `hostvars | sideband_compile(groups)`."""
    from sideband.contract import compile_site

    return compile_site(hostvars, groups)


def sideband_plan(model: Any, deployed: Any = None) -> list[str]:
    """The capacity plan as lines of text: `sideband_model | sideband_plan(deployed)`."""
    from sideband.plan import plan_lines

    return plan_lines(model, deployed)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_errors": sideband_errors,
            "sideband_compile": sideband_compile,
            "sideband_extras": sideband_extras,
            "sideband_plan": sideband_plan,
            "sideband_deployed": sideband_deployed,
            "sideband_record": sideband_record,
            "sideband_hosts": sideband_hosts,
        }
