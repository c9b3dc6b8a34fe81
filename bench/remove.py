#!/usr/bin/env python3
"""Install sideband on bare spare hosts, remove it, and compare what they were with what they are.

    bench/remove.py            # Debian 12 and 13, as training node, receiver and store, and one machine that
                               # plays every role (inventories/single); reports/remove.json
    bench/remove.py rm12       # one of them
    bench/remove.py single     # the one machine alone

The comparison takes in every file, unit, user, group, nftables table, qdisc, kernel setting, address and
package. What may differ is listed in tests/residue_ignore.yml, with reasons; all else is residue, and fails.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils")]

from sideband import report

from bench import single_site
from bench.spare_site import ROOT, BenchError, Spare, alone, conclude, inside, play, say, snapshot, spare_site

SPARES = (
    Spare("rm12", "bookworm", "node3"),
    Spare("rm13", "trixie", "node1"),
    Spare("rmrack", "trixie", "rack1"),
    Spare("rmlake", "trixie", "lake1"),
)
SINGLE = "single"
WORDS = ("-e", "confirm=remove", "-e", "confirm_data=delete")
IGNORE = ROOT / "tests/residue_ignore.yml"
MOST_IGNORED = 10


def ignored() -> list[str]:
    entries = yaml.safe_load(IGNORE.read_text(encoding="utf-8"))
    if len(entries) > MOST_IGNORED or not all(entry.get("reason") for entry in entries):
        raise BenchError(
            f"{IGNORE.name}: at most {MOST_IGNORED} paths, each with its reason (got {len(entries)})"
        )
    return [entry["path"] for entry in entries]


def _matches(path: str, pattern: str) -> bool:
    """A * at the end takes everything with that beginning; any other stays within its directory."""
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def residue(before: Mapping[str, Any], after: Mapping[str, Any], patterns: Iterable[str]) -> list[str]:
    """One line for everything that is not as it was."""
    listed = list(patterns)
    found = []
    for kind in sorted(set(before) | set(after)):
        was, now = before.get(kind, {}), after.get(kind, {})
        for name in sorted(set(was) | set(now)):
            if was.get(name) == now.get(name):
                continue
            if kind == "files" and any(_matches(name, pattern) for pattern in listed):
                continue
            how = "appeared" if name not in was else "is gone" if name not in now else "differs"
            found.append(f"{kind}: {name} {how}: {was.get(name, '')} -> {now.get(name, '')}")
    return found


def one(spare: Spare, inventory: Path, checks: list[dict[str, Any]], figures: dict[str, Any]) -> int:
    options = alone(inventory, spare.name)
    say(f"{spare.name}: what it is before")
    before = snapshot(spare.name)
    say(f"{spare.name}: install as {spare.like}")
    play(inventory, "site", *options)
    brought = len(residue(before, snapshot(spare.name), ()))
    say(f"{spare.name}: without the word nothing is removed")
    refused = play(inventory, "remove", *options, code=None)
    say(f"{spare.name}: remove")
    began = time.monotonic()
    play(inventory, "remove", *options, *WORDS)
    seconds = time.monotonic() - began
    left = residue(before, snapshot(spare.name), ignored())
    for line in left:
        say(f"  {line[:200]}")
    say(f"{spare.name}: install again")
    again = play(inventory, "site", *options, code=None)
    name = f"{spare.name} ({spare.suite}, like {spare.like})"
    checks += [
        report.check(f"{name}: installation brought something to remove", brought > 20, brought, "> 20"),
        report.check(
            f"{name}: refused without confirm=remove", refused.returncode != 0, refused.returncode, "not 0"
        ),
        report.expect(f"{name}: residue after removal", left[:20], []),
        report.expect(f"{name}: installing again", again.returncode, 0),
    ]
    figures[f"brought_{spare.name}"] = brought
    figures[f"seconds_{spare.name}"] = round(seconds, 1)
    return len(left)


def one_machine(checks: list[dict[str, Any]], figures: dict[str, Any]) -> int:
    """As a researcher does: clone, set up, one command; remove, delete the clone; beside their services."""
    suite = "trixie"
    with single_site.machine("rmsingle", suite) as host:
        single_site.researcher(host)
        say(f"{host}: what it is before")
        before = snapshot(host)
        single_site.checkout(host, suite)
        say(f"{host}: install every role")
        began = time.monotonic()
        single_site.play(host, "site")
        took = time.monotonic() - began
        again = single_site.play(host, "site").stdout
        brought = len(residue(before, snapshot(host), ()))
        refused = single_site.play(host, "remove", code=None)
        say(f"{host}: remove")
        began = time.monotonic()
        single_site.play(host, "remove", *WORDS)
        seconds = time.monotonic() - began
        single_site.leave(host)
        left = residue(before, snapshot(host), ignored())
        for line in left:
            say(f"  {line[:200]}")
        alive = single_site.researchers_services(host)
        say(f"{host}: install again")
        single_site.checkout(host, suite)
        anew = single_site.play(host, "site", "-e", single_site.WITHOUT_GATEWAY, code=None)
    name = f"{SINGLE} ({suite}, every role)"
    checks += [
        report.check(f"{name}: installation brought something to remove", brought > 20, brought, "> 20"),
        report.check(
            f"{name}: a second run changes nothing", "changed=0" in again, again[-300:], "changed=0"
        ),
        report.check(
            f"{name}: refused without confirm=remove", refused.returncode != 0, refused.returncode, "not 0"
        ),
        report.expect(f"{name}: residue after removal", left[:20], []),
        report.expect(f"{name}: the researcher's own services", alive, single_site.THEIRS),
        report.expect(f"{name}: installing again, without gateway", anew.returncode, 0),
    ]
    figures[f"brought_{SINGLE}"] = brought
    figures[f"install_seconds_{SINGLE}"] = round(took, 1)
    figures[f"seconds_{SINGLE}"] = round(seconds, 1)
    return len(left)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="spare hosts; all where none is named")
    parser.add_argument("--reports", default=str(ROOT / "reports"))
    options = parser.parse_args(arguments)
    chosen = [spare for spare in SPARES if not options.names or spare.name in options.names]
    checks: list[dict[str, Any]] = []
    figures: dict[str, Any] = {"residue": 0, "ignored": len(ignored())}
    with tempfile.TemporaryDirectory(prefix="sideband-remove-") as room:
        for spare in chosen:
            with spare_site(Path(room, spare.name), [spare]) as inventory:
                versions = {
                    "system": inside(spare.name, "sh", "-c", ". /etc/os-release; echo $PRETTY_NAME").strip()
                }
                figures["residue"] += one(spare, inventory, checks, figures)
    if not options.names or SINGLE in options.names:
        versions = {"system": "Debian GNU/Linux 13 (trixie)"}
        figures["residue"] += one_machine(checks, figures)
    return conclude("remove", figures, checks, versions, options.reports)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"remove: {error}")
