"""Things in the file system: directories, files, secrets, links. `want == have` decides."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import Any, Union

from .change import Change
from .system import StateError, System, mode_of


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parents(path: str) -> list[str]:
    """Outermost first, without the root."""
    names = path.split("/")
    return ["/".join(names[:number]) for number in range(2, len(names))]


def _facts(mode: int, owner: str, group: str) -> str:
    return f"{mode:04o} {owner}:{group}"


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"(binary, sha256 {digest(data)})\n"


def _wrong_kind(path: str, status: os.stat_result, want: str) -> StateError:
    return StateError(
        f"{path}: a {want} is wanted here, but it is {stat.filemode(status.st_mode)[0]!r} type; "
        "move it away by hand, sideband does not remove what it did not bring"
    )


@dataclass(frozen=True)
class Directory:
    path: str
    mode: int
    owner: str
    group: str
    kind = "directory"

    @classmethod
    def read(cls, system: System, path: str) -> Directory | None:
        status = system.status(path)
        if status is None:
            return None
        if not system.is_directory(path):
            raise _wrong_kind(path, status, "directory")
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(system.at(path))
        return cls(path, mode_of(status), system.user_name(status.st_uid), system.group_name(status.st_gid))

    def change(self, have: Directory | None) -> Change:
        if have is None:
            return Change(self.kind, self.path, "create", self.facts())
        return Change(self.kind, self.path, "change", f"{have.facts()} -> {self.facts()}")

    def facts(self) -> str:
        return _facts(self.mode, self.owner, self.group)

    def write(self, system: System) -> None:
        system.make_directory(self.path, self.mode, *system.owners(self.owner, self.group))

    def fingerprint(self) -> str:
        return ""


@dataclass(frozen=True)
class File:
    path: str
    content: bytes
    mode: int
    owner: str
    group: str
    check: str = field(default="", compare=False)
    create: bool = field(default=False, compare=False)
    kind = "file"

    @classmethod
    def read(cls, system: System, path: str) -> File | None:
        status = system.status(path)
        if status is None or stat.S_ISLNK(status.st_mode):
            return None  # a link is replaced by the file; `snapshot` keeps a foreign one
        if not stat.S_ISREG(status.st_mode):
            raise _wrong_kind(path, status, "file")
        return cls(
            path,
            system.content(path) or b"",
            mode_of(status),
            system.user_name(status.st_uid),
            system.group_name(status.st_gid),
        )

    def change(self, have: File | None) -> Change:
        if have is None:
            return Change(self.kind, self.path, "create", self.facts(), "", _text(self.content))
        if have.content == self.content:
            return Change(self.kind, self.path, "change", f"{have.facts()} -> {self.facts()}")
        return Change(self.kind, self.path, "change", "content", _text(have.content), _text(self.content))

    def facts(self) -> str:
        return _facts(self.mode, self.owner, self.group)

    def write(self, system: System) -> None:
        system.write(self.path, self.content, self.mode, *system.owners(self.owner, self.group))

    def fingerprint(self) -> str:
        return "created once" if self.create else digest(self.content)


@dataclass(frozen=True)
class Secret(File):
    kind = "secret"

    def change(self, have: File | None) -> Change:
        """Never a content, not even its length."""
        return Change(self.kind, self.path, "create" if have is None else "change")


@dataclass(frozen=True)
class Link:
    path: str
    target: str
    kind = "link"

    @classmethod
    def read(cls, system: System, path: str) -> Link | None:
        status = system.status(path)
        if status is None or stat.S_ISREG(status.st_mode):
            return None
        if not stat.S_ISLNK(status.st_mode):
            raise _wrong_kind(path, status, "link")
        return cls(path, os.readlink(system.at(path)))

    def change(self, have: Link | None) -> Change:
        if have is None:
            return Change(self.kind, self.path, "create", f"-> {self.target}")
        return Change(self.kind, self.path, "change", f"{have.target} -> {self.target}")

    def write(self, system: System) -> None:
        system.link(self.path, self.target)

    def fingerprint(self) -> str:
        return self.target


Item = Union[Directory, File, Link]


def snapshot(system: System, path: str) -> dict[str, Any]:
    """What stands at a path, complete enough to put it back."""
    status = system.status(path)
    if status is None:
        return {"type": "nothing"}
    facts: dict[str, Any] = {"mode": mode_of(status), "uid": status.st_uid, "gid": status.st_gid}
    if stat.S_ISLNK(status.st_mode):
        return {"type": "link", "target": os.readlink(system.at(path)), **facts}
    if stat.S_ISDIR(status.st_mode):
        return {"type": "directory", **facts}
    if stat.S_ISREG(status.st_mode):
        return {"type": "file", "content": base64.b64encode(system.content(path) or b"").decode(), **facts}
    raise _wrong_kind(path, status, "file, link or directory")


def put_back(system: System, path: str, saved: dict[str, Any]) -> None:
    """The inverse of `snapshot`. A directory that was not there is left to the caller: it may be shared."""
    kind = saved["type"]
    status = system.status(path)
    if kind == "nothing":
        if status is not None and not stat.S_ISDIR(status.st_mode):
            system.unlink(path)
    elif kind == "link":
        system.link(path, saved["target"])
    elif kind == "directory":
        system.make_directory(path, saved["mode"], saved["uid"], saved["gid"])
    else:
        system.write(path, base64.b64decode(saved["content"]), saved["mode"], saved["uid"], saved["gid"])
