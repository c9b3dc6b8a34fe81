"""Rules about the archive of experiments: where it is kept, and whose code is where (X2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from .errors import Error, got, nearest
from .facts import Facts, rule
from .load import PREFIX, SITE

WORD = f"{PREFIX}archive"
NEEDED = {
    "bucket": "the S3 bucket that keeps the files",
    "endpoint": "where the storage answers, for example https://s3.example.org",
    "repositories": "a list of {tenant, url}: where each tenant keeps its code",
}
SECRETS = ("secret_file", "secret_variable")


def _value(facts: Facts, name: str) -> Any:
    given = facts.inventory.settings.get(f"{WORD}_{name}", [])
    return next((one.value for one in given if one.usable), None)


@rule("tenants")
def kept(facts: Facts) -> Iterator[Error]:
    # Where the variables of roles are not read, nothing can be said of them.
    if not facts.served or f"{WORD}_bucket" not in facts.known or not facts.members(WORD):
        return
    for name, hint in NEEDED.items():
        if not _value(facts, name):
            yield Error(SITE, f"{WORD}_{name}", "is missing", hint=hint)
    secrets = [name for name in SECRETS if _value(facts, name)]
    if len(secrets) != 1:
        problem = "is missing" if not secrets else "is one too many"
        hint = f"the storage's key, ACCESS:SECRET: {WORD}_secret_variable names a vaulted variable, or a file"
        yield Error(SITE, f"{WORD}_secret_file", problem, hint=hint)
    endpoint = _value(facts, "endpoint")
    if endpoint and urlsplit(str(endpoint)).scheme not in ("http", "https"):
        hint = "for example https://s3.example.org"
        yield Error(SITE, f"{WORD}_endpoint", "must be an http or https URL", got(endpoint), hint)
    yield from _repositories(facts)


def _repositories(facts: Facts) -> Iterator[Error]:
    tenants = [tenant["name"] for tenant in facts.noun("tenants")]
    seen: set[str] = set()
    for number, one in enumerate(_value(facts, "repositories") or ()):
        if not isinstance(one, dict) or not {"tenant", "url"} <= set(one):
            continue  # its shape is the schema's finding
        path = f"{WORD}_repositories[{number}]"
        if one["tenant"] not in tenants:
            hint = nearest(one["tenant"], tenants, "tenants: ")
            yield Error(SITE, f"{path}.tenant", "is no tenant", got(one["tenant"]), hint)
        if one["url"] in seen:
            hint = "whose experiments are in it must be plain; give each tenant its own"
            yield Error(SITE, f"{path}.url", "is there twice", got(one["url"]), hint)
        seen.add(one["url"])
