"""From an inventory's variables to plain data: what a contract's checks and compilers start from.

The inventory reaches us as mappings that may hold anything: vaulted values, wrappers that subclass str and
int, a structure that contains itself. Here it becomes builtins once, and what cannot is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from .errors import Error, got
from .model import WORDS

SITE = "all"
SITE_NOUNS = (
    "site", "planes", "zones", "flows", "ladder", "tiers", "tenants", "versions", "rollout", "budget",
    "catalogue", "labels", "notify", "components", "administrators", "logs",
)  # fmt: skip
# A site that leaves these out gets their defaults.
OPTIONAL_NOUNS = (
    "rollout", "budget", "catalogue", "labels", "notify", "components", "administrators", "logs",
)  # fmt: skip
HOST_NOUNS = ("rack", "addresses", "fabric_ports")
# Variables of roles that are the site's too: with two values each half of it would have records of its own.
SITE_SETTINGS = ("contract_records", "pki_directory")
PREFIX = "sideband_"
# Set by our own plays while they run: results, not settings.
RESULTS = frozenset(
    PREFIX + name
    for name in (
        "model", "self", "deployed", "identities", "certificate_ends", "host_system",
        "policy_allowed_signers", "policy_expected", "policy_findings", "policy_host_key", "policy_issued",
        "policy_rack_key", "policy_started",
    )
)  # fmt: skip


@dataclass
class Setting:
    """A role's variable as the inventory spells it, and whose it is."""

    name: str
    raw: Any
    hosts: list[str] = field(default_factory=list)
    value: Any = None
    usable: bool = False


@dataclass(frozen=True)
class Way:
    """How Ansible reaches a host, as the inventory says it: None where it says nothing."""

    host: Any = None
    port: Any = None
    connection: Any = None
    # Through another machine: its loopback is not the controller's.
    jumps: bool = False
    old: tuple[str, ...] = ()


@dataclass
class Inventory:
    """The contract as the inventory gives it, in builtins, unchecked."""

    nouns: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    differing: list[tuple[str, str]] = field(default_factory=list)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    settings: dict[str, list[Setting]] = field(default_factory=dict)
    urls: list[tuple[str, str, str]] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)


Spelling = Callable[[Any], str]
URLS = ("_url", "_urls", "_authority", "_authorities")
VAULTED = ("is a vaulted value", "the contract holds no secrets; keep them out of its nouns")
# Receivers do have secrets, elsewhere (case 10).
VAULTED_ELSEWHERE = {
    "sideband_notify": "put it into a variable of its own and name that in secret_variable",
}
# What Ansible puts before the reason of a template that failed somewhere inside.
MARKER = "A captured exception marker was tripped: "
# Names in a template that have one value on all hosts; with any other it must be resolved on each.
ALIKE = frozenset(("playbook_dir", "sideband_site"))
OLD_WAYS = ("ansible_ssh_host", "ansible_ssh_port")
JUMPS = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
ALIAS_HINT = "remove the alias (*name) that points at what surrounds it"


def as_read(value: Any) -> str:
    """How a value is spelt in its file, where nobody knows: not at all."""
    return ""


class _UnusableError(Exception):
    def __init__(self, path: str, problem: str, hint: str, value: str = "") -> None:
        super().__init__(problem)
        self.path, self.problem, self.hint, self.value = path, problem, hint, value


def _is_vaulted(value: object) -> bool:
    # Text, because what Ansible makes of an undefined variable answers to any attribute.
    if isinstance(getattr(value, "_ciphertext", None), str):
        return True
    if isinstance(value, Mapping):
        return "__ansible_vault" in value
    return isinstance(value, str) and value.startswith("$ANSIBLE_VAULT")


def label(item: Any, number: int) -> str:
    """How an item of a list goes in a path: by its name where it has one."""
    name = item.get("name") if isinstance(item, Mapping) else None
    # What is no name at all may be a secret in the wrong place.
    return str(name) if isinstance(name, str) and re.fullmatch(r"[\w .:*-]{1,80}", name) else str(number)


