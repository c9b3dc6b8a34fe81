"""A host in a directory: the file system is real, systemd and the package manager are played."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sideband.state import run
from sideband.state.system import Result, System


class FakeHost(System):
    """Names map to the test's own user, so that no test needs root."""

    def __init__(self, root: Path, systemd: bool = False) -> None:
        super().__init__(str(root))
        uid, gid = os.getuid(), os.getgid()
        (root / "etc").mkdir(parents=True)
        (root / "var/lib").mkdir(parents=True)
        (root / "etc/passwd").write_text(f"root:x:{uid}:{gid}::/root:/bin/sh\n")
        (root / "etc/group").write_text(f"root:x:{gid}:\n")
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        self.reboot("boot-1")
        if systemd:
            (root / "run/systemd/system").mkdir(parents=True)
            (root / "etc/systemd/system").mkdir(parents=True)
        self.active: set[str] = set()
        self.enabled: set[str] = set()
        self.dies: set[str] = set()  # units that fail to start
        self.packages: set[str] = {"dpkg"}
        self.needs: dict[str, set[str]] = {}  # package -> its dependencies
        self.session = "10.90.0.1 1001 10.90.0.31 22"
        self.calls: list[list[str]] = []

    @property
    def base(self) -> Path:
        return Path(self.root)

    def reboot(self, identity: str) -> None:
        (self.base / "proc/sys/kernel/random/boot_id").write_text(f"{identity}\n")

    def add_user(self, name: str) -> None:
        with (self.base / "etc/passwd").open("a") as file:
            file.write(f"{name}:x:{os.getuid()}:{os.getgid()}::/:/\n")
        with (self.base / "etc/group").open("a") as file:
            file.write(f"{name}:x:{os.getgid()}:\n")

    def did(self, *words: str) -> list[list[str]]:
        return [call for call in self.calls if call[: len(words)] == list(words)]

    # the played programs

    def run(self, argv: Sequence[str], stdin: str | None = None, timeout: float = 120) -> Result:
        self.calls.append(list(argv))
        player = getattr(self, "play_" + os.path.basename(argv[0]).replace("-", "_"), None)
        if player is None:
            return Result(127, "", f"{argv[0]}: no such program")
        answer: Result = player(list(argv[1:]))
        return answer

    def play_systemctl(self, words: list[str]) -> Result:
        words = [word for word in words if word != "--no-block"]
        verb, names = words[0], [word for word in words[1:] if not word.startswith("-")]
        if verb == "show":
            return Result(0, "\n".join(self._block(name) for name in names), "")
        for name in names:
            if verb in ("start", "restart"):
                if name in self.dies:
                    return Result(1, "", f"Job for {name} failed.")
                self.active.add(name)
            elif verb == "stop":
                self.active.discard(name)
            elif verb == "enable":
                self.enabled.add(name)
            elif verb == "disable":
                self.enabled.discard(name)
        return Result(0, "", "")

    def _block(self, name: str) -> str:
        active = "active" if name in self.active else "inactive"
        enabled = "enabled" if name in self.enabled else "disabled"
        return (
            f"Id={name}\nLoadState=loaded\nActiveState={active}\nSubState=x\nUnitFileState={enabled}\n"
            "NeedDaemonReload=no\n"
        )

    def play_systemd_run(self, words: list[str]) -> Result:
        return Result(0, "", "")

    def play_journalctl(self, words: list[str]) -> Result:
        return Result(0, "the last words of the daemon\n", "")

    def play_dpkg_query(self, words: list[str]) -> Result:
        names = words[3:] or sorted(self.packages)
        there = [name for name in names if name in self.packages]
        return Result(0 if len(there) == len(names) else 1, "".join(f"{name} ii \n" for name in there), "")

    def play_apt_get(self, words: list[str]) -> Result:
        """`-s -q [--auto-remove] purge NAMES`: what would go."""
        gone = {word for word in words if word in self.packages}
        while True:
            more = {name for name in self.packages if self.needs.get(name, set()) & gone}
            if "--auto-remove" in words:
                kept = self.packages - gone - more
                wanted = {need for name in kept for need in self.needs.get(name, set())}
                more |= {need for name in gone for need in self.needs.get(name, set())} - wanted
            if more <= gone:
                break
            gone |= more
        return Result(0, "".join(f"Purg {name} [1]\n" for name in sorted(gone)), "")

    # host_state's verbs

    def perform(
        self,
        state: str,
        fragment: dict[str, Any] | None = None,
        *,
        owner: str = "rack",
        secrets: list[dict[str, Any]] | None = None,
        check: bool = False,
        purge: bool = False,
    ) -> dict[str, Any]:
        self._names.clear()  # each run of the module is a new process
        return run.perform(
            self,
            state,
            owner,
            fragment or {},
            secrets or [],
            purge=purge,
            session=self.session,
            check_mode=check,
        )

    def present(self, fragment: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.perform("present", fragment, **more)


def tree(root: Path) -> dict[str, Any]:
    """Every path below a root with what undo must bring back."""
    found: dict[str, Any] = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = Path(directory, name)
            status = path.lstat()
            if path.is_symlink():
                content: Any = os.readlink(path)
            else:
                content = path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(root))] = (oct(status.st_mode), status.st_uid, content)
    return found
