"""The first ring of validation: does each noun have the shape that its schema describes?

JSON Schema says what is wrong in its own words; here they become ours: the path as one would write it, the
value, and a next step. Runs on the controller only (jsonschema, PyYAML)."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

import jsonschema
import yaml

from .errors import Error, got, hidden, nearest
from .load import HOST_NOUNS, OPTIONAL_NOUNS, PREFIX, SITE, SITE_NOUNS, Inventory, label
from .model import CLIENTS, WORDS
from .units import DSCP, duration_seconds, rate_bits, size_bytes

SCHEMAS = Path(__file__).resolve().parent.parent.parent / "schemas"
GROUPS = tuple(f"{PREFIX}{word}" for word in WORDS)


def _matches(pattern: str) -> Callable[[str], object]:
    return lambda text: re.fullmatch(pattern, text) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], object]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _unicast(version: int) -> Callable[[str], object]:
    def parse(text: str) -> object:
        address = ipaddress.ip_address(text)
        if (
            address.version != version
            or address.is_multicast
            or address.is_loopback
            or address.is_unspecified
        ):
            raise ValueError(text)
        if address.is_link_local or "%" in text:
            raise ValueError(text)
        return address

    return _parses(parse)


def _re2(text: str) -> object:
    """What both RE2 and Python read: the stores know neither look-around nor back-references."""
    if re.search(r"\(\?(?!:|i\)|P<)|\\[1-9]|\(\?P=", text):
        raise ValueError(text)
    try:
        return re.compile(text)
    except re.error as reason:
        raise ValueError(text) from reason


METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
# What a piece of text must be: the check, the problem as an error says it, the next step.
FORMATS: dict[str, tuple[Callable[[str], object], str, str]] = {
    "name": (
        _matches(r"[a-z][a-z0-9_-]{0,62}"),
        "must be a lower-case name",
        "letters, digits, - and _, beginning with a letter",
    ),
    "rack": (
        _matches(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"),
        "must be a rack's name, as text",
        "letters, digits, dots, hyphens and underscores; in quotes where they are all digits",
    ),
    "host": (
        _matches(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"),
        "must be a host's name",
        "as the inventory spells it",
    ),
    "group": (lambda text: text in GROUPS, "is no group of the house", "a group is sideband_<word>"),
    "group_or_clients": (
        lambda text: text in GROUPS or text == CLIENTS,
        "is no group of the house",
        f"a group is sideband_<word>, or {CLIENTS}",
    ),
    "device": (
        _matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"),
        "is no interface name that Linux takes",
        "at most 15 letters, digits, dots, hyphens and underscores",
    ),
    "duration": (
        _parses(duration_seconds),
        "must be a duration with its unit",
        "for example 30s, 5m, 12h or 7d",
    ),
    "rate": (_parses(rate_bits), "must be a rate with its unit", "for example 500kbit, 20Mbit or 1Gbit"),
    "size": (_parses(size_bytes), "must be a size with its unit", "for example 512MiB, 2GiB or 1TiB"),
    "dscp": (lambda text: text in DSCP, "is no DSCP", "by name: cs0 to cs7, af11 to af43, ef"),
    "subnet": (
        _parses(ipaddress.ip_network),
        "must be a subnet in CIDR form",
        "its first address and its length, for example 10.21.0.0/24",
    ),
    "ipv4": (
        _unicast(4),
        "must be a host's IPv4 address",
        "four numbers, for example 10.21.0.11; no loopback, link-local or multicast one",
    ),
    "ipv6": (
        _unicast(6),
        "must be a host's IPv6 address",
        'in quotes, without brackets, for example "fd00:21::11"; no loopback, link-local or multicast one',
    ),
    "mac": (
        _matches(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"),
        "must be a MAC address in text",
        'six pairs in quotes, "52:54:00:12:34:56"; without quotes YAML reads all digits as one number',
    ),
    "metric": (
        _matches(METRIC + r"\*?"),
        "is no metric name",
        "a name, or its beginning and one * at the end",
    ),
    "label": (
        _matches(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}"),
        "is no label's name",
        "letters, digits and underscores, beginning with a letter",
    ),
    "word": (lambda text: text in WORDS, "is no role of the house", f"roles: {', '.join(WORDS)}"),
    "path": (
        _matches(r"/[^\s{}]*[^\s{}/]"),
        "must be the absolute path of a file",
        "the name of the file that holds the secret, never the secret itself",
    ),
    "variable": (
        _matches(r"[a-z_][a-z0-9_]{0,62}"),
        "must be the name of a variable",
        "the vaulted variable's name, for example vault_chat_url, never the secret itself",
    ),
    "regex": (
        _parses(_re2),
        "is no RE2 expression",
        "no look-around, no back-references, balanced brackets, for example [a-z0-9]{1,32}",
    ),
    "metric_name": (_matches(METRIC), "is no metric name", "a whole name, without *"),
}
TYPES = {
    "string": "text", "integer": "a whole number", "boolean": "true or false", "array": "a list",
    "object": "a mapping", "number": "a number",
}  # fmt: skip


@functools.cache
def schema(noun: str, directory: Path = SCHEMAS) -> Mapping[str, Any]:
    """The schema of `sideband_<noun>`."""
    loaded: Mapping[str, Any] = yaml.safe_load((directory / f"{noun}.yml").read_text(encoding="utf-8"))
    return loaded


@functools.cache
def _validator(noun: str) -> jsonschema.Draft202012Validator:
    checker = jsonschema.FormatChecker(formats=())
    for name, (check, _, _) in FORMATS.items():
        # A value of another type is the type's error, not the format's.
        checker.checks(name)(lambda value, check=check: not isinstance(value, str) or bool(check(value)))
    return jsonschema.Draft202012Validator(schema(noun), format_checker=checker)


def path_of(variable: str, steps: list[str | int], value: Any) -> str:
    """The path as a person writes it; an item of a list goes by its name where it has one."""
    text = variable
    for step in steps:
        if isinstance(step, int):
            text += f"[{label(value[step], step)}]"
        else:
            text += f".{step}"
        value = value[step]
    return text


def check_noun(noun: str, value: Any, host: str) -> list[Error]:
    """Every fault in the shape of one noun's value, in the order of the document."""
    variable = PREFIX + noun
    found = sorted(
        _validator(noun).iter_errors(value), key=lambda e: ([str(s) for s in e.absolute_path], e.message)
    )
    errors: list[Error] = []
    for fault in found:
        path = path_of(variable, list(fault.absolute_path), value)
        errors += (Error(host, *parts) for parts in _translate(fault, path))
    return errors


