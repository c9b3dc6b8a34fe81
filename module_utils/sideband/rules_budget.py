"""Rules about what telemetry may cost: the budget's own names, the capacity plan against it (O9), and
retention that would delete what is deployed (case 59)."""

from __future__ import annotations

from collections.abc import Iterator

from . import budget, deployed
from .capacity import excess, plan, size
from .contract import build_model
from .errors import Error, got, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE
from .model import parse_site, parse_tiers
from .units import size_bytes


@rule("budget")
def classes(facts: Facts) -> Iterator[Error]:
    listed = facts.optional("budget", {}).get("nodes", [])
    seen: set[str] = set()
    for spec in listed:
        path = f"sideband_budget.nodes[{spec['name']}]"
        if spec["name"] in seen:
            hint = "each class has a name of its own"
            yield Error(SITE, f"{path}.name", "is the name of two classes", got(spec["name"]), hint)
        seen.add(spec["name"])
        if spec["group"] not in facts.inventory.groups:
            known = [name for name in facts.inventory.groups if set(facts.inventory.groups[name])]
            hint = nearest(spec["group"], known, "") or "name a group of the inventory, or sideband_node"
            yield Error(SITE, f"{path}.group", "is no group of the inventory", got(spec["group"]), hint)
    nodes = facts.members(f"{PREFIX}node")
    of = budget.classes(listed, nodes, facts.inventory.groups)
    for node in nodes:
        if listed and node not in of:
            hint = "add it to a class's group, or end the list with a class for sideband_node"
            yield Error(node, "sideband_budget.nodes", "has no class for this node", hint=hint)


@rule("rollout")
def soaking(facts: Facts) -> Iterator[Error]:
    seen: set[str] = set()
    for number, spec in enumerate(facts.optional("rollout", {}).get("budgets", [])):
        path = f"sideband_rollout.budgets[{number}].group"
        if spec["group"] in seen:
            hint = "one budget for a group; merge the two"
            yield Error(SITE, path, "has a budget already", got(spec["group"]), hint)
        seen.add(spec["group"])
        if not facts.members(spec["group"]):
            hint = "add a host to the group, or remove the budget"
            yield Error(SITE, path, "has no hosts in the inventory", got(spec["group"]), hint)


@rule("budget", "tiers")
def disk(facts: Facts) -> Iterator[Error]:
    tiers = {tier.name: tier for tier in parse_tiers(facts.noun("tiers"))}
    for name, text in facts.optional("budget", {}).get("disk", {}).items():
        path = f"sideband_budget.disk.{name}"
        if name not in tiers:
            yield Error(SITE, path, "is no tier of sideband_tiers", hint=nearest(name, tiers, "tiers: "))
        elif size_bytes(text) > tiers[name].cap:
            hint = "the tier never takes more than its cap; lower the one or raise the other"
            yield Error(SITE, path, f"is above the tier's cap, {size(tiers[name].cap)}", got(text), hint)


@rule("tiers")
def retention(facts: Facts) -> Iterator[Error]:
    if facts.confirmed == deployed.CONFIRMED:
        return
    tiers = {
        tier.name: {
            "engine": tier.engine,
            "retention": tier.retention_text,
            "retention_seconds": tier.retention,
            "cap_bytes": tier.cap,
        }
        for tier in parse_tiers(facts.noun("tiers"))
    }
    yield from deployed.shrinking(facts.deployed, tiers)


def costs(facts: Facts) -> Iterator[Error]:
    """The plan is made of the whole model, so this speaks only where nothing else is wrong."""
    site = parse_site(facts.inventory.nouns, facts.inventory.hosts)
    contract = {"nouns": facts.inventory.nouns, "hosts": facts.inventory.hosts}
    model = build_model(site, contract, facts.inventory.groups)
    yield from excess(model, plan(model))
