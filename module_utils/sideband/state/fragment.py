"""A role's wish for one host: validated, with defaults filled in, as want objects."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import shlex
from dataclasses import dataclass, field
from typing import Any

from . import archives, netfilter, shaping, units
from .archives import Archive
from .given import Given
from .netfilter import NftTable
from .network import RELOADS, Network
from .paths import Directory, File, Item, Link, Secret, parents
from .services import OCCASIONS, Need
from .shaping import Tree
from .system import StateError
from .units import Unit

KEYS = (
    "packages",
    "groups",
    "users",
    "directories",
    "files",
    "links",
    "archives",
    "nftables",
    "shapes",
    "units",
    "masked",
    "network",
    "guarded",
    "guard_seconds",
    "needs",
)
GUARD_SECONDS = (5, 86400)
PACKAGE = (r"[A-Za-z0-9][A-Za-z0-9+._-]*", "a package's name")
ACCOUNT = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"
# Of files: a directory service's accounts are spelled in more ways.
OWNER = r"[A-Za-z0-9_][^\s:/,]*"
TABLE = (r"[A-Za-z_][A-Za-z0-9_.-]{0,127}", "a table's name")


@dataclass
class Fragment:
    packages: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    users: list[dict[str, Any]] = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)  # by path: directories, files, secrets, links, masks
    archives: dict[str, Archive] = field(default_factory=dict)  # by path; each is also a link in `items`
    masks: list[str] = field(default_factory=list)
    nftables: NftTable | None = None
    shapes: dict[str, Tree] = field(default_factory=dict)  # by device
    units: dict[str, Unit] = field(default_factory=dict)
    network: Network | None = None
    guarded: bool = False
    guard_seconds: int = 40
    needs: list[Need] = field(default_factory=list)


def parse(raw: dict[str, Any], secrets: list[dict[str, Any]]) -> Fragment:
    """All problems at once, each with its place and a hint."""
    problems: list[str] = []
    given = Given(raw, "", problems)
    reader = _Reader(problems)
    if given.mapping(None):
        given.mapping(KEYS)
        reader.read(given, Given(secrets, "secrets", problems))
    if problems:
        raise StateError("\n".join(problems))
    return reader.found


class _Reader:
    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self.found = Fragment()
        self.places: dict[tuple[str, str], str] = {}  # (what, its name) -> where it was given

    def read(self, given: Given, secrets: Given) -> None:
        found = self.found
        found.packages = [each.matching(*PACKAGE) for each in given.at("packages").items()]
        found.groups = [each.matching(ACCOUNT, "a group's name") for each in given.at("groups").items()]
        found.guarded = given.at("guarded", False).flag()
        found.guard_seconds = given.filled("guard_seconds", found.guard_seconds).number(*GUARD_SECONDS)
        for entry in given.at("users").entries(("name", "group", "groups", "home", "shell"), ("name",)):
            self.user(entry)
        for entry in given.at("directories").entries(("path", "mode", "owner", "group"), ("path",)):
            path, mode = entry.at("path"), entry.at("mode", "0755")
            self.add(path, Directory(path.path(), mode.octal("0755"), *_owner(entry)))
        contents = ("path", "content", "content_base64", "mode", "owner", "group")
        for entry in given.at("files").entries((*contents, "check", "create"), ("path",)):
            self.file(entry, "0644", File)
        for entry in secrets.entries(contents, ("path",)):
            self.file(entry, "0600", Secret)
        for entry in given.at("links").entries(("path", "target"), ("path", "target")):
            self.link(entry)
        known = ("path", "url", "sha256", "format")
        for entry in given.at("archives").entries(known, known[:3]):
            self.archive(entry)
        for each in given.at("masked").items():
            self.mask(each)
        for entry in given.at("shapes").entries(None, shaping.KEYS):
            self.shape(entry)
        for entry in given.at("units").entries(
            ("name", "enabled", "running", "restart_on", "reload_on"), ("name",)
        ):
            self.unit(entry)
        known = ("name", "address", "port", "only_for")
        for entry in given.at("needs").entries(known, known[:3]):
            self.need(entry)
        self.nftables(given.filled("nftables", {}))
        self.network(given.filled("network", {}))
        self.nothing_below_a_file()

    def once(self, what: str, given: Given, name: str) -> bool:
        first = self.places.setdefault((what, name), given.place)
        if first != given.place:
            given.refuse(f"{name} is named twice in the fragment; first as {first}", got=False)
        return first == given.place

    def add(self, given: Given, item: Item) -> None:
        if item.path and self.once("path", given, item.path):
            self.found.items[item.path] = item

    def nothing_below_a_file(self) -> None:
        items = self.found.items
        for path in items:
            for above in parents(path):
                if above in items and not isinstance(items[above], Directory):
                    self.problems.append(
                        f"{self.places['path', path]}: {path} lies below {above}, a {items[above].kind} "
                        f"({self.places['path', above]}); only a directory can hold it"
                    )

    def user(self, entry: Given) -> None:
        name = entry.at("name").matching(ACCOUNT, "a user's name")
        if not name or not self.once("user", entry.at("name"), name):
            return
        self.found.users.append(
            {
                "name": name,
                "group": entry.filled("group", name).matching(ACCOUNT, "a group's name"),
                "groups": [each.matching(ACCOUNT, "a group's name") for each in entry.at("groups").items()],
                "home": entry.filled("home", "/nonexistent").path(),
                "shell": entry.filled("shell", "/usr/sbin/nologin").path(),
            }
        )

    def file(self, entry: Given, mode: str, kind: type[File]) -> None:
        content = [key for key in ("content", "content_base64") if key in entry.value]
        if len(content) != 1:
            entry.refuse("give exactly one of content and content_base64", got=False)
            return
        given = entry.at(content[0])
        data = given.content()
        if content[0] == "content_base64":
            try:
                data = base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                given.refuse("is not base64", got=False)
        path = entry.at("path").path()
        problem = units.file_problem(path, data, told=kind is File)
        if problem:
            given.refuse(problem, got=False)
        check = entry.filled("check", "").text()
        if check and not _words(check):
            entry.at("check").refuse("must be one command whose quotes are closed")
        create = entry.at("create", False).flag()
        self.add(
            entry.at("path"),
            kind(path, data, entry.at("mode", mode).octal(mode), *_owner(entry), check=check, create=create),
        )

    def link(self, entry: Given) -> None:
        path, target = entry.at("path").path(), entry.at("target").line()
        end = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if target and (end == path or end.startswith(f"{path}/")):
            entry.at("target").refuse(f"must lead away from {path}: a link to itself leads nowhere")
        self.add(entry.at("path"), Link(path, target))

    def archive(self, entry: Given) -> None:
        archive = Archive(
            entry.at("path").path(),
            entry.at("url").line(),
            entry.at("sha256").matching(r"[0-9A-Fa-f]{64}", "64 hexadecimal digits").lower(),
            entry.filled("format", "deb").one_of(tuple(archives.UNPACK)),
        )
        if archive.url and not archives.is_url(archive.url):
            entry.at("url").refuse("must be the http or https address of a file, or file:/// and its path")
        self.add(entry.at("path"), archive.link())
        self.found.archives[archive.path] = archive

    def mask(self, given: Given) -> None:
        name = _unit_name(given)
        for path, target in units.mask_paths([name] if name else []).items():
            self.found.masks.append(name)
            self.add(given, Link(path, target))

    def unit(self, entry: Given) -> None:
        given = entry.at("name")
        name = _unit_name(given)
        if not name:
            return
        self.once("unit", given, name)
        switches = {
            key: entry.at(key).flag() if entry.value.get(key) is not None else None
            for key in ("enabled", "running")
        }
        masked = {name, os.path.basename(units.unit_file(name))} & set(self.found.masks)
        if masked and any(switches.values()):
            given.refuse(
                f"{name} cannot be masked and enabled or running at once; take it from `masked` or from here",
                got=False,
            )
        restart, reload = entry.at("restart_on").paths(), entry.at("reload_on").paths()
        self.found.units[name] = Unit(name, switches["enabled"], switches["running"], restart, reload)

    def need(self, entry: Given) -> None:
        self.found.needs.append(
            Need(
                entry.at("name").line(),
                entry.at("address").matching(r"[A-Za-z0-9.:_%-]{1,253}", "an address or a host's name"),
                entry.at("port").number(1, 65535),
                entry.filled("only_for", "").one_of(OCCASIONS),
            )
        )

    def shape(self, entry: Given) -> None:
        """That numbers are numbers; what tree they make is the shaper's matter."""
        before = len(self.problems)
        device = entry.at("device").device()
        default = str(entry.at("default_class").value)
        leaves = list(entry.at("classes").entries(None, ("id", *shaping.LEAF)))
        if all(str(leaf.value["id"]) != default for leaf in leaves):
            rest = entry.at("default")
            leaves += [rest] if rest.mapping(None, shaping.LEAF) else []
        for part, keys in ((entry, shaping.ROOT), *((leaf, shaping.LEAF) for leaf in leaves)):
            for key in keys:
                part.at(key).number(1, 10**15)
        for given in (entry.at("default_class"), *(leaf.at("id") for leaf in leaves if "id" in leaf.value)):
            given.spelled().matching(r"[0-9a-f]{1,4}", "a class's number, up to four hexadecimal digits")
        for leaf in leaves:
            if leaf.value.get("tos") is not None:
                leaf.at("tos").number(0, 255)
        if self.once("device", entry.at("device"), device) and len(self.problems) == before:
            try:
                self.found.shapes[device] = shaping.from_model(entry.value)
            except StateError as problem:
                entry.refuse(str(problem), got=False)

    def nftables(self, given: Given) -> None:
        """An empty ruleset is no table: a host without hooks has nothing to load."""
        if not given.mapping(("path", "table", "family", "ruleset")) or not given.value.get("ruleset"):
            return
        if not given.mapping(None, ("path", "table")):
            return
        before = len(self.problems)
        family = given.filled("family", "netdev").one_of(netfilter.FAMILIES)
        table = NftTable(
            family, given.at("table").matching(*TABLE), given.at("path").path(), given.at("ruleset").text()
        )
        problem = netfilter.stranger(table) if len(self.problems) == before else ""
        if problem:
            given.at("ruleset").refuse(problem, got=False)
        self.add(given.at("path"), File(table.path, table.ruleset.encode(), 0o644, "root", "root"))
        self.found.nftables = table

    def network(self, given: Given) -> None:
        known = ("reload", "paths", "addresses", "vlans", "accept_rivals")
        if given.value == {} or not given.mapping(known, ("reload",)):
            return
        addresses = given.at("addresses").entries(("device", "address"), ("device", "address"))
        vlans = given.at("vlans").entries(("port", "vlan"), ("port", "vlan"))
        reload = given.at("reload").one_of(tuple(RELOADS))
        self.found.network = Network(
            reload,
            given.at("paths").paths(),
            tuple((one.at("device").device(), _address(one.at("address"))) for one in addresses),
            tuple((one.at("port").device(), one.at("vlan").number(1, 4094)) for one in vlans),
            given.at("accept_rivals").paths(),
        )


def _owner(entry: Given) -> tuple[str, str]:
    names: list[str] = []
    for key, what in (("owner", "user"), ("group", "group")):
        given = entry.filled(key, names[0] if names else "root").spelled()
        names.append(given.matching(OWNER, f"the name or number of a {what}"))
    return names[0], names[1]


def _unit_name(given: Given) -> str:
    name = given.line()
    problem = units.name_problem(name) if name else ""
    if problem:
        given.refuse(problem)
    return "" if problem else name


def _words(command: str) -> list[str]:
    """None where quotes are not closed, or where no program is named."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return words if words and words[0] else []


def _address(given: Given) -> str:
    what = "an address with its prefix length, such as 10.0.0.1/24"
    text = given.matching(r"[0-9A-Fa-f.:]+/[0-9]{1,3}|", what)
    try:
        ipaddress.ip_interface(text or "::")
    except ValueError:
        given.refuse(f"must be {what}")
    return text
