#!/usr/bin/env python3
"""Every golden error, word for word: reports/errors.json (acceptance 1).

Also that the whole says what matters at once: each error has its place, and one next step, in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / place) for place in ("module_utils", "tests", "tests/unit")]

from sideband import report
from test_contract_errors import CASES, errors_of

LONGEST = 240


def main() -> int:
    checks, exact, lines = [], 0, []
    for case in CASES:
        got = errors_of(case)
        lines += got
        exact += got == case["errors"]
        checks.append(report.expect(case["name"], got, case["errors"]))
    long = [line for line in lines if len(line) > LONGEST]
    checks.append(report.expect(f"no error is longer than {LONGEST} characters", long, []))
    checks.append(report.expect("every error names a next step", [e for e in lines if "; " not in e], []))
    figures = {"goldens": len(CASES), "exact": exact, "errors": len(lines)}
    passed = report.passes(checks)
    path = report.write(
        "errors", passed, figures, checks, {"python": sys.version.split()[0]}, str(ROOT / "reports")
    )
    print(json.dumps({"name": "errors", "pass": passed, "figures": figures, "report": path}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