def _translate(fault: jsonschema.ValidationError, path: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, problem, value, hint) of what one fault of the schema comes to."""
    where: Mapping[str, Any] = fault.schema if isinstance(fault.schema, Mapping) else {}
    kind: Any = fault.validator
    want: Any = fault.validator_value
    value: Any = fault.instance
    shown = hidden if where.get("x-secret") else got
    problem, hint = where.get("x-problem", ""), where.get("x-hint", "")
    if where.get("format") in FORMATS:
        _, problem, hint = FORMATS[where["format"]]
    if "propertyNames" in fault.absolute_schema_path:
        path = f"{path}.{value}"
    if kind == "additionalProperties":
        known = list(where.get("properties", {}))
        for key in sorted(set(value) - set(known)):
            yield f"{path}.{key}", "unknown key", shown(value[key]), nearest(key, known, "known: ")
    elif kind == "required":
        missing = next(name for name in want if name not in value and repr(name) in fault.message)
        part = where.get("properties", {}).get(missing, {})
        yield (
            f"{path}.{missing}",
            "is missing",
            "",
            _first_sentence(part.get("description", "")) or f"add {missing}",
        )
    elif kind == "type":
        if want in ("object", "array") or not problem:
            problem = f"must be {TYPES.get(str(want), str(want))}"
        yield path, problem, shown(value), hint or _keys(where)
    elif kind == "enum":
        yield (
            path,
            f"must be one of {', '.join(map(str, want))}",
            got(value),
            nearest(value, want, "") or hint or "spelt exactly so",
        )
    elif kind in ("minimum", "maximum"):
        yield path, f"must be {where['minimum']} to {where['maximum']}", got(value), hint
    elif kind in ("minItems", "minProperties"):
        yield (
            path,
            "must not be empty" if want == 1 else f"must have at least {want} entries",
            got(value),
            hint,
        )
    elif kind == "maxItems":
        yield path, f"must have at most {want} entries", got(value), hint
    elif kind == "uniqueItems":
        twice = next(item for number, item in enumerate(value) if item in value[:number])
        yield path, "names one thing twice", got(twice), "once is enough"
    elif kind == "format":
        suggestion = nearest(value, GROUPS, "") if str(want).startswith("group") else ""
        yield path, problem, shown(value), suggestion or hint
    elif kind == "oneOf":
        if isinstance(value, Mapping):
            yield path, problem, ", ".join(sorted(value)), hint
    else:
        yield path, problem or fault.message, got(value), hint


def _keys(schema: Mapping[str, Any]) -> str:
    """What stands there, for a value of another type."""
    known = ", ".join(schema.get("properties", {}))
    return f"keys: {known}" if known else _first_sentence(str(schema.get("description", "")))


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[a-z])[.;:] ", text.strip(), maxsplit=1)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if sentence[:2] != sentence[:2].upper() else sentence


def check_shape(inventory: Inventory) -> tuple[list[Error], set[tuple[str, str]]]:
    """(faults, the (host, noun) pairs whose shape is right); what is unusable was said when it was read."""
    errors: list[Error] = []
    right: set[tuple[str, str]] = set()
    unusable = {(error.host, re.split(r"[.\[]", error.path)[0]) for error in inventory.errors}
    for noun in SITE_NOUNS:
        if (SITE, PREFIX + noun) in unusable:
            continue
        if noun not in inventory.nouns and noun in OPTIONAL_NOUNS:
            right.add((SITE, noun))
            continue
        if noun not in inventory.nouns:
            hint = f"{_first_sentence(schema(noun)['description'])}; group_vars/all/{noun}.yml"
            errors.append(Error(SITE, PREFIX + noun, "is missing", hint=hint))
            continue
        found = check_noun(noun, inventory.nouns[noun], SITE)
        errors += found
        if not found:
            right.add((SITE, noun))
    for name, variables in inventory.hosts.items():
        for noun in HOST_NOUNS:
            if noun not in variables:
                if (name, PREFIX + noun) not in unusable:
                    right.add((name, noun))
                continue
            found = check_noun(noun, variables[noun], name)
            errors += found
            if not found:
                right.add((name, noun))
    return errors, right
