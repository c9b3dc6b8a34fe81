"""Rules about names: of variables, of groups, and of one value for a site."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from .errors import Error, nearest
from .facts import Facts, rule
from .load import HOST_NOUNS, PREFIX, RESULTS, SITE, SITE_NOUNS, SITE_SETTINGS
from .model import WORDS

REMOVED = Path(__file__).resolve().parent.parent.parent / "schemas" / "removed.yml"


@functools.cache
def removed(path: Path = REMOVED) -> Mapping[str, Mapping[str, str]]:
    """Names that were: {old: {successor, since}}."""
    table: Mapping[str, Mapping[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return table


@rule()
def names(facts: Facts) -> Iterator[Error]:
    """A misspelt variable is silently ignored by Ansible; not by us."""
    nouns = {PREFIX + noun for noun in (*SITE_NOUNS, *HOST_NOUNS)}
    known = nouns | facts.known | RESULTS
    said: set[str] = set()
    for host, variables in facts.inventory.names.items():
        for name in variables:
            if name in known or name in said:
                continue
            problem, hint = _name_fault(name, sorted(nouns | facts.known))
            if problem:
                everywhere = all(name in others for others in facts.inventory.names.values())
                if everywhere:
                    said.add(name)
                yield Error(SITE if everywhere else host, name, problem, hint=hint)


def extras(given: Iterable[str]) -> Iterator[Error]:
    """Extra variables win over everything that plays set, the result of these checks among it."""
    for name in sorted(map(str, given)):
        if name in RESULTS or name.startswith("__"):
            yield Error(SITE, name, "is set by plays while they run", hint="leave it out of -e")


def _name_fault(name: str, known: list[str]) -> tuple[str, str]:
    if name in removed():
        was = removed()[name]
        return f"is gone since {was['since']}", f"use {was['successor']}"
    bare = [word[len(PREFIX) :] for word in known]
    if name.startswith(PREFIX):
        return "unknown variable", _nearest_name(name[len(PREFIX) :], bare) or "no role reads it; remove it"
    stem = re.split(r"[_-]", name, maxsplit=1)[0]
    if distance(stem.lower(), "sideband") <= 2 and len(name) > len(stem):
        wanted = name[len(stem) + 1 :].lower().replace("-", "_")
        close = _nearest_name(wanted, bare) or f"ours begin with {PREFIX!r}"
        return "looks like a variable of ours, and is none", close
    return "", ""


def _nearest_name(word: str, bare: list[str]) -> str:
    """The prefix is left out of the comparison: it would make any two names look alike."""
    return nearest(word, bare, "").replace("did you mean '", f"did you mean '{PREFIX}")


def distance(one: str, two: str) -> int:
    """How many letters to add, take, change or swap with the next (two swaps away is another word)."""
    rows = [list(range(len(two) + 1))]
    for i, left in enumerate(one, 1):
        row = [i]
        for j, right in enumerate(two, 1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == two[j - 2] and one[i - 2] == right:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


@rule()
def one_value(facts: Facts) -> Iterator[Error]:
    apart: dict[str, list[str]] = {}
    for host, noun in facts.inventory.differing:
        apart.setdefault(noun, []).append(host)
    for noun, hosts in apart.items():
        hint = _at_home(noun)
        if 1 < len(hosts) == len(facts.inventory.hosts) - 1:
            yield Error(SITE, PREFIX + noun, "differs from host to host", hint=hint)
            continue
        for host in hosts:
            yield Error(host, PREFIX + noun, "differs from the other hosts' value", hint=hint)
    for noun, hosts in facts.inventory.lacking.items():
        names = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
        yield Error(SITE, PREFIX + noun, f"is not there for {names}", hint=_at_home(noun))


def _at_home(noun: str) -> str:
    if noun in SITE_SETTINGS:
        return "it has one value for the whole site; keep it in group_vars/all"
    return f"a noun has one value for the whole site; keep it in group_vars/all/{noun}.yml"


@rule()
def some_hosts(facts: Facts) -> Iterator[Error]:
    if not facts.inventory.hosts:
        yield Error(
            SITE, "groups.sideband", "has no hosts", hint="put the site's hosts into sideband_<word> groups"
        )
    for group in sorted(facts.inventory.groups):
        word = group[len(PREFIX) :]
        if group.startswith(PREFIX) and word not in WORDS and not word.startswith("ring_"):
            hint = nearest(group, [PREFIX + known for known in WORDS], "groups of the house: ")
            yield Error(SITE, f"groups.{group}", "is no group of the house", hint=hint)
        elif _looks_like(group):
            problem = "looks like a group of ours, and is none"
            yield Error(SITE, f"groups.{group}", problem, hint=f"did you mean {_looks_like(group)!r}?")


def _looks_like(group: str) -> str:
    """The group of ours whose name differs by two letters at most; a site's own groups differ by more."""
    close = [
        known
        for known in (PREFIX + word for word in WORDS)
        if distance(group.lower().replace("-", "_"), known) <= 2
    ]
    return close[0] if close and not group.startswith(PREFIX) else ""
