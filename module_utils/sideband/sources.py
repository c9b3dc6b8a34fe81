"""The files of an inventory as text: what its reader loses and tells nobody. Of two equal keys, and of one
variable in two files, YAML and Ansible keep the last; a file that is no YAML stops Ansible before any task,
without a word of which file it was. Runs on the controller only (PyYAML)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from .deployed import CONFIRM, CONFIRM_NAME
from .errors import Error
from .load import PREFIX, RESULTS, SITE
from .model import WORDS

TAGS = ("!vault", "!vault-encrypted", "!unsafe")
ENDINGS = ("", ".yml", ".yaml", ".json")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def directories(sources: Iterable[object]) -> list[Path]:
    """Where variables lie beside these inventories (a directory, or a file in one)."""
    paths = [Path(str(source)) for source in sources if source]
    return sorted({path if path.is_dir() else path.parent for path in paths if path.exists()})


def files(directory: Path) -> Iterator[tuple[str, Path]]:
    """(host, group or `all`, file) of everything that Ansible reads there as YAML."""
    for path in sorted(directory.iterdir()):
        if path.is_file() and path.suffix in ENDINGS[1:]:
            yield SITE, path
    for kind in ("group_vars", "host_vars"):
        for path in sorted((directory / kind).glob("*")):
            if path.is_dir():
                yield from ((path.name, one) for one in sorted(path.rglob("*")) if _is_read(one))
            elif _is_read(path) and _first(path) == path:
                yield _owner(path), path


def _owner(path: Path) -> str:
    return path.stem if path.suffix in ENDINGS[1:] else path.name


def _first(path: Path) -> Path:
    """What Ansible reads of the files and directories of this owner's name: the first, in this order."""
    candidates = (path.with_name(_owner(path) + ending) for ending in ENDINGS)
    return next((one for one in candidates if one.exists()), path)


def _unread(directory: Path) -> Iterator[Error]:
    for kind in ("group_vars", "host_vars"):
        for path in sorted((directory / kind).glob("*")):
            if _is_read(path) and _first(path) != path:
                where, instead = f"{kind}/{path.name}", f"{kind}/{_first(path).name}"
                hint = f"{instead} is read in its place; move its lines there"
                yield Error(_owner(path), where, "is not read", hint=hint)


def _is_read(path: Path) -> bool:
    hidden = path.name.startswith(".") or path.name.endswith("~")
    return path.is_file() and not hidden and path.suffix in ENDINGS


def _tree(path: Path) -> yaml.Node | None:
    """A file's nodes; None where it is empty or sealed. Raises OSError, ValueError and YAMLError."""
    text = path.read_bytes().decode("utf-8-sig")
    if text.startswith("$ANSIBLE_VAULT"):
        return None
    tree: yaml.Node | None = yaml.compose(text, _LOADER)
    return tree


def _twice(node: yaml.Node, above: str, seen: set[int]) -> Iterator[tuple[str, int, int]]:
    """(path, first line, second line) of each key that stands twice in its mapping."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                name, line = str(key.value), int(key.start_mark.line) + 1
                path = f"{above}.{name}" if above else name
                if name in lines:
                    yield path, lines[name], line
                lines.setdefault(name, line)
                yield from _twice(value, path, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _twice(item, f"{above}[{number}]", seen)


def _named(tree: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(tree, yaml.MappingNode):
        yield from ((str(key.value), value) for key, value in tree.value)


def _in_groups(tree: yaml.Node | None) -> Iterator[tuple[str, str, str]]:
    """(group_vars or host_vars, owner, variable) of what an inventory's own file sets."""
    for group, spec in _named(tree):
        parts = dict(_named(spec))
        yield from (("group_vars", group, name) for name, _ in _named(parts.get("vars")))
        for host, variables in _named(parts.get("hosts")):
            yield from (("host_vars", host, name) for name, _ in _named(variables))
        yield from _in_groups(parts.get("children"))


def _variables(tree: yaml.Node, owner: str, where: Path) -> Iterator[tuple[str, str, str]]:
    if len(where.parts) > 1:
        yield from ((where.parts[0], owner, name) for name, _ in _named(tree))
    elif "plugin" not in dict(_named(tree)):
        yield from _in_groups(tree)


def beside(playbooks: Iterable[object], sources: Iterable[object]) -> list[Error]:
    """Variables beside the playbooks win over those of every inventory."""
    errors: list[Error] = []
    for directory in set(directories(playbooks)) - set(directories(sources)):
        for owner, path in files(directory):
            where = path.relative_to(directory)
            if len(where.parts) > 1:
                hint = "it wins over every site's own; move it into the inventory"
                errors.append(Error(owner, str(where), "stands beside the playbooks", hint=hint))
    return errors


