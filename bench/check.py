#!/usr/bin/env python3
"""`--check` tells the whole truth and writes nothing: on a bare host, a current one, and one a contract old.

    bench/check.py             # reports/check.json

For each: every file is hashed before and after `site.yml --check --diff`; then the same play runs in earnest,
and what it did is compared with what was announced, line by line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils")]

from sideband import report

from bench.remove import residue
from bench.spare_site import (
    LAB,
    ROOT,
    BenchError,
    Spare,
    alone,
    conclude,
    inside,
    play,
    say,
    snapshot,
    spare_site,
)

SPARES = (Spare("ck12", "bookworm", "node3"), Spare("ck13", "trixie", "rack1"))
# A run is itself in the host's diary, and what the daemons have to say flows on: no writes of a dry run.
DIARY = (
    "/var/log*",
    "/root/.ansible*",
    "/var/lib/systemd*",
    "/var/lib/sideband/node/queue/*",
    "/var/lib/sideband/rack/buffer/*",
)
NOTE = ": cannot be checked before "  # what a dry run says of a configuration whose daemon is still to come


def outcome(inventory: Path, spare: Spare, *options: str) -> tuple[int, list[str], str]:
    """(exit status, every line of every plan that host_state gave, what it printed)."""
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
    }
    words = [
        str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(inventory), "playbooks/site.yml",
        *alone(inventory, spare.name), *options,
    ]  # fmt: skip
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=900, check=False, cwd=ROOT, env=environment
    )
    text = done.stdout[done.stdout.find("\n{\n") :].lstrip()
    try:
        plays = json.JSONDecoder().raw_decode(text)[0]["plays"]
    except (ValueError, KeyError):
        return done.returncode, [], done.stdout[-3000:] + done.stderr[-1000:]
    lines: list[str] = []
    for task in (task for each in plays for task in each["tasks"]):
        result = task["hosts"].get(spare.name, {})
        if isinstance(result.get("plan"), list) and "generation" in result:
            lines += result["plan"]
    return done.returncode, lines, done.stdout[-3000:]


def changes(lines: Sequence[str]) -> set[str]:
    """`file /etc/x: create (…)` without the reason in brackets: that it changes is what was promised."""
    return {
        line.partition(" (")[0]
        for line in lines
        if ": " in line and NOTE not in line and not line.startswith("guard")
    }


def announced(lines: Iterable[str], *kinds: str) -> set[str]:
    """The paths or names of things of these kinds."""
    return {line.split(" ", 1)[1].partition(": ")[0] for line in lines if line.split(" ", 1)[0] in kinds}


def broken_promises(
    before: Mapping[str, Any], after: Mapping[str, Any], told: set[str], done: set[str]
) -> list[str]:
    """What was announced and did not come. A directory that two owners need is announced by both and made by
    the first, or with the first generation's record: that it is there now is what counts."""
    made = {
        f"directory {path}: create"
        for path in announced(told, "directory")
        if path in after["files"] and path not in before["files"]
    }
    return sorted(told - done - made)


def unannounced(
    before: Mapping[str, Any], after: Mapping[str, Any], lines: Sequence[str], owned: set[str]
) -> list[str]:
    """Changed files below /etc, /opt and /usr that neither the plan nor an announced package explains."""
    told = announced(lines, "file", "secret", "directory", "link", "archive")
    units = announced(lines, "unit")
    found = []
    for line in residue({"files": before["files"]}, {"files": after["files"]}, ()):
        path = line.split(": ")[1].rsplit(" ", 1)[0].removesuffix(" is")
        ours = path.startswith(("/etc/", "/opt/", "/usr/"))
        if (
            ours
            and path not in told
            and path not in owned
            and not (".wants/" in path and path.rpartition("/")[2] in units)
            and not any(path.startswith(f"{each}/") for each in told)
        ):
            found.append(line)
    return found


def package_files(host: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    new = sorted(set(after["packages"]) - set(before["packages"]))
    text = inside(host, "dpkg", "-L", *new) if new else ""
    made = {line.strip() for line in text.splitlines()}
    # What maintainer scripts make: alternatives, certificates' links, users, the linker's cache.
    scripts = {
        path for path in after["files"] if path.startswith(("/etc/alternatives/", "/etc/ssl/", "/etc/rc"))
    }
    books = {f"/etc/{name}{mark}" for name in ("passwd", "group", "shadow", "gshadow") for mark in ("", "-")}
    return made | scripts | books | {"/etc/ld.so.cache"}


def one(state: str, spare: Spare, inventory: Path, checks: list[dict[str, Any]]) -> int:
    name = f"{state} {spare.name} ({spare.suite}, like {spare.like})"
    say(f"{name}: dry run")
    before = snapshot(spare.name)
    code, told, said = outcome(inventory, spare, "--check", "--diff")
    writes = residue({"files": before["files"]}, {"files": snapshot(spare.name)["files"]}, DIARY)
    if code != 0:
        say(said)
    say(f"{name}: in earnest")
    real_code, done, said = outcome(inventory, spare)
    if real_code != 0:
        say(said)
    after = snapshot(spare.name)
    more = sorted(changes(done) - changes(told))
    less = broken_promises(before, after, changes(told), changes(done))
    hidden = unannounced(before, after, told, package_files(spare.name, before, after))
    checks += [
        report.expect(f"{name}: --check ends with", code, 0),
        report.expect(f"{name}: files written by --check", writes[:10], []),
        report.expect(f"{name}: the run ends with", real_code, 0),
        report.expect(f"{name}: done and not announced", more[:10], []),
        report.expect(f"{name}: announced and not done", less[:10], []),
        report.expect(f"{name}: files changed and not announced", hidden[:10], []),
    ]
    if state == "current":
        checks.append(report.expect(f"{name}: announced", told, []))
    else:
        checks.append(report.check(f"{name}: announced something", len(told) > 0, len(told), "> 0"))
    return len(writes)


def old_contract(inventory: Path) -> Path:
    """The same hosts under the contract of yesterday: sampled half as often, a smaller share of the link."""
    old = inventory.parent / f"{inventory.name}-old"
    shutil.copytree(inventory, old, symlinks=True)
    (old / "group_vars/all").unlink()
    shutil.copytree(LAB / "group_vars/all", old / "group_vars/all")
    for noun, now, then in (
        ("ladder", "period: 15s", "period: 20s"),
        ("planes", "egress_rate: 20Mbit", "egress_rate: 18Mbit"),
    ):
        path = old / f"group_vars/all/{noun}.yml"
        text = path.read_text(encoding="utf-8")
        if now not in text:
            raise BenchError(f"{noun}.yml has no {now!r} any more; the old contract must differ in something")
        path.write_text(text.replace(now, then, 1), encoding="utf-8")
    return old


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reports", default=str(ROOT / "reports"))
    options = parser.parse_args(arguments)
    checks: list[dict[str, Any]] = []
    writes = 0
    with tempfile.TemporaryDirectory(prefix="sideband-check-") as room:
        for spare in SPARES:
            with spare_site(Path(room, spare.name), [spare]) as inventory:
                writes += one("bare", spare, inventory, checks)
                writes += one("current", spare, inventory, checks)
                old = old_contract(inventory)
                play(old, "site", *alone(inventory, spare.name))
                writes += one("old", spare, inventory, checks)
    return conclude("check", {"writes": writes}, checks, {}, options.reports)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"check: {error}")
