#!/usr/bin/env python3
"""Experiments into the archive, with faults at the storage's edge: the same data give the same bytes; failed
and cut uploads, killed runs and two writers at once lose nothing (X1 to X4, case 83, acceptance 4).

    bench/archive.py             # reports/archive.json; about three minutes, as root, no lab

Real programs throughout (tests/archive_scene.py): VictoriaMetrics behind the gateway's program, Git, DVC, and
Ceph's radosgw behind a relay that fails and cuts uploads. Every object is read back from the real server.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils"), str(TREE / "tests")]

import archive_kit as kit
import duckdb
from archive_scene import JOBS, NotHere, Scene, scene
from sideband import report

from services.archiver.problem import Problem
from services.archiver.s3 import Damaged, Missing

Checks = list[dict[str, Any]]


class Bench:
    def __init__(self, there: Scene) -> None:
        self._scene = there
        self._tags = 0
        self.records: dict[str, dict[str, Any]] = {}
        self.figures: dict[str, Any] = {}
        self.checks: Checks = []

    def _tag(self) -> str:
        """Another experiment of one of the jobs; its size makes its file another."""
        self._tags += 1
        name, job = f"bench-{self._tags}", list(JOBS.values())[self._tags % len(JOBS)]
        self._scene.code.tag(name, f"Sideband-Job: {job}\nSideband-Parameters: {self._tags}e9")
        return name

    def _keep(self, name: str, record: dict[str, Any]) -> None:
        self.records[name] = record

    def same_bytes(self) -> None:
        hosts = ("first", "second", "third")
        found = [self._scene.record(self._scene.configure(name=host), "run-a", "--again") for host in hosts]
        self._keep("run-a", found[-1])
        digests = {one["md5"] for one in found}
        self.figures.update(exports=len(found), different_bytes=len(digests) - 1)
        self.checks.append(report.expect("the same data give the same bytes", len(digests), 1))
        commits = {one["archived_in"] for one in found}
        self.checks.append(report.expect("the same data are committed once", len(commits), 1))

    def faults(self, rounds: int) -> None:
        """One of five uploads is answered by an error, one of five arrives by half and is kept so."""
        seen = {"PUT": 0, "failed": 0, "cut": 0}

        def fails(number: int) -> bool:
            seen["failed"] += number % 5 == 3
            return number % 5 == 3

        def cuts(number: int) -> bool:
            seen["cut"] += number % 5 == 1
            return number % 5 == 1

        faults = kit.Faults(fail_puts=fails, cut_puts=cuts)
        with kit.edge(self._scene.endpoint, faults) as endpoint:
            config = self._scene.configure(endpoint, name="faults")
            for _ in range(rounds):
                name = self._tag()
                self._keep(name, self._scene.record(config, name))
        self.figures.update(
            uploads=faults.seen["PUT"], uploads_failed=seen["failed"], uploads_cut=seen["cut"]
        )
        happened = seen["failed"] > 0 and seen["cut"] > 0
        self.checks.append(report.check("uploads failed and were cut", happened, seen, "both"))

    def kills(self, rounds: int, chance: random.Random) -> None:
        """SIGKILL at any moment, also while it sends; the next run of the same experiment finishes."""
        early = sending = 0
        for number in range(rounds):
            name, hang = self._tag(), threading.Event()
            faults = kit.Faults(hang_puts=hang)
            with kit.edge(self._scene.endpoint, faults) as endpoint:
                process = self._scene.begin(
                    self._scene.configure(endpoint, name="kills"), "run", "--experiment", name
                )
                until = time.monotonic() + (chance.uniform(0.3, 4.0) if number % 2 else 120)
                while time.monotonic() < until and not faults.seen.get("PUT"):
                    time.sleep(0.01)
                sending += bool(faults.seen.get("PUT"))
                process.send_signal(signal.SIGKILL)
                process.communicate()
                hang.set()
            early += name not in self._scene.branches()
            self._keep(name, self._scene.record(self._scene.configure(name="kills"), name))
        left = list((self._scene.directory / "kills/state/runs").iterdir())
        self.figures.update(runs_killed=rounds, killed_while_sending=sending, killed_before_the_commit=early)
        self.checks.append(report.check("runs were killed while they sent", sending > 0, sending, "some"))
        self.checks.append(report.expect("killed runs leave nothing behind", len(left), 0))

    def writers(self, rounds: int) -> None:
        """Two on one host and a third on another, all at once."""
        lost = 0
        for _ in range(rounds):
            name = self._tag()
            configs = [self._scene.configure(name=host) for host in ("one", "one", "two")]
            runs = [self._scene.begin(config, "run", "--experiment", name, "--json") for config in configs]
            ends = [run.communicate(timeout=300) for run in runs]
            lost += sum(run.returncode != 0 for run in runs)
            found = [json.loads(out) for run, (out, _) in zip(runs, ends) if run.returncode == 0]
            commits = {one["archived_in"] for one in found}
            self.checks.append(report.expect(f"three writers of {name} make one archive", len(commits), 1))
            self._keep(name, found[0])
        self.figures["writers"] = 3 * rounds
        self.checks.append(report.expect("writers that failed", lost, 0))

    def nothing_is_lost(self) -> None:
        """Every record of every run: committed, and byte for byte in the storage."""
        branches = self._scene.branches()
        lost, uncommitted = [], []
        for name, record in self.records.items():
            uncommitted += [] if branches.get(name) == record["archived_in"] else [name]
            try:
                self._scene.stored(record)
            except (Missing, Damaged, Problem) as problem:
                lost.append(f"{name}: {problem}")
        self.figures.update(experiments=len(self.records), lost=len(lost), uncommitted=len(uncommitted))
        self.checks.append(report.check("nothing is lost", not lost, lost, []))
        self.checks.append(report.check("all is committed", not uncommitted, uncommitted, []))

    def steps(self) -> None:
        record = self.records["run-a"]
        self.figures.update(
            samples=record["rows"], bytes=record["size"], steps=record["steps"]["logged"],
            steps_missing=record["steps"]["missing"], steps_repeated=record["steps"]["repeated"],
        )  # fmt: skip
        got = [record["steps"][key] for key in ("logged", "missing", "repeated")]
        self.checks.append(report.expect("every logged step is there once", got, [60, 0, 0]))

    def comparing(self) -> None:
        self._scene.record(self._scene.configure(name="first"), "run-b")
        seconds, whole = [], []
        for _ in range(5):
            began = time.monotonic()
            code, out, _ = self._scene.done(
                self._scene.configure(name="first"), "compare", "run-a", "run-b", "--json"
            )
            whole.append(time.monotonic() - began)
            assert code == 0
            seconds.append(json.loads(out)["seconds"])
        self.figures["compare_seconds"] = round(statistics.median(seconds), 3)
        self.figures["compare_seconds_with_start"] = round(statistics.median(whole), 3)


def versions() -> dict[str, str]:
    def said(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    dvc = said(sys.executable, "-c", "import dvc; print(dvc.__version__)")
    return {"duckdb": duckdb.__version__, "dvc": dvc, "git": said("git", "--version")}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reports", default=str(TREE / "reports"))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sideband-archive-") as place:
        try:
            with scene(Path(place)) as there:
                bench = Bench(there)
                bench.same_bytes()
                bench.faults(4)
                bench.kills(4, random.Random(asked.seed))
                bench.writers(3)
                bench.nothing_is_lost()
                bench.steps()
                bench.comparing()
        except NotHere as why:
            print(f"bench/archive: {why}", file=sys.stderr)
            return 2
    passed = report.passes(bench.checks)
    report.write("archive", passed, bench.figures, bench.checks, versions(), asked.reports)
    print(json.dumps({"pass": passed, "figures": bench.figures}, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