def vaulted_path(value: Any, path: str, above: tuple[int, ...] = ()) -> str:
    """Where in an unresolved value a vaulted one is, '' where there is none. With the password at hand it
    would resolve to plain text, and be printed, compared and hashed like any other."""
    if _is_vaulted(value):
        return path
    if id(value) in above or isinstance(value, str):
        return ""
    inside = (*above, id(value))
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        items = [(f"{path}.{key}", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(f"{path}[{label(item, number)}]", item) for number, item in enumerate(value)]
    return next(filter(None, (vaulted_path(item, where, inside) for where, item in items)), "")


def _spelt_oddly(text: str) -> tuple[str, str]:
    """(problem, hint) of a whole number that YAML 1.1 reads as another than a person does."""
    if re.fullmatch(r"[-+]?0[0-9_]+", text):
        return "reads as an octal number", "write it without the leading zero"
    # Six pairs are a MAC address, whose schema says it better.
    if re.fullmatch(r"[-+]?[0-9_]+(:[0-5]?[0-9]){1,4}", text):
        return "reads as a number to the base of sixty", "put it in quotes where it is text"
    return "", ""


def plain(value: Any, path: str, spelling: Spelling = as_read, above: tuple[int, ...] = ()) -> Any:
    """Builtins only, the same content. Raises on what a contract cannot hold: a vaulted value, a structure
    that contains itself, a key that is no text, a number that YAML reads as octal."""
    if _is_vaulted(value):
        raise _UnusableError(path, *VAULTED)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        text = spelling(value)
        odd, hint = _spelt_oddly(text)
        if odd:
            whole = f"{text}, which is {int(value)}"
            raise _UnusableError(path, odd, f"{hint}, or {int(value)} if that is meant", whole)
        return int(value)
    for kind in (str, float):
        if isinstance(value, kind):
            return kind(value)
    if id(value) in above:
        raise _UnusableError(path, "contains itself", ALIAS_HINT)
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _UnusableError(
                    path,
                    "has a key that is no text",
                    "put it in quotes; YAML reads on, off, yes, no and numbers as such",
                    got(key),
                )
        return {str(key): plain(value[key], f"{path}.{key}", spelling, inside) for key in list(value)}
    if isinstance(value, (list, tuple)):
        return [
            plain(item, f"{path}[{label(item, number)}]", spelling, inside)
            for number, item in enumerate(value)
        ]
    return str(value)


def contract_hosts(groups: Mapping[str, Iterable[str]]) -> list[str]:
    """The hosts that the contract is about: all in `sideband` or in any `sideband_<word>`."""
    hosts: set[str] = set()
    for group in ("sideband", *(f"{PREFIX}{word}" for word in WORDS)):
        hosts.update(str(host) for host in groups.get(group, ()))
    return sorted(hosts)


def gather(
    hostvars: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Iterable[str]],
    spelling: Spelling = as_read,
    known: Iterable[str] = (),
) -> Inventory:
    """Read the whole inventory's contract. A noun of the site is read from every host, and the first host's
    value is the site's; where another's differs, `differing` says so, and where it is not there, `lacking`.
    `known`: variables of roles, which may have defaults that no inventory shows."""
    inventory = Inventory(groups={str(name): sorted(map(str, hosts)) for name, hosts in groups.items()})
    roles = {word: frozenset(inventory.groups.get(f"{PREFIX}{word}", ())) for word in WORDS}
    reader = _Reader(inventory, spelling, frozenset(known))
    unresolved = getattr(hostvars, "raw_get", hostvars.__getitem__)
    for name in contract_hosts(groups):
        variables = hostvars[name]
        reader.raw = unresolved(name)
        inventory.names[name] = sorted(str(key) for key in variables)
        way = inventory.ways[name] = reader.way(variables, name)
        inventory.hosts[name] = {
            "words": [word for word, members in roles.items() if name in members],
            "address": str(way.host or name),
            "port": str(way.port or ""),
        }
        for noun in HOST_NOUNS:
            reader.read(variables, noun, name, inventory.hosts[name])
        for noun in SITE_NOUNS:
            reader.read_site(variables, noun, name)
        for key in inventory.names[name]:
            if key.startswith(PREFIX) and key.endswith(URLS):
                reader.read_urls(variables, key, name)
            if key.startswith(PREFIX):
                reader.setting(variables, key, name)
    for noun in SITE_SETTINGS:
        reader.compare(noun)
    # Given nowhere is another fault, or none.
    count = len(inventory.hosts)
    inventory.lacking = {noun: hosts for noun, hosts in reader.lacking.items() if 0 < len(hosts) < count}
    inventory.errors = list(_together(inventory.errors, len(inventory.hosts)))
    return inventory