def twice(sources: Iterable[object]) -> list[Error]:
    """Keys that stand twice in one file, variables of ours in two files of one host or group, files that are
    not read because of another, and results that somebody set."""
    errors: list[Error] = []
    for directory in directories(sources):
        errors += _unread(directory)
        owners: dict[tuple[str, str, str], str] = {}
        for owner, path in files(directory):
            where = path.relative_to(directory)
            try:
                tree = _tree(path)
            except (OSError, ValueError, yaml.YAMLError):
                continue  # `unreadable` says it
            if tree is None:
                continue
            for key, one, two in _twice(tree, "", set()):
                lines = f"lines {one} and {two}" if one != two else f"line {one}"
                hint = "only the last one is read, and nobody is told; keep one"
                errors.append(Error(owner, key, f"stands twice in {where}, {lines}", hint=hint))
            for kind, whose, name in dict.fromkeys(_variables(tree, owner, where)):
                if name in RESULTS:
                    hint = "remove it"
                    errors.append(Error(whose, name, "is set by plays while they run", str(where), hint))
                elif name == CONFIRM_NAME:
                    hint = f"remove it, and say -e {CONFIRM} in the one run that is meant"
                    errors.append(Error(whose, name, "would confirm for ever", str(where), hint))
                first = owners.setdefault((kind, whose, name), str(where))
                if name.startswith(PREFIX) and first != str(where):
                    hint = "only the last file's is read, and nobody is told; keep one"
                    errors.append(Error(whose, name, f"stands in two files, {first} and {where}", hint=hint))
    return errors


def strays(sources: Iterable[object], hosts: Iterable[str], groups: Iterable[str]) -> list[Error]:
    """Files whose name is a misspelt host's or group's: nobody reads them, and nobody is told. What resembles
    none that lacks its file is left over from one that has gone, and does no harm."""
    known = {"host_vars": set(hosts), "group_vars": {*groups, SITE, *(PREFIX + word for word in WORDS)}}
    errors: list[Error] = []
    for directory in directories(sources):
        owners = {(path.relative_to(directory).parts[0], owner) for owner, path in files(directory)}
        for kind, owner in sorted(owners):
            if owner in known.get(kind, {owner}):
                continue
            ours = kind == "group_vars" and owner.startswith(PREFIX)
            wanted = [name for name in sorted(known[kind]) if ours or (kind, name) not in owners]
            close = difflib.get_close_matches(owner, wanted, 1, 0.8)
            if close:
                what, hint = kind.partition("_")[0], f"did you mean {close[0]!r}?"
                errors.append(Error(owner, f"{kind}/{owner}", f"is of no {what} of the inventory", hint=hint))
    return errors


def _tag(node: yaml.Node, seen: set[int]) -> yaml.Node | None:
    """The first node with a tag that Ansible does not know."""
    if id(node) in seen:
        return None
    seen.add(id(node))
    if (node.tag.startswith("!") and node.tag not in TAGS) or ":python/" in node.tag:
        return node
    inside = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    found = (_tag(part, seen) for part in inside if isinstance(part, yaml.Node))
    return next((one for one in found if one is not None), None)


def unreadable(sources: Iterable[object]) -> list[Error]:
    """Files that Ansible will stumble over, each with its name, its line and what is wrong."""
    errors: list[Error] = []
    for directory in directories(sources):
        for owner, path in files(directory):
            where, hint = str(path.relative_to(directory)), "mend the file; nothing of it can be read"
            try:
                tree = _tree(path)
            except UnicodeDecodeError as reason:
                errors.append(
                    Error(owner, where, f"is no UTF-8 at byte {reason.start}", hint="save it as UTF-8")
                )
            except yaml.MarkedYAMLError as reason:
                mark = reason.problem_mark or reason.context_mark
                place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
                said = " ".join(filter(None, (reason.context, reason.problem)))
                errors.append(Error(owner, where + place, f"is no YAML: {said}", hint=hint))
            except (OSError, ValueError, yaml.YAMLError) as reason:
                said = " ".join(str(reason).split())
                errors.append(Error(owner, where, f"cannot be read: {said}", hint=hint))
            else:
                odd = _tag(tree, set()) if tree is not None else None
                if odd is not None:
                    place = f"{where}:{odd.start_mark.line + 1}"
                    said = f"has a tag that nobody knows, {odd.tag}"
                    errors.append(
                        Error(owner, place, said, hint="put the value in quotes, or remove the tag")
                    )
                if "_vars" in where and tree is not None and not isinstance(tree, yaml.MappingNode):
                    empty = isinstance(tree, yaml.ScalarNode) and tree.tag.endswith(":null")
                    if not empty:
                        hint = "a file of variables is `name: value` lines"
                        what = "list" if isinstance(tree, yaml.SequenceNode) else "text"
                        errors.append(Error(owner, where, f"holds a {what}, not variables", hint=hint))
    return errors
