"""Rules about names that roles know: the hops of the data's way, the lake's two tiers, and the rings of a
rollout. Without these rules a misspelt one would hold here and stop the rollout half-way, in a template."""

from __future__ import annotations

from collections.abc import Iterator

from . import rings
from .errors import Error, got, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE
from .model import CLIENTS

# The flow's name: who opens it, who accepts it.
HOPS = {
    "push": ("sideband_node", "sideband_rack"),
    "relay": ("sideband_rack", "sideband_region"),
    "store": ("sideband_region", "sideband_lake"),
    "ask": ("sideband_gateway", "sideband_lake"),
    "query": (CLIENTS, "sideband_gateway"),
    "ship": ("sideband_node", "sideband_rack"),
    "ship_on": ("sideband_rack", "sideband_logs"),
    "find": ("sideband_gateway", "sideband_logs"),
    "export": ("sideband_archive", "sideband_gateway"),
    "notify": ("sideband_alerts", "sideband_gateway"),
}
# Hops that one end alone calls for: a lake may go without a gateway, and then nobody asks over the wire.
OF_ONE_END = {
    "ask": "sideband_gateway",
    "export": "sideband_archive",
    "ship": "sideband_logs",
    "ship_on": "sideband_logs",
}
# Hops that are called for where both ends are: either goes without the other.
OF_BOTH_ENDS = ("find", "notify")
# A node pushes to its own rack's receiver: no other has the right to say whose series they are.
BOUND = ("push", "ship")
# Roles speak to the first host of these groups, and a second one would be left out of a change in silence.
SINGLE = ("region", "lake", "logs", "gateway", "policy", "archive")
# Groups that no play of this release is for: their hosts would get nothing, in silence.
UNPLAYED = ("pull", "pki", "planes")
# What the lake runs, finest first.
TIERS = {"hot": "prometheus", "minute": "victoriametrics"}


def _called_for(facts: Facts, name: str, source: str, target: str) -> bool:
    """Whether a host that is there needs the hop."""
    ends = [OF_ONE_END[name]] if name in OF_ONE_END else [source, target]
    there = [bool(facts.members(end)) for end in ends if end not in (CLIENTS, f"{PREFIX}node")]
    return all(there) if name in OF_BOTH_ENDS else any(there)


@rule("flows")
def hops(facts: Facts) -> Iterator[Error]:
    if not facts.served:
        return
    named = {flow.name: flow for flow in facts.flows}
    others = [name for name in named if name not in HOPS]
    for name, (source, target) in HOPS.items():
        path = f"sideband_flows[{name}]"
        if name in named:
            for key, want, have in (("from", source, named[name].source), ("to", target, named[name].target)):
                if have != want and have != f"{PREFIX}node":
                    hint = f"roles know flow {name} by its name; another flow has another name"
                    yield Error(SITE, f"{path}.{key}", f"must be {want}", got(have), hint)
            if name in BOUND and not named[name].same_rack:
                hint = "a node pushes to the receiver of its own rack, and its rules let it reach no other"
                yield Error(SITE, f"{path}.same_rack", "must be true", got(False), hint)
        elif _called_for(facts, name, source, target):
            near = nearest(name, others, "")
            hint = f"roles know it by this name: from {source} to {target}"
            yield Error(SITE, path, "is missing", hint=near or hint)


@rule()
def one_of_each(facts: Facts) -> Iterator[Error]:
    for word in SINGLE if facts.served else ():
        first, *others = facts.members(f"{PREFIX}{word}") or [""]
        for host in others:
            hint = "there may be one in this release; take this host out of the group"
            yield Error(host, f"groups.{PREFIX}{word}", f"has a host already, {first}", hint=hint)


@rule()
def unplayed(facts: Facts) -> Iterator[Error]:
    for word in UNPLAYED if facts.served else ():
        for host in facts.members(f"{PREFIX}{word}")[:1]:
            hint = "this release has no role for the group; take its hosts out"
            if word in ("pki", "planes"):
                hint = "that role comes to every host by itself; take its hosts out"
            yield Error(SITE, f"groups.{PREFIX}{word}", "is visited by no play", got(host), hint)


@rule("tiers")
def lakes(facts: Facts) -> Iterator[Error]:
    if not facts.served or not facts.members(f"{PREFIX}lake"):
        return
    named = {tier["name"]: tier["engine"] for tier in facts.noun("tiers")}
    for name, engine in TIERS.items():
        path = f"sideband_tiers[{name}]"
        if name not in named:
            near = nearest(name, [other for other in named if other not in TIERS], "")
            yield Error(SITE, path, "is missing", hint=near or f"the lake runs it, with engine {engine}")
        elif named[name] != engine:
            yield Error(
                SITE, f"{path}.engine", f"must be {engine}", got(named[name]), f"tier {name} has no other"
            )
    for name in named:
        if name not in TIERS:
            hint = f"the lake runs {' and '.join(TIERS)}; remove it"
            yield Error(SITE, f"sideband_tiers[{name}]", "is run by no role", hint=hint)


@rule()
def ringed(facts: Facts) -> Iterator[Error]:
    """A site without rings may be rolled out whole; one that names rings means them."""
    groups = facts.inventory.groups
    if any(group.startswith(rings.PREFIX) for group in groups):
        yield from rings.read(groups, list(facts.inventory.hosts))[1]