def _templated(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(map(_templated, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_templated, value))


def _varies(value: Any) -> bool:
    """Whether one spelling may come to another value on another host."""
    if isinstance(value, str):
        if not _templated(value):
            return False
        words = re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"{{(.*?)}}", value, re.DOTALL)))
        return "{%" in value or not ALIKE.issuperset(words)
    if isinstance(value, Mapping):
        return any(map(_varies, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_varies, value))


def _together(errors: list[Error], hosts: int) -> Iterator[Error]:
    """What is wrong with a role's variable on every host is the site's fault, and said once."""
    same: dict[Error, int] = {}
    for error in errors:
        if error.path[len(PREFIX) :] not in HOST_NOUNS:
            everywhere = replace(error, host=SITE)
            same[everywhere] = same.get(everywhere, 0) + 1
    said: set[Error] = set()
    for error in errors:
        everywhere = replace(error, host=SITE)
        if same.get(everywhere, 0) < max(hosts, 2):
            yield error
        elif everywhere not in said:
            said.add(everywhere)
            yield everywhere


class _Reader:
    """Reads variables into an inventory; what cannot be read becomes an error once."""

    def __init__(self, inventory: Inventory, spelling: Spelling, known: frozenset[str] = frozenset()) -> None:
        self.inventory, self.spelling, self.known = inventory, spelling, known
        self.unusable: set[tuple[str, str]] = set()
        self.raw: Mapping[str, Any] = {}
        self.spelt: dict[str, Any] = {}
        self.varies: dict[str, bool] = {}
        self.lacking: dict[str, list[str]] = {}

    def _plain(self, variables: Mapping[str, Any], name: str, host: str) -> tuple[bool, Any]:
        try:
            vaulted = vaulted_path(self.raw.get(name), name)
            if vaulted:
                raise _UnusableError(vaulted, VAULTED[0], VAULTED_ELSEWHERE.get(name, VAULTED[1]))
            return True, plain(variables[name], name, self.spelling)
        except _UnusableError as unusable:
            error = Error(host, unusable.path, unusable.problem, unusable.value, unusable.hint)
        except RecursionError:
            error = Error(host, name, "contains itself", hint=ALIAS_HINT)
        except Exception as reason:  # a template in the value may fail in any way that Jinja knows
            error = Error(
                host, name, "cannot be resolved", hint=" ".join(str(reason).split()).removeprefix(MARKER)
            )
        if (host, name) not in self.unusable:
            self.unusable.add((host, name))
            self.inventory.errors.append(error)
        return False, None

    def read(self, variables: Mapping[str, Any], noun: str, host: str, into: dict[str, Any]) -> None:
        if PREFIX + noun in variables:
            usable, value = self._plain(variables, PREFIX + noun, host)
            if usable:
                into[noun] = value

    def read_site(self, variables: Mapping[str, Any], noun: str, host: str) -> None:
        name, before = PREFIX + noun, self.inventory.nouns
        if name not in variables:
            self.lacking.setdefault(noun, []).append(host)
        if name not in variables or (SITE, name) in self.unusable:
            return
        raw = self.raw.get(name)
        # Spelt alike is alike, but for a template: to resolve each noun on each host again would cost the
        # fleet's size.
        if noun in before and raw == self.spelt.get(name) and not self.varies[name]:
            return
        into: dict[str, Any] = {}
        usable, into[noun] = self._plain(variables, name, SITE)
        if not usable:
            return
        self.varies.setdefault(name, _varies(raw))
        self.spelt.setdefault(name, raw)
        if noun in before and repr(before[noun]) != repr(into[noun]):
            self.inventory.differing.append((host, noun))
        self.inventory.nouns.setdefault(noun, into[noun])

    def way(self, variables: Mapping[str, Any], host: str) -> Way:
        """Unlike a noun it may be sealed: only what cannot be opened is a fault."""
        found: dict[str, Any] = {}
        for key in ("host", "port", "connection"):
            name = f"ansible_{key}"
            if name in variables:
                try:
                    found[key] = plain(variables[name], name)
                except Exception as reason:  # as in _plain: Jinja's faults have no common type
                    said = " ".join(str(reason).split()).removeprefix(MARKER)
                    self.inventory.errors.append(Error(host, name, "cannot be resolved", hint=said))
        arguments = " ".join(str(self.raw.get(name, "")) for name in JUMPS)
        jumps = re.search(r"Proxy(Jump|Command)|-J", arguments) is not None
        return Way(**found, jumps=jumps, old=tuple(name for name in OLD_WAYS if name in variables))

    def setting(self, variables: Mapping[str, Any], name: str, host: str) -> None:
        """A role's variable, resolved once for each spelling. Where it names another that is not there, the
        rollout would find it, later; what plays set while they run (ours, Ansible's) cannot be there yet."""
        if name in RESULTS or name[len(PREFIX) :] in (*SITE_NOUNS, *HOST_NOUNS):
            return
        raw, spellings = self.raw.get(name), self.inventory.settings.setdefault(name, [])
        apart = name[len(PREFIX) :] in SITE_SETTINGS and _varies(raw)
        one = None if apart else next((one for one in spellings if one.raw is raw or one.raw == raw), None)
        if one is None:
            one = Setting(name, raw)
            spellings.append(one)
        one.hosts.append(host)
        if one.usable or vaulted_path(raw, name):
            return
        try:
            one.value, one.usable = plain(variables[name], name, self.spelling), True
        except _UnusableError as fault:
            self.inventory.errors.append(Error(host, fault.path, fault.problem, fault.value, fault.hint))
        except Exception as reason:  # as in _plain; others than a missing variable need facts of a run
            said = " ".join(str(reason).split()).removeprefix(MARKER)
            missing = re.match(r"'(\w+)' is undefined", said)
            if missing and _templated(raw) and not self._excused(missing.group(1)):
                self.inventory.errors.append(Error(host, name, "cannot be resolved", hint=said))

    def compare(self, noun: str) -> None:
        """A role's variable that is the site's, once every host's is known."""
        given = self.inventory.settings.get(PREFIX + noun, [])
        usable = [one for one in given if one.usable]
        differing = [host for one in usable if one.value != usable[0].value for host in one.hosts]
        self.inventory.differing += [(host, noun) for host in differing]
        having = {host for one in given for host in one.hosts}
        self.lacking[noun] = [host for host in self.inventory.hosts if host not in having]

    def _excused(self, name: str) -> bool:
        """Not there yet when the contract is read, or said of itself; a misspelt name of ours is neither."""
        if name.startswith(PREFIX):
            return name in self.known or name in RESULTS or name[len(PREFIX) :] in (*SITE_NOUNS, *HOST_NOUNS)
        return name.startswith(("ansible_", "__"))

    def read_urls(self, variables: Mapping[str, Any], name: str, host: str) -> None:
        usable, value = self._plain(variables, name, host)
        texts = value if isinstance(value, list) else [value]
        if usable:
            self.inventory.urls += [(host, name, text) for text in texts if isinstance(text, str)]
