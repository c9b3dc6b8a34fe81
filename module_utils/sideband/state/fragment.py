"""A role's wish for one host: validated, with defaults filled in, as want objects."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any, Callable

from .archives import Archive
from .netfilter import NftTable
from .network import RELOADS, Network
from .paths import Directory, File, Item, Link, Secret
from .services import Need
from .shaping import Tree, from_model
from .system import StateError
from .units import Unit, mask_paths

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
    reader = _Reader()
    fragment = reader.fragment(raw, secrets)
    if reader.problems:
        raise StateError("\n".join(reader.problems))
    return fragment


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def fragment(self, raw: dict[str, Any], secrets: list[dict[str, Any]]) -> Fragment:
        for key in sorted(set(raw) - set(KEYS)):
            self.problems.append(f"fragment: unknown key {key!r}; known are {', '.join(KEYS)}")
        found = Fragment(
            packages=self.names(raw, "packages"),
            groups=self.names(raw, "groups"),
            masks=self.names(raw, "masked"),
            guarded=self.flag(raw.get("guarded", False), "guarded"),
            guard_seconds=int(raw.get("guard_seconds") or 40),
        )
        self.each(
            raw,
            "users",
            ("name", "group", "groups", "home", "shell"),
            lambda user: found.users.append(
                {
                    "name": user["name"],
                    "group": user.get("group") or user["name"],
                    "groups": user.get("groups") or [],
                    "home": user.get("home") or "/nonexistent",
                    "shell": user.get("shell") or "/usr/sbin/nologin",
                }
            ),
        )
        self.each(
            raw,
            "directories",
            ("path", "mode", "owner", "group"),
            lambda entry: self.add(
                found, Directory(self.path(entry), self.mode(entry, "0755"), *_owner(entry))
            ),
        )
        self.each(
            raw,
            "files",
            ("path", "content", "content_base64", "mode", "owner", "group", "check", "create"),
            lambda entry: self.add(found, self.file(entry, "0644", File)),
        )
        self.each(
            {"secrets": secrets},
            "secrets",
            ("path", "content", "content_base64", "mode", "owner", "group"),
            lambda entry: self.add(found, self.file(entry, "0600", Secret)),
        )
        self.each(
            raw,
            "links",
            ("path", "target"),
            lambda entry: self.add(found, Link(self.path(entry), str(entry["target"]))),
        )
        self.each(
            raw, "archives", ("path", "url", "sha256", "format"), lambda entry: self.archive(found, entry)
        )
        for path, target in mask_paths(found.masks).items():
            self.add(found, Link(path, target))
        self.each(raw, "shapes", None, lambda entry: self.shape(found, entry))
        self.each(
            raw,
            "units",
            ("name", "enabled", "running", "restart_on", "reload_on"),
            lambda entry: self.unit(found, entry),
        )
        self.each(
            raw, "needs", ("name", "address", "port", "only_for"), lambda entry: self.need(found, entry)
        )
        self.nftables(found, raw.get("nftables") or {})
        self.network(found, raw.get("network") or {})
        return found

    def each(
        self,
        raw: dict[str, Any],
        key: str,
        known: tuple[str, ...] | None,
        use: Callable[[dict[str, Any]], None],
    ) -> None:
        for number, entry in enumerate(raw.get(key) or []):
            place = f"{key}[{number}]"
            if not isinstance(entry, dict):
                self.problems.append(f"{place}: must be a mapping (got {type(entry).__name__})")
                continue
            if known is not None and set(entry) - set(known):
                strange = ", ".join(sorted(set(entry) - set(known)))
                self.problems.append(f"{place}: unknown key {strange}; known are {', '.join(known)}")
                continue
            try:
                use(entry)
            except KeyError as problem:
                self.problems.append(f"{place}: {problem.args[0]} is required")
            except (StateError, ValueError, TypeError) as problem:
                self.problems.append(f"{place}: {problem}")

    def names(self, raw: dict[str, Any], key: str) -> list[str]:
        value = raw.get(key) or []
        if not isinstance(value, list):
            self.problems.append(f"{key}: must be a list (got {type(value).__name__})")
            return []
        return [str(name) for name in value]

    def flag(self, value: Any, place: str) -> bool:
        """Real booleans only: the text "false" is true to a naive reader (case 7)."""
        if not isinstance(value, bool):
            self.problems.append(f"{place}: must be true or false (got {value!r})")
        return value is True

    def path(self, entry: dict[str, Any]) -> str:
        path = str(entry["path"])
        if (
            not path.startswith("/")
            or path != "/" + "/".join(part for part in path.split("/") if part)
            or (".." in path.split("/"))
        ):
            raise StateError(f"{path!r} must be an absolute path without `..`, `//` or a trailing slash")
        return path

    def mode(self, entry: dict[str, Any], default: str) -> int:
        mode = entry.get("mode", default)
        if not isinstance(mode, str):
            # YAML 1.1 reads 0644 as 420 and 644 as 644: only text is unambiguous.
            raise StateError(f'mode must be quoted text such as "{default}" (got {mode!r})')
        return int(mode, 8)

    def file(self, entry: dict[str, Any], mode: str, kind: type[File]) -> File:
        if ("content" in entry) == ("content_base64" in entry):
            raise StateError(f"{entry['path']}: give exactly one of content and content_base64")
        try:
            data = (
                str(entry["content"]).encode()
                if "content" in entry
                else base64.b64decode(entry["content_base64"], validate=True)
            )
        except (binascii.Error, ValueError) as problem:
            raise StateError(f"{entry['path']}: content_base64 is not base64: {problem}") from problem
        create = entry.get("create", False)
        return kind(
            self.path(entry),
            data,
            self.mode(entry, mode),
            *_owner(entry),
            check=str(entry.get("check") or ""),
            create=self.flag(create, f"{entry['path']}: create"),
        )

    def add(self, found: Fragment, item: Item) -> None:
        if item.path in found.items:
            raise StateError(f"{item.path} is named twice in the fragment")
        found.items[item.path] = item

    def archive(self, found: Fragment, entry: dict[str, Any]) -> None:
        archive = Archive(
            self.path(entry),
            str(entry["url"]),
            str(entry["sha256"]).lower(),
            str(entry.get("format") or "deb"),
        )
        archive.validate()
        self.add(found, archive.link())
        found.archives[archive.path] = archive

    def shape(self, found: Fragment, entry: dict[str, Any]) -> None:
        tree = from_model(entry)
        if tree.device in found.shapes:
            raise StateError(f"device {tree.device} is shaped twice")
        found.shapes[tree.device] = tree

    def unit(self, found: Fragment, entry: dict[str, Any]) -> None:
        name = str(entry["name"])
        if "." not in name:
            raise StateError(f"{name!r} needs its ending, for example {name}.service")
        for key in ("enabled", "running"):
            if entry.get(key) is not None:
                self.flag(entry[key], f"{name}: {key}")
        found.units[name] = Unit(
            name,
            entry.get("enabled"),
            entry.get("running"),
            tuple(entry.get("restart_on") or ()),
            tuple(entry.get("reload_on") or ()),
        )

    def need(self, found: Fragment, entry: dict[str, Any]) -> None:
        need = Need(
            str(entry["name"]), str(entry["address"]), int(entry["port"]), str(entry.get("only_for") or "")
        )
        need.validate()
        found.needs.append(need)

    def nftables(self, found: Fragment, raw: dict[str, Any]) -> None:
        """An empty ruleset is no table: a host without hooks has nothing to load."""
        if not raw or not raw.get("ruleset"):
            return
        self.each(
            {"nftables": [raw]},
            "nftables",
            ("path", "table", "family", "ruleset"),
            lambda entry: self.table(found, entry),
        )

    def table(self, found: Fragment, entry: dict[str, Any]) -> None:
        table = NftTable(
            str(entry.get("family") or "netdev"), str(entry["table"]), self.path(entry), str(entry["ruleset"])
        )
        self.add(found, File(table.path, table.ruleset.encode(), 0o644, "root", "root"))
        found.nftables = table

    def network(self, found: Fragment, raw: dict[str, Any]) -> None:
        if not raw:
            return
        known = ("reload", "paths", "addresses", "vlans", "accept_rivals")
        self.each({"network": [raw]}, "network", known, lambda entry: self.reload(found, entry))

    def reload(self, found: Fragment, entry: dict[str, Any]) -> None:
        if entry["reload"] not in RELOADS:
            raise StateError(f"reload must be one of {', '.join(RELOADS)} (got {entry['reload']!r})")
        found.network = Network(
            entry["reload"],
            tuple(entry.get("paths") or ()),
            tuple((str(one["device"]), str(one["address"])) for one in entry.get("addresses") or []),
            tuple((str(one["port"]), int(one["vlan"])) for one in entry.get("vlans") or []),
            tuple(entry.get("accept_rivals") or ()),
        )


def _owner(entry: dict[str, Any]) -> tuple[str, str]:
    owner = str(entry.get("owner") or "root")
    return owner, str(entry.get("group") or owner)
