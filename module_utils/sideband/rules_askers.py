"""Rules about people who ask: administrators, and what one question of a tenant may take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import Error, got, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE

TENANT_BOUNDS = f"{PREFIX}gateway_tenant_bounds"


@rule("administrators")
def administrators(facts: Facts) -> Iterator[Error]:
    hosts = {name.lower(): name for name in facts.everybody()}
    for key in ("name", "certificate"):
        seen: set[str] = set()
        for one in facts.optional("administrators", []):
            path = f"{PREFIX}administrators[{one['name']}].{key}"
            if one[key] in seen:
                hint = "the audit trail must say which of them it was"
                yield Error(SITE, path, f"is the {key} of two administrators", got(one[key]), hint)
            seen.add(one[key])
            if key == "certificate" and one[key].lower() in hosts:
                hint = "an administrator that could pass for a host; give its certificate another name"
                yield Error(SITE, path, "is a host's name", got(hosts[one[key].lower()]), hint)


@rule("tenants", "tiers")
def tenant_bounds(facts: Facts) -> Iterator[Error]:
    tenants = [tenant["name"] for tenant in facts.noun("tenants")]
    tiers = [tier["name"] for tier in facts.noun("tiers")]
    for setting in facts.inventory.settings.get(TENANT_BOUNDS, ()):
        if not setting.usable or not isinstance(setting.value, Mapping):
            continue
        for name, by_tier in setting.value.items():
            if name not in tenants:
                problem, hint = "is no tenant of sideband_tenants", nearest(name, tenants, "tenants: ")
                yield Error(SITE, f"{TENANT_BOUNDS}.{name}", problem, hint=hint)
                continue
            yield from _tiers(name, by_tier, tiers)


def _tiers(tenant: str, by_tier: Any, tiers: list[str]) -> Iterator[Error]:
    for tier in by_tier if isinstance(by_tier, Mapping) else ():
        path = f"{TENANT_BOUNDS}.{tenant}.{tier}"
        if tier not in tiers:
            yield Error(SITE, path, "is no tier of sideband_tiers", hint=nearest(tier, tiers, "tiers: "))
        elif tier == tiers[0]:
            hint = f"its samples are for administrators; tenants ask {', '.join(tiers[1:]) or 'none'}"
            yield Error(SITE, path, "is the raw tier", hint=hint)
