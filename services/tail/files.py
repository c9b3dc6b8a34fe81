"""All files that are read: found, followed through rotation, left where they end, found again after a
restart."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Iterable
from typing import Any

from services.tail.follow import Follower, Swapped, open_file
from services.tail.stream import Record, Rule
from services.tail.wanted import Wanted, siblings

LINGER_SECONDS = 30.0  # a file that nobody wants any more may still be written to
KEPT = 5000  # entries of files that are closed
MOST = 1024


class Files:
    def __init__(self, node: str, choose: Any = None) -> None:
        self._node = node
        self._choose = choose or (lambda labels: Rule())
        self.open: dict[tuple[int, int], Follower] = {}
        self.paths: dict[str, tuple[int, int]] = {}  # of what is found by its path: the file that has it now
        self._wanted: dict[str, Wanted] = {}
        self._named: dict[str, float] = {}  # when each was last wanted
        self.closed: collections.OrderedDict[str, dict[str, Any]] = collections.OrderedDict()  # by stream
        self._closed_keys: dict[tuple[int, int], str] = {}
        self._turn = 0
        self.since = time.time_ns()  # what was written before is not ours to read
        self.unsaved = False  # a stream got its name, which must be on disk before its first record leaves
        self.left_out = self.records = 0  # of files that are closed
        self.counts: collections.Counter[str] = collections.Counter(
            dict.fromkeys(("truncated", "refused", "skipped_bytes", "vanished_bytes", "too_many"), 0)
        )

    # -- what is wanted -----------------------------------------------------------------------------------

    def want(self, wanted: Iterable[Wanted], clock: float) -> None:
        paths: dict[str, Wanted] = {}
        keys = set()
        for one in wanted:
            if one.inode is not None:
                keys.add((one.device, one.inode))
                self._adopt(one, clock)
            # A path in another mount name space is its process's; here only its file can be found.
            if one.read_path == one.path:
                paths.setdefault(one.path, one)
        for path, one in paths.items():
            self._wanted[path], self._named[path] = one, clock
        # Between two files of a rotation a name leads nowhere for a moment.
        for path in [path for path, at in self._named.items() if clock - at > LINGER_SECONDS]:
            del self._wanted[path], self._named[path]
            self.paths.pop(path, None)
        self.look(clock)
        named = set(self.paths.values())
        for key, follower in self.open.items():
            follower.wanted = key in keys or key in named

    def look(self, clock: float) -> None:
        """Whether the paths still lead to the files that they led to."""
        for path, one in self._wanted.items():
            try:
                status = os.lstat(path)
            except OSError:
                continue
            key = (status.st_dev, status.st_ino)
            before = self.paths.get(path) or self._last(path)
            if key == self.paths.get(path):
                continue
            owners = self._owners(one, before)
            if key != before:
                self._between(path, one, before, owners, clock)
            if self._adopt(
                one if one.inode is None else Wanted(path, path, one.labels, one.form), clock, owners
            ):
                self.paths[path] = key

    def _owners(self, one: Wanted, before: tuple[int, int] | None) -> frozenset[int] | None:
        """Who may own what comes to stand at a user's path: who owned what stood there."""
        if not one.user_owned:
            return None
        key = before or ((one.device or 0, one.inode or 0) if one.inode is not None else None)
        follower = self.open.get(key) if key else None
        return frozenset({follower.owner}) if follower else frozenset()

    def _last(self, path: str) -> tuple[int, int] | None:
        """Of the files that are read and had this name, the one that was written to last."""
        found = [
            (os.fstat(one.handle).st_mtime_ns, key) for key, one in self.open.items() if one.path == path
        ]
        return max(found)[1] if found else None

    def _between(
        self,
        path: str,
        one: Wanted,
        before: tuple[int, int] | None,
        owners: frozenset[int] | None,
        clock: float,
    ) -> None:
        """Rotated: files that had this name since our last look, the one we knew among them."""
        since = self.since  # of a path that is new to us
        if before in self.open:
            since = os.fstat(self.open[before].handle).st_mtime_ns
        names = siblings(path)
        entries = {(int(e["device"]), int(e["inode"])): e for e in self.closed.values() if e["path"] == path}
        if before is None and entries:
            # After a restart: what we were reading has another name by now; what is younger is new to us.
            since = max(int(entry.get("written", 0)) for entry in entries.values())
        for name in names:
            status = os.lstat(name)
            key = (status.st_dev, status.st_ino)
            if key in entries or (
                key not in self.open and key not in self._closed_keys and status.st_mtime_ns >= since
            ):
                self._adopt(Wanted(path, name, one.labels, one.form), clock, owners)

    def _adopt(self, one: Wanted, clock: float, owners: frozenset[int] | None = None) -> bool:
        """Follow this file if it is not followed yet; whether it is now."""
        if one.inode is not None and (one.device, one.inode) in self.open:
            return True
        if len(self.open) >= MOST:
            self.counts["too_many"] += 1
            return False
        try:
            handle = open_file(one.read_path, one.device, one.inode, owners)
        except Swapped:
            self.counts["refused"] += 1
            return False
        except OSError:
            return False  # gone again, or out of reach
        status = os.fstat(handle)
        key = (status.st_dev, status.st_ino)
        if key in self.open:
            os.close(handle)
            return True
        follower = Follower(handle, one.path, dict(one.labels), one.form, self._node)
        follower.stream.choose = self._choose
        entry = self.closed.get(self._closed_keys.get(key, ""))
        try:
            self.unsaved = True
            if entry is None:
                follower.begin(clock)
            else:
                self._forget(entry)
                follower.resume(entry, clock)
        except (Swapped, OSError, ValueError, KeyError):
            follower.begin(clock)
        self.counts["skipped_bytes"] += follower.skipped_bytes
        self.open[key] = follower
        return True

    # -- reading ------------------------------------------------------------------------------------------

    def read(self, clock: float, room: int, most_bytes: int) -> list[tuple[Follower, Record]]:
        """A bit of each file in turn, as long as there is room for records and bytes."""
        made: list[tuple[Follower, Record]] = []
        followers = list(self.open.values())
        if not followers:
            return made
        self._turn %= len(followers)
        spent = 0
        for follower in followers[self._turn :] + followers[: self._turn]:
            self._turn += 1
            if len(made) >= room or spent >= most_bytes:
                break
            before, name = follower.behind_bytes, follower.stream.name
            try:
                records = follower.read(clock, min(65_536, max(1, most_bytes - spent)))
            except OSError:
                continue
            spent += min(before, 65_536)
            self.unsaved = self.unsaved or follower.stream.name != name
            made += [(follower, one) for one in records]
        return made

    def tidy(self, clock: float) -> None:
        for key, follower in list(self.open.items()):
            status = os.fstat(follower.handle)
            idle = clock - follower.idle_since
            gone = status.st_nlink == 0
            if gone and follower.behind_bytes and idle > 2 * LINGER_SECONDS:
                # Its space cannot be freed while we hold it.
                self.counts["vanished_bytes"] += follower.behind_bytes
            elif (
                not follower.quiet
                or (follower.wanted and not gone)
                or idle < (5.0 if gone else LINGER_SECONDS)
            ):
                continue
            self.counts["truncated"] += follower.truncated
            self.left_out += follower.stream.left_out
            self.records += follower.stream.records
            if not gone:
                self.remember([{**follower.entry(), "written": status.st_mtime_ns}])
            follower.close()
            del self.open[key]
            for path in [path for path, one in self.paths.items() if one == key]:
                del self.paths[path]

    # -- across a restart ---------------------------------------------------------------------------------

    def entries(self) -> list[dict[str, Any]]:
        found = []
        for one in self.open.values():
            wanted = self._wanted.get(one.path)
            named = None if wanted is None else wanted.user_owned
            written = os.fstat(one.handle).st_mtime_ns
            found.append({**one.entry(), "written": written, "open": True, "named": named})
        return [*self.closed.values(), *found]

    def remember(self, entries: Iterable[dict[str, Any]]) -> None:
        for entry in entries:
            self.closed[str(entry["stream"])] = entry
            self._closed_keys[(int(entry["device"]), int(entry["inode"]))] = str(entry["stream"])
        while len(self.closed) > KEPT:
            self._forget(next(iter(self.closed.values())))

    def _forget(self, entry: dict[str, Any]) -> None:
        self.closed.pop(str(entry["stream"]), None)
        self._closed_keys.pop((int(entry["device"]), int(entry["inode"])), None)

    def finish_old(self, clock: float) -> None:
        """Read to their ends what was being read when an earlier process stopped, wanted or not."""
        for entry in [one for one in self.closed.values() if one.get("open")]:
            labels = {str(key): str(value) for key, value in entry["labels"].items()}
            if entry.get("named") is not None:
                # Rotated meanwhile, and perhaps again before it is asked for: its name is still looked at.
                path, form = entry["path"], entry["format"]
                self._wanted[path] = Wanted(path, path, labels, form, user_owned=bool(entry["named"]))
                self._named[path] = clock
            for path in [entry["path"], *siblings(entry["path"])]:
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) == (entry["device"], entry["inode"]):
                    owners = frozenset({int(entry["owner"])})
                    self._adopt(Wanted(entry["path"], path, labels, entry["format"]), clock, owners)
                    break
