"""Rules about who is told what (N3), and where their secrets are kept (case 10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .errors import Error, got, hidden, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE
from .notify import DEFAULTS, INBOX, OPEN_KINDS, SEVERITIES


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
    secrets = [key for key in ("secret_file", "secret_variable") if key in receiver]
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
        hint = f"a secret is the site's own; give it another name, for example vault_{receiver['kind']}"
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
