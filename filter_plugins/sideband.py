"""Filters that hand the compilers of module_utils/sideband to plays and templates."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

# Every process that Ansible forks for a task reads all filter files as soon as one filter of ours is used:
# what is heavy to import (jsonschema: a quarter of a second) is imported where it is needed.


def _read_by_roles() -> frozenset[str]:
    """The variables that a role or a play reads: any other `sideband_*` name would do nothing."""
    names: set[str] = set()
    for folder in ("roles", "playbooks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".yml", ".j2") and path.is_file():
                names.update(re.findall(r"\bsideband_\w+", path.read_text(encoding="utf-8")))
    return frozenset(names)


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


def sideband_deployed(hostvars: Any, records: str) -> dict[str, Any]:
    """What the last complete run recorded: `hostvars | sideband_deployed(directory of records)`; empty where
    nothing is. The site's name is read here because a contract that does not hold may have none."""
    site = next(filter(None, (_text(hostvars[host], "sideband_site") for host in hostvars)), "")
    path = Path(records, site, "deployed.json")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", site) or not path.is_file():
        return {}
    from sideband.deployed import read

    return read(path)


def _text(variables: Any, name: str) -> str:
    """A variable as text; '' where its template cannot be resolved, which the checks say in their words."""
    try:
        return str(variables.get(name, ""))
    except Exception:
        return ""


def sideband_record(model: Any) -> dict[str, Any]:
    """What is in force after a complete run: `sideband_model | sideband_record`."""
    from sideband.deployed import record

    return record(model)


def sideband_errors(hostvars: Any, groups: Any, deployed: Any = None, confirmed: str = "") -> list[str]:
    """Every fault of the contract, a line each: `hostvars | sideband_errors(groups, deployed, confirmed)`."""
    from sideband.check import check_site
    from sideband.sources import strays, twice

    known = _read_by_roles()
    places = {_text(hostvars[host], "inventory_dir") for host in hostvars} - {"", "None"}
    found = twice(places) + strays(places, map(str, hostvars), map(str, groups))
    found += check_site(hostvars, groups, known, _spelling, deployed, str(confirmed), served=True)
    return [str(error) for error in found]


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
            "sideband_plan": sideband_plan,
            "sideband_deployed": sideband_deployed,
            "sideband_record": sideband_record,
        }
