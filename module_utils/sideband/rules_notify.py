"""Rules about who is told what (N3), and where their secrets are kept (case 10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import Error, got, hidden, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE
from .notify import DEFAULTS, INBOX, OPEN_KINDS, PLAIN_KINDS, SEVERITIES


@rule("notify")
def receivers(facts: Facts) -> Iterator[Error]:
    seen: set[str] = set()
    for receiver in facts.optional("notify", DEFAULTS)["receivers"]:
        path = f"sideband_notify.receivers[{receiver['name']}]"
        if receiver["name"] in seen:
            hint = "each receiver has a name of its own"
            yield Error(SITE, f"{path}.name", "is the name of two receivers", got(receiver["name"]), hint)
        seen.add(receiver["name"])
        yield from _complete(path, receiver)
        yield from _secret(facts, path, receiver)


def _complete(path: str, receiver: Mapping[str, Any]) -> Iterator[Error]:
    kind = receiver["kind"]
    secrets = _given(receiver)
    if kind == "email" and "to" not in receiver:
        yield Error(SITE, f"{path}.to", "is missing", hint="a receiver of kind email has addresses")
    if kind != "email" and "to" in receiver:
        hint = "only a receiver of kind email has addresses; remove it"
        yield Error(SITE, f"{path}.to", f"is of no use to kind {kind}", got(receiver["to"]), hint)
    if kind in OPEN_KINDS and secrets:
        hint = "remove it; no key is needed to reach it"
        yield Error(
            SITE, f"{path}.{secrets[0]}", f"is of no use to kind {kind}", got(receiver[secrets[0]]), hint
        )
    if kind not in OPEN_KINDS and not secrets:
        hint = (
            "name the vaulted variable (secret_variable) or the file (secret_file) that holds its URL or key"
        )
        yield Error(SITE, path, f"has no secret, and kind {kind} needs one", hint=hint)
    if len(secrets) > 1:
        hint = "name one of the two"
        yield Error(SITE, path, "has a secret in two places", got(", ".join(secrets)), hint)


def _secret(facts: Facts, path: str, receiver: Mapping[str, Any]) -> Iterator[Error]:
    name = receiver.get("secret_variable")
    if name is None:
        return
    if name.startswith(PREFIX):
        kind = receiver.get("kind", "mail")
        hint = f"a secret is the site's own; give it another name, for example vault_{kind}"
        yield Error(SITE, f"{path}.secret_variable", "has our prefix", got(name), hint)
        return
    if facts.inventory.names and not any(name in names for names in facts.inventory.names.values()):
        hint = "define it, vaulted, in group_vars/all"
        problem = "names a variable that is defined nowhere"
        # It may be the secret itself, written where its name belongs.
        yield Error(SITE, f"{path}.secret_variable", problem, hidden(name), hint)


@rule("notify")
def routes(facts: Facts) -> Iterator[Error]:
    noun = facts.optional("notify", DEFAULTS)
    kinds = {receiver["name"]: receiver["kind"] for receiver in noun["receivers"]}
    for severity in SEVERITIES:
        for name in noun["routes"][severity]:
            if name not in kinds:
                hint = nearest(name, kinds, "receivers: ")
                yield Error(SITE, f"sideband_notify.routes.{severity}", "is no receiver", got(name), hint)
        known = [kinds[name] for name in noun["routes"][severity] if name in kinds]
        if severity == "info" and "pagerduty" in known:
            hint = "what wakes somebody is critical or warning; send info to the inbox (N3)"
            yield Error(
                SITE, "sideband_notify.routes.info", "wakes somebody for information", got("pagerduty"), hint
            )
    reached = {name for severity in SEVERITIES for name in noun["routes"][severity]}
    for name in kinds:
        if name not in reached and kinds[name] != INBOX:
            hint = "name it in a route, or remove it"
            yield Error(SITE, f"sideband_notify.receivers[{name}]", "is told nothing", got(name), hint)


@rule("notify")
def mail(facts: Facts) -> Iterator[Error]:
    noun = facts.optional("notify", DEFAULTS)
    named = [one["name"] for one in noun["receivers"] if one["kind"] == "email"]
    path, smtp = "sideband_notify.smtp", noun.get("smtp")
    if named and smtp is None:
        hint = f"receiver {named[0]} is of kind email: name the mail server and the sender"
        yield Error(SITE, path, "is missing", hint=hint)
    if smtp is None:
        return
    given = _given(smtp)
    if not named:
        hint = "no receiver is of kind email; remove it"
        yield Error(SITE, path, "is of no use", hint=hint)
    if len(given) > 1:
        yield Error(SITE, path, "has a secret in two places", got(", ".join(given)), "name one of the two")
    if given and "user" not in smtp:
        yield Error(SITE, f"{path}.user", "is missing", hint="a password goes with a user")
    yield from _secret(facts, path, smtp)


@rule("notify")
def watchdogs(facts: Facts) -> Iterator[Error]:
    """Each side has a switch of its own: with one for both, the death of one side would not be heard."""
    seen: set[str] = set()
    for number, one in enumerate(facts.optional("notify", DEFAULTS).get("watchdogs", ())):
        path, given = f"sideband_notify.watchdogs[{number}]", _given(one)
        if one["from"] in seen:
            hint = "one switch hears one side; name the other side, or remove it"
            yield Error(SITE, f"{path}.from", "has a switch already", got(one["from"]), hint)
        seen.add(one["from"])
        if not given:
            hint = "name the vaulted variable (secret_variable) or the file (secret_file) that holds its URL"
            yield Error(SITE, path, "has no secret, and its URL is one", hint=hint)
        if len(given) > 1:
            yield Error(
                SITE, path, "has a secret in two places", got(", ".join(given)), "name one of the two"
            )
        yield from _secret(facts, path, {"kind": "watchdog", **one})


def _given(part: Mapping[str, Any]) -> list[str]:
    return [key for key in ("secret_file", "secret_variable") if key in part]


@rule("notify")
def played(facts: Facts) -> Iterator[Error]:
    """What somebody has to do who is in no group."""
    if not facts.served or not facts.members(f"{PREFIX}alerts"):
        return
    kinds = {one["name"]: one["kind"] for one in facts.optional("notify", DEFAULTS)["receivers"]}
    for name, kind in kinds.items():
        if kind == INBOX and not facts.members(f"{PREFIX}gateway"):
            hint = "the inbox is the gateway's; name other receivers, or add a host to sideband_gateway"
            yield Error(SITE, f"sideband_notify.receivers[{name}]", "has no gateway", hint=hint)
    if not set(kinds.values()) & set(PLAIN_KINDS):
        hint = f"one must hear of what no template can say: add one of kind {', '.join(PLAIN_KINDS)}"
        yield Error(SITE, "sideband_notify.receivers", "has no fall-back", hint=hint)
    for host in facts.members(f"{PREFIX}alerts"):
        if not {"region", "lake"} & set(facts.words(host)):
            hint = (
                "rules are computed beside samples; put it into sideband_region or sideband_lake too, or out"
            )
            yield Error(host, "groups.sideband_alerts", "is neither region nor lake", hint=hint)
    if not any("region" in facts.words(host) for host in facts.members(f"{PREFIX}alerts")):
        hint = "critical rules must not need the lake (A6): put the region's host into it"
        yield Error(SITE, "groups.sideband_alerts", "has no region", hint=hint)
