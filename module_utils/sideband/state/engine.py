"""The real pass: what the dry pass saw, and nothing else. `Engine` is all that a run needs for one owner."""

from __future__ import annotations

import os
from typing import Callable

from . import archives, candidate, netfilter, network, packages, record, services, shaping, units
from .change import Change
from .fragment import Fragment
from .paths import Directory, put_back, snapshot
from .planner import Plan, Planner, recorded
from .record import EMPTY, Generation
from .system import StateError, System


class Engine(Planner):
    # before the real pass

    def await_services(self, plan: Plan) -> bool:
        """Whether something that the change needs does not answer. Then nothing is begun; the role waits."""
        due = [""] if plan.changes else []
        due += ["packages"] if plan.missing["packages"] else []
        due += ["archives"] if plan.of("archive") else []
        plan.missing["services"] = services.silent(plan.want.needs, due)
        return bool(plan.missing["services"])

    def prepare(self, plan: Plan, check_mode: bool) -> None:
        """Everything that can refuse, before the first write: downloads and the daemons' own checks."""
        unpacked: dict[str, str] = {}
        for path, archive in plan.want.archives.items():
            if not archive.present(self.system):
                if check_mode:
                    continue
                archives.fetch(self.system, archive)
            unpacked[path] = archive.store
        due = list(plan.due)
        results = candidate.run_checks(self.system, list(plan.want.items.values()), due, unpacked)
        problems: list[str] = []
        for path, problem in results:
            if problem.startswith("absent:"):
                program = problem.split(": ", 1)[1]
                if check_mode or plan.lacking:
                    plan.notes.append(f"file {path}: cannot be checked before {program} is installed")
                else:
                    problems.append(
                        f"{path}: its check needs {program}, which is not installed; "
                        "name its package in the fragment's packages"
                    )
            elif problem:
                problems.append(f"{path}: {problem}")
        if problems:
            raise StateError("\n".join([*problems, "nothing was changed"]))

    # the real pass

    def apply(self, plan: Plan, generation: Generation, arm: Callable[[], None] | None = None) -> None:
        """Finishes or raises; either way the record knows all that was brought. `arm` is called when the
        record can undo everything, and before anything is done."""
        self._intend(plan, generation)
        if arm:
            arm()
        armed = self.record.armed
        try:
            self._perform(plan)
        finally:
            if record.load(self.system, self.owner).armed != armed:
                raise StateError(
                    "the dead man's switch fired while the change was being applied; the previous "
                    "generation is back: raise guard_seconds and run the same play again"
                )
            record.save(self.system, self.record)
        self._finish(plan, generation)

    def apply_masks(self, plan: Plan, generation: Generation) -> list[Change]:
        """What must be there before the packages are: masks, so that no vendor unit ever starts."""
        paths = set(units.mask_paths(plan.want.masks))
        due = [change for change in plan.of("link") if change.name in paths]
        if due:
            self._remember(sorted(change.name for change in due))
            self.record.pending = generation
            record.save(self.system, self.record)
            for change in due:
                plan.want.items[change.name].write(self.system)
        return due

    def _remember(self, paths: list[str]) -> None:
        """Keep what stood at each path, once: a second look would see our own."""
        theirs = {path: other.originals[path] for other in self.others for path in other.originals}
        for path in paths:
            if path not in self.record.originals:
                self.record.originals[path] = theirs.get(path) or snapshot(self.system, path)

    def _shared_parents(self, want: Fragment) -> list[str]:
        """Directories above our things that another owner made: whoever leaves last removes them."""
        made = {
            path
            for other in self.others
            for path, saved in other.originals.items()
            if saved["type"] == "nothing" and self.system.is_directory(path)
        }
        return sorted(path for path in made if any(each.startswith(f"{path}/") for each in want.items))

    def _intend(self, plan: Plan, generation: Generation) -> None:
        want = plan.want
        if self.record.pending is not None:
            self.system.sweep(self.record.originals)
        parents = [
            change.name
            for change in plan.of("directory")
            if change.name not in want.items and change.action == "create"
        ]
        self._remember([*parents, *self._shared_parents(want), *want.items])
        have = units.read_units(self.system, [name for name in want.units if name not in self.record.units])
        for name, state in have.items():
            self.record.units[name] = {"enabled": state.enabled, "active": state.active}
        if want.nftables and [want.nftables.family, want.nftables.table] not in self.record.tables:
            self.record.tables.append([want.nftables.family, want.nftables.table])
        self.record.devices = sorted(set(self.record.devices) | set(want.shapes))
        if want.network:
            self._intend_network(want.network)
        self.record.pending = generation
        record.save(self.system, self.record)
        if self._needs_program(want):
            self.system.write(self._program_path(), self.program, 0o600, os.geteuid(), os.getegid())

    def _intend_network(self, want: network.Network) -> None:
        ledger = self.record.network or {"reload": want.reload, "addresses": [], "links": {}, "settings": {}}
        links = network.read_links(self.system)
        for device in want.devices:
            if device in links and device not in ledger["links"]:
                ledger["links"][device] = links[device]
                settings = network.read_settings(self.system, want.reload, device)
                ledger.setdefault("settings", {})[device] = settings
        ledger["addresses"] += [list(one) for one in want.addresses if list(one) not in ledger["addresses"]]
        ledger["reload"] = want.reload
        self.record.network = ledger

    def _perform(self, plan: Plan) -> None:
        system, want = self.system, plan.want
        for change in plan.of("old unit"):
            units.perform(system, change, self.block)
        changed = {change.name for change in plan.of("directory", "file", "secret", "link", "archive")}
        for change in plan.of("directory"):
            if change.action == "create" and change.name not in want.items:
                system.make_directory(change.name, 0o755, *system.owners("root", "root"))
        for path in sorted(changed & set(want.items), key=lambda each: each.count("/")):
            if isinstance(want.items[path], Directory):
                want.items[path].write(system)
        for path, item in want.items.items():
            if path in changed and not isinstance(item, Directory):
                item.write(system)
        self._prune_paths(plan)
        self._reload_manager(plan, changed)
        for family, table in self._old_tables(want):
            netfilter.remove(system, family, table)
        for device in self._old_devices(want):
            shaping.remove(system, device)
        if want.nftables and any(change.action == "load" for change in plan.of("nftables")):
            self.record.running["nftables"] = netfilter.load(system, want.nftables)
        for change in plan.of("shape"):
            if change.action == "load":
                shaping.load(system, want.shapes[change.name])
        self._run_units(plan)
        network.give_up(system, plan.of("old network", "old address", "old link", "old setting"))
        if want.network:
            network.apply(system, want.network, plan.of("network", "bridge port"))
            self.record.running["network"] = self._inputs(want, want.network.paths)

    def _prune_paths(self, plan: Plan) -> None:
        shared = {path for other in self.others for path in other.originals}
        for path in plan.prune_paths:
            if path in shared:
                continue
            saved, status = self.record.originals[path], snapshot(self.system, path)
            if saved["type"] == "nothing" and status["type"] == "directory":
                if not os.listdir(self.system.at(path)):
                    os.rmdir(self.system.at(path))
            else:
                put_back(self.system, path, saved)

    def _reload_manager(self, plan: Plan, changed: set[str]) -> None:
        touched = [
            path for path in (*changed, *plan.prune_paths) if path.startswith(f"{units.UNIT_DIRECTORY}/")
        ]
        if units.manager_runs(self.system) and (
            touched or any("has not read" in change.reason for change in plan.of("unit"))
        ):
            units.reload_manager(self.system)
        for name in plan.prune_units:
            # Of units whose file was ours: what enables a vendor's unit is not ours to take away.
            if self.record.brought(units.unit_file(name)) and not self.system.exists(units.unit_file(name)):
                units.remove_wants(self.system, name)

    def _run_units(self, plan: Plan) -> None:
        started: list[str] = []
        ran = self.record.running.setdefault("units", {})
        for change in plan.of("unit"):
            unit = plan.want.units[change.name]
            units.perform(self.system, change, self.block)
            if change.action in ("start", "restart", "reload"):
                started.append(change.name)
                own = (
                    units.unit_file(change.name),
                    *[
                        path
                        for path in plan.want.items
                        if path.startswith(f"{units.UNIT_DIRECTORY}/{change.name}.d/")
                    ],
                )
                entry = ran.setdefault(change.name, {})
                if change.action != "reload":
                    entry["restart"] = self._inputs(plan.want, (*own, *unit.restart_on))
                entry["reload"] = self._inputs(plan.want, unit.reload_on)
        if self.block:
            units.settle(self.system, started)

    def _finish(self, plan: Plan, generation: Generation) -> None:
        want, kept = plan.want, self.record
        for path in plan.prune_paths:
            # A directory that is not empty stays ours until it is.
            if (
                kept.originals[path]["type"] == "nothing"
                and self.system.is_directory(path)
                and not any(path in other.originals for other in self.others)
            ):
                continue
            del kept.originals[path]
        kept.units = {name: state for name, state in kept.units.items() if name in want.units}
        kept.tables = [[want.nftables.family, want.nftables.table]] if want.nftables else []
        kept.devices = sorted(want.shapes)
        if want.network:
            kept.network["addresses"] = [list(one) for one in want.network.addresses]
            for kind in ("links", "settings"):
                known = kept.network.get(kind, {})
                kept.network[kind] = {
                    name: was for name, was in known.items() if name in want.network.devices
                }
        else:
            kept.network = {}
            kept.running.pop("network", None)
        if not want.nftables:
            kept.running.pop("nftables", None)
        ran = kept.running.get("units", {})
        kept.running["units"] = {name: ran[name] for name in ran if name in want.units}
        if (
            generation["fragment"] != kept.current["fragment"]
            or generation["secrets"] != kept.current["secrets"]
        ):
            kept.previous, kept.current = kept.current, generation
        kept.pending = None
        record.save(self.system, kept)
        sweep_archives(self.system)

    # packages, users and groups that the role brings

    def await_missing(self, plan: Plan) -> None:
        """Kept over an interrupted run: what came since the first look came for us."""
        if not self.record.awaited:
            self.record.awaited = packages.census(self.system, plan.want.users, plan.want.groups)
            record.save(self.system, self.record)

    def note_arrivals(self, plan: Plan) -> None:
        kept = self.record
        if kept.awaited:
            came = packages.arrivals(self.system, kept.awaited, plan.want.users, plan.want.groups)
            for kind in ("packages", "users", "groups"):
                kept.installed[kind] = sorted({*kept.installed.get(kind, []), *came[kind]})
            for kind in ("users", "groups") if set(came["packages"]) & set(plan.want.packages) else ():
                theirs = set(came.get(f"all_{kind}", [])) - set(kept.installed[kind])
                kept.along[kind] = sorted({*kept.along.get(kind, []), *theirs})
            kept.named = sorted({*kept.named, *(set(came["packages"]) & set(plan.want.packages))})
            kept.awaited = {}

    def note_departures(self) -> None:
        """What is really gone leaves the ledger."""
        kept, system = self.record, self.system
        known = kept.installed.get("packages", [])
        there = {
            "packages": packages.installed(system, known) if known else [],
            "users": [name for name in kept.installed.get("users", []) if system.uid(name) is not None],
            "groups": [name for name in kept.installed.get("groups", []) if system.gid(name) is not None],
        }
        kept.installed = {kind: names for kind, names in there.items() if names}
        kept.named = [name for name in kept.named if name in there["packages"]]
        finds = {"users": system.uid, "groups": system.gid}
        for kind, names in list(kept.along.items()):
            kept.along[kind] = [name for name in names if finds[kind](name) is not None]

    def hand_over(self) -> None:
        """What came for this owner and others still want becomes theirs: whoever leaves last removes it."""
        kept = self.record
        for other in self.others:
            want = recorded(other)
            users = {user["name"] for user in want.users}
            groups = {user["group"] for user in want.users} | set(want.groups)
            came = {kind: kept.installed.get(kind, []) for kind in ("packages", "users", "groups")}
            shared = {
                "packages": came["packages"] if set(kept.named) & set(want.packages) else [],
                "users": [name for name in came["users"] if name in users],
                "groups": [name for name in came["groups"] if name in groups],
            }
            if not any(shared.values()):
                continue
            for kind, names in shared.items():
                other.installed[kind] = sorted({*other.installed.get(kind, []), *names})
                kept.installed[kind] = [name for name in kept.installed.get(kind, []) if name not in names]
            if shared["packages"]:
                other.named = sorted({*other.named, *kept.named})
                for kind, names in kept.along.items():
                    other.along[kind] = sorted({*other.along.get(kind, []), *names})
                kept.named, kept.along = [], {}
            record.save(self.system, other)


def sweep_archives(system: System, leaving: str = "") -> None:
    """Unpacked trees that no generation of any owner, but for the one that leaves, goes back to."""
    keep: set[str] = set()
    for owner in record.owners(system):
        if owner == leaving:
            continue
        kept = record.load(system, owner)
        for generation in (kept.current, kept.previous, kept.pending):
            for entry in (generation or EMPTY)["fragment"].get("archives") or []:
                keep.add(str(entry["sha256"]).lower())
    archives.sweep(system, keep)


def converged(engine: Engine, generation: Generation) -> None:
    """Re-read: what is still to do after a run is a fault, not a matter for the next run."""
    left = [
        change
        for change in engine.plan(generation).changes
        if change.kind not in ("package", "user", "group")
    ]
    if left:
        raise StateError("did not hold after it was applied:\n" + "\n".join(change.line() for change in left))
