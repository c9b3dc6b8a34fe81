#!/usr/bin/env python3
"""Four bad releases and a good one, rolled out over the running lab.

    bench/canary.py              # all; reports/canary.json
    bench/canary.py listener     # one of them

Each release is a copy of this tree with one edit, as a person would make it. A bad one must stop at the first
ring with its cause named, the ring must be as it was, byte for byte, and no other host may have been touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils")]

from sideband import report

from bench.remove import residue
from bench.spare_site import ROOT, BenchError, conclude, inside, say, snapshot

CANARY = "node1"
SHARED = (".lab", ".cache", ".venv", ".sideband")


@dataclass(frozen=True)
class Release:
    """`edits`: (file, what stands there, what stands there instead). `cause`: what the gate must say."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    cause: str  # "" passes


UNIT = "roles/node/templates/sideband-agent.service.j2"
EXPORTER = "roles/node/templates/sideband-exporter.service.j2"
RELABEL = "roles/node/templates/relabel.yml.j2"


def marked(name: str) -> tuple[str, str, str]:
    """A change that does no harm, so that the release is a new one."""
    return UNIT, "[Service]\n", f"[Service]\nEnvironment=SIDEBAND_RELEASE={name}\n"


RELEASES = (
    Release(
        "listener",
        ((EXPORTER, "--web.listen-address={{ __node_exporter }}", "--web.listen-address=:9100"),),
        f"{CANARY}: listeners: sideband-exporter.service listens on tcp",
    ),
    Release(
        "will_not_start",
        ((UNIT, "  -memory.allowedBytes", "  -noSuchFlag \\\n  -memory.allowedBytes"),),
        f"{CANARY}: units: sideband-agent.service is",
    ),
    Release(
        "drops_its_series",
        ((RELABEL, "", '- {action: drop, source_labels: [__name__], regex: "node_.*"}\n'),),
        f"{CANARY}: series: series did not arrive: node_",
    ),
    Release(
        "unreachable",
        (
            marked("unreachable"),
            ("inventories/lab/host_vars/node1.yml", "ansible_host:", "ansible_port: 9\nansible_host:"),
        ),
        f"{CANARY}: reach: did not answer before the change",
    ),
    Release("good", (marked("good"),), ""),
)


def edited(text: str, now: str, then: str) -> str:
    """'' stands for the end of the file."""
    return text.replace(now, then, 1) if now else text.rstrip("\n") + "\n" + then


def tree(room: Path, release: Release) -> Path:
    """A copy of what is under version control, with the edit; the lab and the downloads are this tree's."""
    copy = room / release.name
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, listed):
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    for name in SHARED:
        (copy / name).symlink_to(ROOT / name)
    for file, now, then in release.edits:
        path = copy / file
        text = path.read_text(encoding="utf-8")
        if now not in text:
            raise BenchError(f"{file} has no {now!r} any more; release {release.name} must be edited anew")
        path.write_text(edited(text, now, then), encoding="utf-8")
    return copy


def rollout(copy: Path) -> tuple[int, str, float]:
    began = time.monotonic()
    done = subprocess.run(
        [str(ROOT / ".venv/bin/ansible-playbook"), "-i", "inventories/lab", "playbooks/rollout.yml"],
        cwd=copy, capture_output=True, text=True, timeout=3600, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(copy / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def still(host: str) -> dict[str, Any]:
    """What must be the same again: not what runs on by itself, queues of samples and books of generations."""
    whole = snapshot(host)
    kept = {
        path: what for path, what in whole["files"].items() if path.startswith(("/etc/", "/opt/", "/usr/"))
    }
    return {
        **{kind: whole[kind] for kind in ("rules", "queues", "addresses", "packages", "users")},
        "files": kept,
    }


def touched(hosts: Sequence[str]) -> dict[str, str]:
    script = "cat /var/lib/sideband/generations/*/record.json | sha256sum"
    return {host: inside(host, "sh", "-c", script).strip() for host in hosts}


def ledger() -> dict[str, Any]:
    data = json.loads((ROOT / ".sideband/lab/rollout.json").read_text(encoding="utf-8"))
    return {entry["name"]: entry for entry in data["steps"]}


def others() -> list[str]:
    listed = subprocess.run(
        [str(ROOT / ".venv/bin/ansible-inventory"), "-i", str(ROOT / "inventories/lab"), "--list"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    groups = json.loads(listed)
    names = {
        host for group in groups["sideband"]["children"] for host in groups.get(group, {}).get("hosts", [])
    }
    return sorted(names - {CANARY})


def drill(release: Release, room: Path, checks: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    say(f"{release.name}: roll out")
    before, rest = still(CANARY), touched(others())
    code, text, seconds = rollout(tree(room, release))
    book = ledger()
    figures[f"seconds_{release.name}"] = round(seconds)
    if not release.cause:
        states = {name: entry["state"] for name, entry in book.items()}
        checks += [
            report.check(f"{release.name}: ends with", code == 0, code if code == 0 else text[-1500:], 0),
            report.check(f"{release.name}: every ring", set(states.values()) == {"passed"}, states, "passed"),
        ]
        return
    cause = book["canary"]["cause"]
    later = {entry["state"] for name, entry in book.items() if name != "canary"}
    left = residue(before, still(CANARY), ())
    checks += [
        report.check(f"{release.name}: the run fails", code != 0, code, "not 0"),
        report.expect(f"{release.name}: the canary ring", book["canary"]["state"], "failed"),
        report.check(f"{release.name}: its cause", cause.startswith(release.cause), cause, release.cause),
        report.expect(f"{release.name}: what differs on {CANARY}", left[:10], []),
        report.expect(f"{release.name}: later rings", sorted(later), ["waiting"]),
        report.expect(f"{release.name}: other hosts", touched(others()) == rest, True),
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="releases; all where none is named")
    parser.add_argument("--reports", default=str(ROOT / "reports"))
    options = parser.parse_args(arguments)
    chosen = [release for release in RELEASES if not options.names or release.name in options.names]
    checks: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="sideband-canary-") as room:
        for release in chosen:
            drill(release, Path(room), checks, figures)
            if not release.cause:
                say("back to this tree")
                code, text, _ = rollout(ROOT)
                checks.append(
                    report.check("back to this tree", code == 0, code if code == 0 else text[-1500:], 0)
                )
    figures["stopped"] = sum(each["pass"] for each in checks if each["name"].endswith("the canary ring"))
    return conclude("canary", figures, checks, {}, options.reports)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"canary: {error}")
