"""The data's way into the remote and back: sent by DVC, read back and hashed before it counts (case 83)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from services.archiver import dvc
from services.archiver.config import Config, Remote
from services.archiver.problem import Problem
from services.archiver.rooms import Rooms, remove
from services.archiver.s3 import Damaged, Missing, Object, Storage

_PUSHES = 3


class Store:
    def __init__(
        self, config: Config, rooms: Rooms, say: Callable[[str], None], sleep: Callable[[float], None]
    ) -> None:
        self._config, self._rooms, self._say, self._sleep = config, rooms, say, sleep

    def remote(self, tenant: str) -> Remote:
        """Each tenant's data lie under a prefix of its own: a site can give it a key for just that."""
        return replace(self._config.remote, prefix=f"{self._config.remote.prefix}/{tenant}".lstrip("/"))

    def storage(self, tenant: str) -> Storage:
        return Storage(self.remote(tenant))

    def workspace(self, directory: Path, tenant: str) -> dvc.Workspace:
        return dvc.Workspace(directory, self._rooms.cache, self.remote(tenant))

    def put(self, workspace: dvc.Workspace, tenant: str, file: str, made: Object) -> None:
        """Until the remote gives back what was sent. What is damaged there is removed and sent anew."""
        storage = self.storage(tenant)
        said = ""
        for attempt in range(_PUSHES):
            if attempt:
                self._say(f"{file}: not stored yet ({said}); sending it again")
                self._sleep(2.0**attempt)
            try:
                workspace.push(file)
                storage.verify(made)
                self._say(f"{file}: stored and read back, MD5 {made.md5}, {made.size:,} bytes")
                return
            except Damaged as problem:
                said = str(problem)
                storage.remove(made)  # DVC sends nothing that it believes to be there
            except Missing:
                said = "the remote has not got it"
            except Problem as problem:
                if not problem.retry:
                    raise
                said = problem.text
        raise Problem(
            f"{file}: could not be stored ({said})",
            "nothing was committed and nothing removed; run the same again",
            retry=True,
        )

    def stands(self, directory: Path, tenant: str, file: str, committed: Object) -> bool:
        """Whether the remote has what was committed. What it lost is put back from the cache."""
        try:
            self.storage(tenant).verify(committed)
            return True
        except (Damaged, Missing) as problem:
            self._say(f"{file}: committed, but the remote has not got it ({problem})")
        if not self._rooms.whole(committed):
            return False
        workspace = self.workspace(directory / "again", tenant)
        workspace.adopt(file, committed)
        self.put(workspace, tenant, file, committed)
        return True

    def local(self, tenant: str, wanted: Object) -> Path:
        """The file, fetched where it is not at hand. Raises Damaged or Missing."""
        if not self._rooms.has(wanted):
            self.storage(tenant).fetch(wanted, self._rooms.cached(wanted))
        return self._rooms.cached(wanted)

    def prune(self) -> list[Object]:
        """Makes room in the cache: only what is committed and in the remote, the longest unused first."""
        files = self._rooms.cache_files()
        total = sum(found.size for _, found in files)
        tenants = {str(record.get("md5")): str(record.get("tenant")) for record in self._rooms.records()}
        gone = []
        for _, found in files:
            if total <= self._config.cache_bytes:
                break
            if found.md5 in tenants and self.storage(tenants[found.md5]).there(found):
                remove(self._rooms.cached(found))
                total -= found.size
                gone.append(found)
        return gone
