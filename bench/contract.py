#!/usr/bin/env python3
"""Five hundred random contracts, always the same: reports/contract.json (acceptance 1; root, no lab).

Each validates, compiles, loads (`nft -c` with its interfaces there; haproxy -c, vmagent -dryRun, promtool
check on what the roles render), and means what the model says: fronts listen where flows say, packets enter
where the contract lets them. The daemons come from the lab's downloads (`make lab` fetches them)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
os.environ["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
sys.path[:0] = [str(ROOT / place) for place in ("module_utils", "tests")]

from contract_kit import Groups, HostVars
from deploy_kit import Ground, each
from sideband import report

PACKETS = 100


def main() -> int:
    count = int(sys.argv[1]) if sys.argv[1:] else 500
    directory = Path(tempfile.mkdtemp(prefix="sideband-contracts-"))
    ground, faults, began = Ground(directory), [], time.monotonic()
    broken: set[int] = set()

    def look(hostvars: HostVars, groups: Groups) -> None:
        found = ground.faults(hostvars, groups, PACKETS)
        faults.extend(found)
        if found:
            broken.add(ground.counts["contracts"])

    try:
        each(count, look)
    finally:
        ground.close()
        shutil.rmtree(directory)
    kinds = {
        "validate": "validates",
        "nft": "loads in the kernel",
        "": "is read by its daemons and means the model",
    }
    checks = [report.expect("contracts tried", ground.counts["contracts"], count)]
    for kind, words in kinds.items():
        told = [
            one
            for one in faults
            if one.split(":")[0] == kind or (not kind and one.split(":")[0] not in kinds)
        ]
        checks.append(report.expect(f"every contract {words}", told[:20], []))
    figures = {**ground.counts, "broken": len(broken), "seconds": round(time.monotonic() - began, 1)}
    passed = report.passes(checks)
    path = report.write("contract", passed, figures, checks, versions(), str(ROOT / "reports"))
    print(json.dumps({"name": "contract", "pass": passed, "figures": figures, "report": path}))
    return 0 if passed else 1


def versions() -> dict[str, str]:
    """Of the packages whose daemons checked, from the mirror's own list."""
    manifest = json.loads((ROOT / ".cache/mirror/manifest.json").read_text(encoding="utf-8"))["trixie"]
    return {name: manifest[name]["version"] for name in ("haproxy", "prometheus", "victoria-metrics")}


if __name__ == "__main__":
    sys.exit(main())
