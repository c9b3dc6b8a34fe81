"""Whom a series tells of: of a node, a GPU or a job (A2, Q5; docs/adr/0009).

`job` and `tenant` ride on series of GPUs and jobs alone, and only as far as the region. Here is what that
means for each hop: the dictionary that a node works with, what a rack admits, and what a region sends to
which tier. The rules are vmagent's own relabelling rules, as data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Rule = dict[str, Any]

NODE, GPU, JOB = "node", "gpu", "job"
LABELS = ("job", "tenant")
# The tenant of a job that the dictionary gives to nobody: no certificate is of this tenant, so that only
# administrators see it. Without a tenant it would be one of the rack's own series, which all its tenants see.
NOBODY = "unassigned"
# The one statistic that is none: every sample goes to the tier as it comes, under its own name and time.
SAMPLES = "samples"
# The name under which a node's exporter is scraped: what `job` is on a series that tells of no job.
SCRAPED = "node"
_DICTIONARY = ("uids", "slurm_accounts", "namespaces")
_JOB = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"


def names(metrics: Iterable[Mapping[str, Any]], *kinds: str) -> list[str]:
    """The catalogue's names of these kinds, as it lists them."""
    return [entry["name"] for entry in metrics if entry["of"] in kinds]


def pattern(listed: Iterable[str]) -> str:
    """One expression for names and beginnings with *; the stores anchor by themselves. Metric names need no
    escaping."""
    wanted = list(dict.fromkeys(listed))
    stems = [name[:-1] for name in wanted if name.endswith("*")]
    short = [
        name for name in wanted if not any(name.startswith(stem) and name != f"{stem}*" for stem in stems)
    ]
    return "|".join(name.replace("*", ".*") for name in short)


def kept_whole(metrics: Iterable[Mapping[str, Any]], tier: str) -> list[str]:
    """The names of which a tier takes every sample."""
    return [
        entry["name"] for entry in metrics if SAMPLES in entry["keep"].get(tier, {}).get("statistics", ())
    ]


# -- the node --------------------------------------------------------------------------------------------


def dictionary(tenants: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """What a node's job process knows of tenants: {uids, slurm_accounts, namespaces}, each word to its
    tenant."""
    listed = list(tenants)
    return {key: {word: one["name"] for one in listed for word in one[key]} for key in _DICTIONARY}


def unscraped(metrics: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """At the node's sampler: its scrape's name is no job of a GPU."""
    listed = names(metrics, GPU, JOB)
    if not listed:
        return []
    return [{"if": _selector(listed, f'job="{SCRAPED}"'), "target_label": "job", "replacement": ""}]


# -- the rack --------------------------------------------------------------------------------------------


def admitted(
    metrics: Sequence[Mapping[str, Any]],
    labels: Sequence[Mapping[str, Any]],
    tenants: Iterable[Mapping[str, Any]],
    racks: Iterable[str],
) -> list[Rule]:
    """What a receiver of these racks lets through, after `node`, `rack` and `site` are its own.

    A tenant stands on series of GPUs and jobs alone, and is one that lists the rack: a node that is not what
    it should be can lie about its own tenants, and about nobody else's. Users shape the other labels of these
    series (a program's name, a log line's words), so they are held to the contract's list here."""
    both, jobs = names(metrics, GPU, JOB), names(metrics, JOB)
    rules: list[Rule] = [{"if": _without(both), "action": "labeldrop", "regex": "tenant"}]
    if not both:
        return rules
    known = {label["name"]: label for label in labels}
    if known:
        always = ("__name__", "node", "rack", "site", "tenant", "job")
        regex = "|".join([*always, *(name for name in known if name not in always)])
        rules.append({"if": _selector(both), "action": "labelkeep", "regex": regex})
    for name, label in {"job": {"pattern": _JOB, "values": [], "max_length": 128}, **known}.items():
        rules += [_emptied(both, name, allowed) for allowed in _allowed(label)]
    if jobs:
        rules.append({"if": _selector(jobs, 'job=""'), "action": "drop"})
    listed = list(tenants)
    for rack in racks:
        own = "|".join(re.escape(one["name"]) for one in listed if rack in one["racks"])
        strange = [f"tenant!~{_quoted(own)}"] if own else []
        for sign in ('job!=""', 'tenant!=""'):
            told = _selector(both, f'rack="{rack}"', sign, *strange)
            rules.append({"if": told, "target_label": "tenant", "replacement": NOBODY})
    return rules


def made_here(racks: Mapping[str, Iterable[str]], mark: str, secret: str) -> list[Rule]:
    """What the receiver's own `curves` hands in, known by a label that nobody else can name: whose lines they
    were, `curves` has from the sender's certificate, and the rack from the contract. `secret` is the label
    under which the front hands in a sender's name."""
    return [
        {
            "source_labels": [mark, "node"],
            "separator": ";",
            "regex": f"1;({'|'.join(re.escape(node) for node in nodes)})",
            "target_label": label,
            "replacement": replacement,
        }
        for rack, nodes in racks.items()
        for label, replacement in ((secret, "$1"), (f"{secret}_rack", rack))
    ]


def _allowed(label: Mapping[str, Any]) -> list[str]:
    """Expressions that a value must match, or be absent; its length is one more where the pattern has no
    end."""
    if label["values"]:
        return [f"(?:{'|'.join(re.escape(value) for value in label['values'])})?"]
    endless = re.search(r"[*+]|\{[0-9]+,\}", re.sub(r"\\.|\[[^\]]*\]", "x", label["pattern"]))
    lengths = [f".{{0,{min(int(label['max_length']), 1000)}}}"] if endless else []
    return [f"(?:{label['pattern']})?", *lengths]


def _emptied(listed: Sequence[str], label: str, allowed: str) -> Rule:
    return {
        "if": _selector(listed, f"{label}!~{_quoted(allowed)}"),
        "target_label": label,
        "replacement": "",
    }


# -- the region ------------------------------------------------------------------------------------------


def finest(metrics: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """Before the tier that takes samples as they come: a job's series would be one without its labels."""
    rules: list[Rule] = []
    jobs, gpus = names(metrics, JOB), names(metrics, GPU)
    if jobs:
        rules.append({"if": _selector(jobs), "action": "drop"})
    if gpus:
        rules.append({"if": _selector(gpus), "action": "labeldrop", "regex": "|".join(LABELS)})
    return rules


def whole(metrics: Sequence[Mapping[str, Any]], tier: str) -> list[Rule]:
    """On the way to a coarser tier that is not aggregated; empty where nothing goes there."""
    listed = kept_whole(metrics, tier)
    return [{"if": _selector(listed), "action": "keep"}] if listed else []


def _selector(listed: Iterable[str], *more: str) -> str:
    return "{" + ",".join([f"__name__=~{_quoted(pattern(listed))}", *more]) + "}"


def _without(listed: Iterable[str]) -> str:
    regex = pattern(listed)
    return f'{{__name__!~{_quoted(regex)},tenant!=""}}' if regex else '{tenant!=""}'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
