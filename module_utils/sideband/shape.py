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


def _parses(parse: Callable[[str], object], most: int | None = None) -> Callable[[str], object]:
    """Whether a text can be read, as a number of at most `most`: beyond, daemons overflow."""

    def check(text: str) -> bool:
        try:
            value = parse(text)
        except ValueError:
            return False
        return most is None or not isinstance(value, int) or value <= most

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
    if re.search(r"\(\?(?!:|i\)|P<)|\\[1-9ZuUN]|\(\?P=", text):
        raise ValueError(text)
    # Possessive repeats are Python's own; RE2 counts to a thousand.
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "x", re.sub(r"\\.", "x", text))
    counts = re.findall(r"\{([0-9]*),?([0-9]*)\}", bare)
    if re.search(r"[*+?}]\+", bare) or any(int(n) > 1000 for pair in counts for n in pair if n):
        raise ValueError(text)
    try:
        return re.compile(text)
    except re.error as reason:
        raise ValueError(text) from reason


def _cidr(text: str) -> object:
    """An address and a length: Python takes a bare address and two kinds of masks too."""
    if not re.fullmatch(r"[0-9A-Fa-f.:]+/[0-9]+", text):
        raise ValueError(text)
    return ipaddress.ip_network(text)


# Names that stand for something else wherever interfaces are named (lo, and two directories of sysctl).
NO_DEVICES = ("lo", "all", "default")
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
        lambda text: bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", text)) and text not in NO_DEVICES,
        "is no interface name that Linux takes",
        "at most 15 letters, digits, dots, hyphens and underscores",
    ),
    "duration": (
        _parses(duration_seconds, 36500 * 86400),
        "must be a duration with its unit",
        "for example 30s, 5m, 12h or 7d; at most 36500d",
    ),
    "rate": (
        _parses(rate_bits, 10**13),
        "must be a rate with its unit",
        "for example 500kbit, 20Mbit or 1Gbit; at most 10000Gbit",
    ),
    "size": (
        _parses(size_bytes, 2**60),
        "must be a size with its unit",
        "for example 512MiB, 2GiB or 1TiB; at most 1048576TiB",
    ),
    "dscp": (lambda text: text in DSCP, "is no DSCP", "by name: cs0 to cs7, af11 to af43, ef"),
    "subnet": (
        _parses(_cidr),
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
    "url": (
        _matches(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._:-]+)(/\S*)?"),
        "must be a URL",
        "with its scheme, for example http://10.90.0.61:8080",
    ),
    "mirror": (
        _matches(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._:-]+)(/\S*)?|file:///[!-~]+"),
        "must be a URL",
        "with its scheme, for example http://10.90.0.61:8080",
    ),
    "metric_name": (_matches(METRIC), "is no metric name", "a whole name, without *"),
}
# As Ansible reads them.
BOOLEANS = frozenset(("yes", "no", "on", "off", "true", "false", "y", "n", "t", "f", "1", "0", "1.0", "0.0"))
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
def settings(directory: Path = SCHEMAS / "roles") -> Mapping[str, Mapping[str, Any]]:
    """Every role's variables: {name: schema}."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(directory.glob("*.yml")):
        found.update(yaml.safe_load(path.read_text(encoding="utf-8"))["properties"])
    return found


@functools.cache
def _validator(noun: str) -> Any:
    return _made(schema(noun))


@functools.cache
def _setting_validator(name: str) -> Any:
    return _made(settings()[name])


def _made(described: Mapping[str, Any]) -> Any:
    checker = jsonschema.FormatChecker(formats=())
    for name, (check, _, _) in FORMATS.items():
        # A value of another type is the type's error, not the format's.
        checker.checks(name)(lambda value, check=check: not isinstance(value, str) or bool(check(value)))
    return _Validator(described, format_checker=checker)


def _pattern(
    _: object, pattern: str, value: object, schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    """As JSON Schema has it, but that `$` is the end: Python's is before a last line break too."""
    if isinstance(value, str) and (not re.search(pattern, value) or value.endswith("\n")):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_extend: Any = jsonschema.validators.extend
_Validator: Any = _extend(jsonschema.Draft202012Validator, {"pattern": _pattern})


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
    return _faults(_validator(noun), PREFIX + noun, value, host)


def _faults(validator: Any, variable: str, value: Any, host: str) -> list[Error]:
    found = sorted(validator.iter_errors(value), key=lambda e: ([str(s) for s in e.absolute_path], e.message))
    errors: list[Error] = []
    of_another_type = [fault.absolute_path for fault in found if fault.validator == "type"]
    for fault in found:
        if fault.validator in ("minimum", "maximum") and fault.absolute_path in of_another_type:
            continue  # infinity is no whole number: once is enough
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
            named = key if shown is got or re.fullmatch(r"\w{1,40}", key) else hidden(key)
            yield f"{path}.{named}", "unknown key", shown(value[key]), nearest(key, known, "known: ")
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
        near = nearest(value, want, "")
        yield (
            path,
            f"must be one of {', '.join(map(str, want))}",
            got(value) if near or re.fullmatch(r"[a-z]{1,12}", str(value)) else shown(value),
            near or hint or "spelt exactly so",
        )
    elif kind in ("minimum", "maximum"):
        hint = hint or _first_sentence(str(where.get("description", "")))
        above = f" to {where['maximum']}" if "maximum" in where else " or more"
        yield path, f"must be {where['minimum']}{above}", got(value), hint
    elif kind in ("minItems", "minProperties"):
        yield (
            path,
            "must not be empty" if want == 1 else f"must have at least {want} entries",
            shown(value),
            hint or _keys(where),
        )
    elif kind == "maxItems":
        yield path, f"must have at most {want} entries", got(value), hint
    elif kind == "uniqueItems":
        twice = next(item for number, item in enumerate(value) if item in value[:number])
        yield path, "names one thing twice", shown(twice), "once is enough"
    elif kind == "format":
        suggestion = nearest(value, GROUPS, "") if str(want).startswith("group") else ""
        yield path, problem, shown(value), suggestion or hint
    elif kind == "oneOf":
        if isinstance(value, Mapping):
            yield path, problem, ", ".join(sorted(value)), hint
    else:
        yield path, problem or fault.message, shown(value), hint


def _keys(schema: Mapping[str, Any]) -> str:
    """What stands there, for a value of another type."""
    known = ", ".join(schema.get("properties", {}))
    return f"keys: {known}" if known else _first_sentence(str(schema.get("description", "")))


def _first_sentence(text: str) -> str:
    sentence = re.split(r"(?<=[a-z])[.;:] ", text.strip(), maxsplit=1)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:] if not sentence[1:2].isupper() else sentence


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


def _settled(value: Any, kind: str) -> Any:
    """What a role makes of a value of another type: from the command line everything comes as text."""
    if kind == "integer" and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        return int(value)
    if kind == "boolean" and str(value).lower() in BOOLEANS:
        return True
    if kind == "array" and isinstance(value, str):
        return value.split(",")
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def check_settings(inventory: Inventory) -> list[Error]:
    """The variables of roles against their schemas: else a host would find it, when others are done."""
    errors: list[Error] = []
    known = settings()
    for name, spellings in inventory.settings.items():
        if name not in known:
            continue  # a rule about names says it
        for one in spellings:
            value = _settled(one.value, str(known[name].get("type")))
            everywhere = 1 < len(one.hosts) == len(inventory.hosts)
            for host in (SITE,) if everywhere else one.hosts:
                errors += _faults(_setting_validator(name), name, value, host) if one.usable else ()
    return errors
