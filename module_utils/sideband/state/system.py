"""The one door to the host: files under a root, commands with a time limit, names of users and groups."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class StateError(Exception):
    """What went wrong, in a form for a person: what, where, and what to do next."""


@dataclass(frozen=True)
class Result:
    rc: int
    out: str
    err: str


class System:
    """Everything that touches the host goes through here, so that tests can give a root and a runner."""

    def __init__(self, root: str = "/", local: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        self.local = local  # whether whoever runs this is on the host itself
        self._names: dict[str, dict[str, int]] = {}

    def at(self, path: str) -> str:
        return path if self.root == "/" else self.root + path

    # commands

    def run(self, argv: Sequence[str], stdin: str | None = None, timeout: float = 120) -> Result:
        environment = dict(
            os.environ, LC_ALL="C", PATH="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
        )
        try:
            done = subprocess.run(
                list(argv),
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                env=environment,
                check=False,
            )
        except FileNotFoundError:
            return Result(127, "", f"{argv[0]}: no such program")
        except PermissionError as problem:
            return Result(126, "", f"{argv[0]}: {problem.strerror}")
        except subprocess.TimeoutExpired:
            return Result(124, "", f"{argv[0]}: gave no answer in {timeout:.0f} s")
        return Result(done.returncode, done.stdout, done.stderr)

    def must(self, argv: Sequence[str], hint: str, stdin: str | None = None, timeout: float = 120) -> Result:
        result = self.run(argv, stdin, timeout)
        if result.rc != 0:
            said = (result.err or result.out).strip()
            raise StateError(f"`{' '.join(argv)}` ended with {result.rc}: {said}; {hint}")
        return result

    # names

    def _table(self, name: str) -> dict[str, int]:
        """/etc/passwd or /etc/group as name -> id; re-read by forget_names()."""
        if name not in self._names:
            table: dict[str, int] = {}
            if self.root == "/":
                # Through getent, so that directory services count too.
                text = self.run(["getent", name]).out
            else:
                try:
                    with open(self.at(f"/etc/{name}"), encoding="utf-8") as file:
                        text = file.read()
                except FileNotFoundError:
                    text = "root:x:0:0"
            for line in text.splitlines():
                fields = line.split(":")
                if len(fields) > 2 and fields[2].isdigit():
                    table.setdefault(fields[0], int(fields[2]))
            self._names[name] = table
        return self._names[name]

    def uid(self, name: str) -> int | None:
        return int(name) if name.isdigit() else self._table("passwd").get(name)

    def gid(self, name: str) -> int | None:
        return int(name) if name.isdigit() else self._table("group").get(name)

    def user_name(self, uid: int) -> str:
        return next((name for name, value in self._table("passwd").items() if value == uid), str(uid))

    def group_name(self, gid: int) -> str:
        return next((name for name, value in self._table("group").items() if value == gid), str(gid))

    def members(self, group: str) -> list[str]:
        """Users listed in a group (not those that have it as primary)."""
        if self.root == "/":
            text = self.run(["getent", "group", group]).out
        else:
            try:
                with open(self.at("/etc/group"), encoding="utf-8") as file:
                    text = file.read()
            except FileNotFoundError:
                text = ""
        for line in text.splitlines():
            fields = line.split(":")
            if fields[0] == group and len(fields) > 3:
                return [name for name in fields[3].split(",") if name]
        return []

    # files

    def status(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(self.at(path))

    def content(self, path: str) -> bytes | None:
        try:
            with open(self.at(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def owners(self, owner: str, group: str) -> tuple[int, int]:
        uid, gid = self.uid(owner), self.gid(group)
        if uid is None or gid is None:
            lost = f"user {owner}" if uid is None else f"group {group}"
            raise StateError(f"{lost} does not exist; name it in the fragment's users or groups")
        return uid, gid

    def write(self, path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
        """Replace a file in one step: readers see the old or the new one, its mode right from the start."""
        target = self.at(path)
        directory, beside = os.path.dirname(target), self.beside(target)
        if os.path.lexists(beside):
            os.unlink(beside)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchown(file.fileno(), uid, gid)
                os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(beside, target)
        except BaseException:
            if os.path.lexists(beside):
                os.unlink(beside)
            raise
        self._sync_directory(directory)

    def link(self, path: str, target: str) -> None:
        place = self.at(path)
        beside = self.beside(place)
        if os.path.lexists(beside):
            os.unlink(beside)
        os.symlink(target, beside)
        os.rename(beside, place)
        self._sync_directory(os.path.dirname(place))

    @staticmethod
    def beside(path: str) -> str:
        """Where the next content of `path` is written: a fixed name, so a killed run leaves at most one."""
        directory, name = os.path.split(path)
        return os.path.join(directory, f".{name}.sideband")

    def sweep(self, paths: Iterable[str]) -> None:
        """Take away what a killed run left half written beside these paths."""
        for path in paths:
            if os.path.isdir(self.at(self.beside(path))):
                os.rmdir(self.at(self.beside(path)))
            else:
                self.unlink(self.beside(path))

    @staticmethod
    def _sync_directory(directory: str) -> None:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def make_directory(self, path: str, mode: int, uid: int, gid: int) -> None:
        """There only with its owner and mode: nobody may slip in before, and a killed run leaves it whole."""
        place = self.at(path)
        if os.path.isdir(place):
            os.chown(place, uid, gid)
            os.chmod(place, mode)
            return
        beside = self.beside(place)
        if os.path.isdir(beside):
            os.rmdir(beside)
        os.mkdir(beside, 0o700)
        os.chown(beside, uid, gid)
        os.chmod(beside, mode)
        os.rename(beside, place)

    def drop_empty(self, path: str) -> None:
        """A directory goes when nobody put anything into it."""
        if self.is_directory(path) and not os.listdir(self.at(path)):
            os.rmdir(self.at(path))

    def unlink(self, path: str) -> None:
        if self.exists(path):
            os.unlink(self.at(path))

    def missing_parents(self, path: str) -> list[str]:
        """Directories above `path` that do not exist, outermost first."""
        lost: list[str] = []
        parent = os.path.dirname(path)
        while parent != "/" and not os.path.isdir(self.at(parent)):
            lost.insert(0, parent)
            parent = os.path.dirname(parent)
        return lost


def mode_of(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)
