"""The dry pass: everything that a run would do, and everything that forbids it, without a write."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from . import netfilter, network, packages, record, rivals, shaping, units
from .change import Change
from .fragment import Fragment, parse
from .paths import Directory, File, Item, digest, parents, snapshot
from .record import Generation
from .system import StateError, System


@dataclass
class Plan:
    want: Fragment
    changes: list[Change] = field(default_factory=list)
    due: list[File] = field(default_factory=list)  # changed files with a check
    prune_paths: list[str] = field(default_factory=list)  # deepest first
    prune_units: list[str] = field(default_factory=list)
    missing: dict[str, list[Any]] = field(default_factory=dict)
    orphaned: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Change]:
        return [change for change in self.changes if change.kind in kinds]

    @property
    def lacking(self) -> bool:
        return any(self.missing.values())

    def lines(self) -> list[str]:
        return [change.line() for change in self.changes] + self.notes


def recorded(other: record.Record) -> Fragment:
    """What another owner has here. It was read before it came, maybe by a more lenient release."""
    try:
        return parse(other.current["fragment"], other.current["secrets"])
    except StateError as problem:
        lines = "\n".join(f"owner {other.owner}, as applied: {line}" for line in str(problem).splitlines())
        raise StateError(f"{lines}\n  next: bring owner {other.owner} anew, or remove it") from problem


class Planner:
    """One owner on one host."""

    def __init__(self, system: System, owner: str, program: bytes = b"") -> None:
        self.system = system
        self.owner = owner
        self.program = program  # the recovery program's text; empty in the recovery program itself
        self.record = record.load(system, owner)
        self.others = record.others(system, owner)
        self.block = True  # wait for systemd's jobs; not at boot

    def plan(self, generation: Generation) -> Plan:
        want = parse(generation["fragment"], generation["secrets"])
        self._claims(want)
        self._footing(want)
        plan = Plan(want)
        self._spare_theirs(plan)
        self._plan_missing(plan)
        self._plan_prune_units(plan)
        for path, item in want.items.items():
            self._plan_item(plan, path, item)
        self._plan_parents(plan)
        self._plan_prune_paths(plan)
        if want.nftables:
            self._extend(plan, self._plan_table(plan, want.nftables))
        for tree in want.shapes.values():
            self._extend(plan, shaping.plan(self.system, tree))
        for family, table in self._old_tables(want):
            if netfilter.listing(self.system, family, table) is not None:
                plan.changes.append(Change("nftables", f"{family} {table}", "remove"))
        for device in self._old_devices(want):
            if shaping.read(self.system, device)[0] == f"{shaping.MAJOR}:":
                plan.changes.append(Change("shape", device, "remove"))
        self._plan_units(plan)
        plan.changes += network.plan_given_up(self.system, self.record.network, want.network)
        if want.network:
            stale = self._why(want, want.network.paths, self.record.running.get("network"))
            plan.changes += network.plan(self.system, want.network, stale)
        if self._needs_program(want) and self.program != (self.system.content(self._program_path()) or b""):
            plan.changes.append(Change("program", self._program_path(), "write"))
        return plan

    @staticmethod
    def _extend(plan: Plan, change: Change | None) -> None:
        if change:
            plan.changes.append(change)

    def _claims(self, want: Fragment) -> None:
        """What two owners want differently would flap for ever; two network managers fight at boot."""
        problems: list[str] = []
        ours: set[str] = set(want.items)
        for other in self.others:
            ours |= set(other.originals)
            theirs = recorded(other)
            for path in sorted(set(want.items) & set(theirs.items)):
                if want.items[path] != theirs.items[path]:
                    problems.append(
                        f"{path}: owner {other.owner} wants it differently; one owner must give it up"
                    )
            for device in sorted(set(want.shapes) & set(theirs.shapes)):
                problems.append(f"device {device}: owner {other.owner} shapes it already")
            if want.nftables and theirs.nftables and want.nftables.name == theirs.nftables.name:
                problems.append(f"table {want.nftables.name}: owner {other.owner} loads it already")
        if want.network:
            problems += rivals.find(
                self.system,
                want.network.devices,
                ours | set(self.record.originals),
                want.network.accept_rivals,
            )
        if problems:
            raise StateError("\n".join(problems))

    def _footing(self, want: Fragment) -> None:
        """What stands where a directory has to be would stop a run half way."""
        lost: dict[str, str] = {}
        for path in want.items:
            there = next((up for up in parents(path) if not self.system.is_directory(up)), path)
            if there != path and self.system.exists(there):
                lost[there] = path
        if lost:
            hint = "move it away by hand, or name another path"
            told = [f"{path}: {there} is there and no directory; {hint}" for there, path in lost.items()]
            raise StateError("\n".join(told))

    def _spare_theirs(self, plan: Plan) -> None:
        """A vendor unit that was here before its package could come with us is somebody else's: no mask."""
        known = {path for each in (self.record, *self.others) for path in each.originals}
        for path, target in units.mask_paths(plan.want.masks).items():
            if path not in known and units.is_theirs(self.system, path, target):
                del plan.want.items[path]
                name = os.path.basename(path)
                plan.notes.append(f"unit {name}: was here before us, so it is left as it is")

    def _plan_missing(self, plan: Plan) -> None:
        want, system = plan.want, self.system
        plan.missing = {
            "packages": packages.missing_packages(system, want.packages),
            "groups": packages.missing_groups(system, want.groups),
            "users": packages.missing_users(system, want.users),
            "services": [],
        }
        for name in plan.missing["packages"]:
            plan.changes.append(Change("package", name, "install"))
        for name in plan.missing["groups"]:
            plan.changes.append(Change("group", name, "create"))
        for user in plan.missing["users"]:
            plan.changes.append(Change("user", user["name"], "create"))
        known_users = {user["name"] for user in want.users} | {user["group"] for user in want.users}
        known = known_users | set(want.groups)
        lost = [
            f"{item.path}: {what} {name} does not exist; name it in the fragment's {what}s"
            for item in want.items.values()
            if isinstance(item, (Directory, File))
            for what, name, number in (
                ("user", item.owner, system.uid(item.owner)),
                ("group", item.group, system.gid(item.group)),
            )
            if number is None and name not in known and not plan.missing["packages"]
        ]
        if lost:
            raise StateError("\n".join(lost))
        wanted = {
            "packages": set(want.packages),
            "groups": set(want.groups) | {user["group"] for user in want.users},
            "users": {user["name"] for user in want.users},
        }
        for other in self.others:
            theirs = recorded(other)
            wanted["packages"] |= set(theirs.packages)
            wanted["groups"] |= set(theirs.groups) | {user["group"] for user in theirs.users}
            wanted["users"] |= {user["name"] for user in theirs.users}
        brought = self.record.installed
        # Named packages decide; what came along as a dependency goes when nothing needs it any more.
        unwanted = [name for name in self.record.named if name not in wanted["packages"]]
        removable = packages.removable(system, unwanted, brought.get("packages", []))
        # Their own users go with the last of them.
        there = packages.installed(system, self.record.named) if self.record.named else []
        along = {} if set(there) - set(removable) else self.record.along
        plan.orphaned = {
            kind: [
                name
                for name in (*brought.get(kind, []), *along.get(kind, []))
                if name not in wanted[kind] and find(name) is not None
            ]
            for kind, find in (("users", system.uid), ("groups", system.gid))
        }
        plan.orphaned["packages"] = removable
        for kind, names in plan.orphaned.items():
            plan.changes += [Change(kind[:-1], name, "remove") for name in names]

    def _plan_item(self, plan: Plan, path: str, item: Item) -> None:
        if path in plan.want.archives and not plan.want.archives[path].present(self.system):
            plan.changes.append(Change("archive", path, "unpack", plan.want.archives[path].url))
        have = type(item).read(self.system, path)
        if isinstance(item, File) and item.create and have is not None:
            return
        if have != item:
            plan.changes.append(item.change(have))  # type: ignore[arg-type]  # read() gave the same class
            if isinstance(item, File) and item.check:
                plan.due.append(item)

    def _plan_parents(self, plan: Plan) -> None:
        """Directories that nobody lists but that must be there: made plain, and removed again when empty."""
        lost: list[str] = []
        for path in plan.want.items:
            lost += [parent for parent in self.system.missing_parents(path) if parent not in plan.want.items]
        plan.changes += [
            Change("directory", parent, "create", "0755 root:root")
            for parent in sorted(set(lost))
            if parent != record.BASE
        ]

    def _plan_prune_paths(self, plan: Plan) -> None:
        keep = set(plan.want.items)
        for path in keep.copy():
            while path != "/":
                path = os.path.dirname(path)
                keep.add(path)
        shared = {path for other in self.others for path in other.originals}
        going: set[str] = set()
        for path in sorted(self.record.originals, key=lambda each: (-each.count("/"), each)):
            if path in keep:
                continue
            plan.prune_paths.append(path)
            saved, now = self.record.originals[path], snapshot(self.system, path)
            if path in shared or saved == now:
                continue
            if saved["type"] != "nothing":
                plan.changes.append(Change(now["type"], path, "restore", "what stood here before"))
            elif now["type"] != "directory" or self._emptied(path, going):
                going.add(path)
                plan.changes.append(Change(now["type"], path, "remove"))

    def _emptied(self, path: str, going: set[str]) -> bool:
        return all(f"{path}/{name}" in going for name in os.listdir(self.system.at(path)))

    def _plan_table(self, plan: Plan, table: netfilter.NftTable) -> Change | None:
        change = netfilter.plan(self.system, table, self.record.running.get("nftables") or {})
        if change:
            answer = netfilter.check(self.system, table)
            if answer.startswith("absent:"):
                plan.notes.append(f"nftables {table.name}: cannot be checked before nft is installed")
            elif answer:
                raise StateError(f"nftables {table.name}: {answer}; nothing was changed")
        return change

    def _old_tables(self, want: Fragment) -> list[list[str]]:
        mine = [want.nftables.family, want.nftables.table] if want.nftables else None
        return [entry for entry in self.record.tables if entry != mine]

    def _old_devices(self, want: Fragment) -> list[str]:
        return [device for device in self.record.devices if device not in want.shapes]

    def _plan_prune_units(self, plan: Plan) -> None:
        """A unit whose file we brought is stopped and disabled; another goes back to how it was."""
        shared = {name for other in self.others for name in other.units}
        plan.prune_units = [name for name in self.record.units if name not in plan.want.units]
        have = units.read_units(self.system, plan.prune_units)
        for name in plan.prune_units:
            if name in shared:
                continue
            before = self._before(name)
            plan.changes += [
                Change("old unit", name, change.action)
                for change in units.actions(
                    units.Unit(name, before["enabled"], before["active"]), have[name], "", ""
                )
            ]

    def _before(self, name: str) -> dict[str, bool]:
        ours = self.record.brought(units.unit_file(name))
        return {"enabled": False, "active": False} if ours else self.record.units[name]

    def _plan_units(self, plan: Plan) -> None:
        have = units.read_units(self.system, list(plan.want.units))
        for name, unit in plan.want.units.items():
            ran = self.record.running.get("units", {}).get(name, {})
            own = (
                units.unit_file(name),
                *[path for path in plan.want.items if path.startswith(f"{units.UNIT_DIRECTORY}/{name}.d/")],
            )
            why = self._why(plan.want, (*own, *unit.restart_on), ran.get("restart"))
            restart = why or self._mended(plan, (*own, *unit.restart_on))
            why = self._why(plan.want, unit.reload_on, ran.get("reload"))
            reload = why or self._mended(plan, unit.reload_on)
            if not restart and have[name].stale:
                restart = "systemd has not read its file yet"
            plan.changes += units.actions(unit, have[name], restart, reload)

    # inputs

    def _inputs(self, want: Fragment, paths: tuple[str, ...]) -> dict[str, str]:
        """Hashes of what the paths will hold: the fragment's if it brings them, else the disk's."""
        found: dict[str, str] = {}
        for path in paths:
            inside = [each for each in want.items if each == path or each.startswith(f"{path}/")]
            for each in inside:
                found[each] = want.items[each].fingerprint()
            if not inside:
                data = self.system.content(path)
                found[path] = "absent" if data is None else digest(data)
        return found

    def _why(self, want: Fragment, paths: tuple[str, ...], ran: dict[str, str] | None) -> str:
        if ran is None:
            # No start by us is known, so what runs may have read other inputs. A unit that takes nothing of
            # ours (systemd-networkd) is left alone.
            ours = any(each == path or each.startswith(f"{path}/") for path in paths for each in want.items)
            return "its inputs at the last start are unknown" if ours else ""
        now = self._inputs(want, paths)
        changed = sorted(path for path in set(now) | set(ran) if now.get(path) != ran.get(path))
        return f"changed: {', '.join(changed)}" if changed else ""

    @staticmethod
    def _mended(plan: Plan, paths: tuple[str, ...]) -> str:
        """Inputs that someone changed by hand are put right now; they may also have restarted the unit with
        them, of which no record tells (case 11)."""
        touched = sorted({change.name for change in plan.of("file", "secret", "link", "archive")})
        mended = [each for each in touched for path in paths if each == path or each.startswith(f"{path}/")]
        return f"put right: {', '.join(mended)}" if mended else ""

    def _needs_program(self, want: Fragment) -> bool:
        return bool(self.program) and bool(want.guarded or want.nftables or want.shapes)

    def _program_path(self) -> str:
        return f"{record.directory(self.owner)}/{record.PROGRAM}"
