"""Rules about data and its share of the wire: ladder, tiers, tenants, and the rates of flows."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import Error, got, nearest
from .facts import Facts, rule, with_rates
from .load import HOST_NOUNS, SITE, SITE_NOUNS
from .model import Level, parse_levels, parse_site, parse_tiers
from .qdisc import compile_shapes
from .units import duration_seconds
from .whose import NOBODY

# What a node's policy process takes for the distance of its questions and reports.
LONGEST = 3600
LAST_UID = 2**32 - 2


def _covers(pattern: str, metric: str) -> bool:
    return metric.startswith(pattern[:-1]) if pattern.endswith("*") else metric == pattern


@rule("ladder")
def ladder(facts: Facts) -> Iterator[Error]:
    spec = facts.noun("ladder")
    for needed in ("up", "sideband_policy_level", "sideband_policy_generation"):
        if needed not in spec["always"]["metrics"]:
            yield Error(
                SITE,
                "sideband_ladder.always.metrics",
                f"misses {needed}",
                hint="health and the level in force survive every level (D8)",
            )
    for path, text in (
        ("always.period", spec["always"]["period"]),
        *((f"levels[{level['name']}].poll", level["poll"]) for level in spec["levels"]),
    ):
        if duration_seconds(text) > LONGEST:
            hint = "shorten it to 1h or less; a node that says nothing for longer counts as lost"
            yield Error(SITE, f"sideband_ladder.{path}", "is longer than an hour", got(text), hint)
    levels: list[Level] = []
    for level in parse_levels(spec):
        path = f"sideband_ladder.levels[{level.name}]"
        if level.name in {above.name for above in levels}:
            yield Error(
                SITE,
                f"{path}.name",
                "is the name of two levels",
                got(level.name),
                "each level has a name of its own",
            )
        if levels and level.period < levels[-1].period:
            yield Error(
                SITE,
                f"{path}.period",
                f"is shorter than that of {levels[-1].name} above it",
                got(f"{level.period}s"),
                "levels go down: a lower one samples no faster",
            )
        for metric in level.metrics:
            if levels and not any(_covers(above, metric) for above in levels[-1].metrics):
                yield Error(
                    SITE,
                    f"{path}.metrics",
                    f"has a name that {levels[-1].name} above it has not",
                    got(metric),
                    "levels go down: a lower one keeps no more",
                )
        levels.append(level)


@rule("tiers")
def tiers(facts: Facts) -> Iterator[Error]:
    above = None
    seen: set[str] = set()
    for tier in parse_tiers(facts.noun("tiers")):
        path = f"sideband_tiers[{tier.name}]"
        if tier.name in seen:
            yield Error(
                SITE,
                f"{path}.name",
                "is the name of two tiers",
                got(tier.name),
                "each tier has a name of its own",
            )
        seen.add(tier.name)
        if tier.retention <= tier.resolution:
            hint = "keep more than one sample of a series"
            problem = f"is not longer than its resolution, {tier.resolution}s"
            yield Error(SITE, f"{path}.retention", problem, got(tier.retention_text), hint)
        if above and tier.resolution <= above.resolution:
            yield Error(
                SITE,
                f"{path}.resolution",
                f"is not coarser than that of {above.name} before it",
                got(f"{tier.resolution}s"),
                "tiers go from fine to coarse",
            )
        if above and tier.retention <= above.retention:
            yield Error(
                SITE,
                f"{path}.retention",
                f"is not longer than that of {above.name} before it ({above.retention_text})",
                got(tier.retention_text),
                "a coarser tier keeps longer, or is of no use",
            )
        above = tier


@rule("tenants")
def tenants(facts: Facts) -> Iterator[Error]:
    known = facts.racks()
    for key in ("name", "certificate"):
        seen: set[str] = set()
        for tenant in facts.noun("tenants"):
            if tenant[key] in seen:
                yield Error(
                    SITE,
                    f"sideband_tenants[{tenant['name']}].{key}",
                    f"is the {key} of two tenants",
                    got(tenant[key]),
                    "one would see what is the other's",
                )
            seen.add(tenant[key])
    hosts = {name.lower(): name for name in facts.everybody()}
    for tenant in facts.noun("tenants"):
        # One authority signs both: whoever asks for the host's name would take the tenant for it.
        if tenant["certificate"].lower() in hosts:
            yield Error(
                SITE,
                f"sideband_tenants[{tenant['name']}].certificate",
                "is a host's name",
                got(hosts[tenant["certificate"].lower()]),
                "a tenant that could pass for a host; give its certificate another name",
            )
        for rack in tenant["racks"]:
            if rack not in known:
                yield Error(
                    SITE,
                    f"sideband_tenants[{tenant['name']}].racks",
                    "no host is in this rack",
                    got(rack),
                    nearest(rack, known, "racks: "),
                )


@rule("tenants")
def whose_work(facts: Facts) -> Iterator[Error]:
    """A user, an account or a namespace of two tenants would show one what is the other's."""
    for key in ("slurm_accounts", "namespaces"):
        owners: dict[str, str] = {}
        for tenant in facts.noun("tenants"):
            for word in tenant.get(key, ()):
                if word in owners:
                    path = f"sideband_tenants[{tenant['name']}].{key}"
                    yield Error(SITE, path, f"is {owners[word]}'s too", got(word), "leave it to one of them")
                owners.setdefault(word, tenant["name"])
    spans: list[tuple[int, int, str, str]] = []
    for tenant in facts.noun("tenants"):
        path = f"sideband_tenants[{tenant['name']}].uids"
        for text in tenant.get("uids", ()):
            first, _, last = text.partition("-")
            low, high = int(first), int(last or first)
            if low > high or high > LAST_UID:
                hint = f"the first, a hyphen and the last, up to {LAST_UID}"
                yield Error(SITE, path, "is no range of uids", got(text), hint)
                continue
            shared = [span for span in spans if span[0] <= high and low <= span[1]]
            for _, _, other, theirs in shared[:1]:
                mine = other == tenant["name"]
                problem = f"has uids of {theirs} a second time" if mine else f"has uids of {other}'s {theirs}"
                yield Error(SITE, path, problem, got(text), "a user's work is one tenant's; list it once")
            spans.append((low, high, tenant["name"], text))
        if tenant["name"] == NOBODY:
            hint = "it is what jobs of no tenant get; take another name"
            yield Error(SITE, f"sideband_tenants[{tenant['name']}].name", "is nobody's", got(NOBODY), hint)


@rule(*SITE_NOUNS)
def shares(facts: Facts) -> Iterator[Error]:
    hosts = facts.inventory.hosts
    if any((name, noun) not in facts.right for name in hosts for noun in HOST_NOUNS):
        return
    nouns = {**facts.inventory.nouns, "planes": with_rates(facts.noun("planes"))}
    if any(zone.plane not in facts.planes for zone in facts.zones):
        return
    site = parse_site(nouns, hosts)
    said: set[tuple[str, tuple[str, ...]]] = set()
    for host in site.hosts.values():
        for shape in compile_shapes(site, host):
            names_sharing = tuple(name for part in shape.classes for name in part.flows)
            total = sum(part.rate for part in shape.classes)
            if "egress_rate" not in facts.noun("planes")[shape.plane] or (shape.plane, names_sharing) in said:
                continue
            if total > shape.rate:
                said.add((shape.plane, names_sharing))
                yield Error(
                    SITE,
                    f"sideband_planes.{shape.plane}.egress_rate",
                    f"{', '.join(names_sharing)} on {host.name} share {100 * total // shape.rate} % of it",
                    got(facts.noun("planes")[shape.plane]["egress_rate"]),
                    "raise it, or lower the flows' rates to 100 % in all",
                )
