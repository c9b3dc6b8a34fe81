"""archiver: a job's series as one file that lasts, beside the code that made them.

    archiver run --experiment ID [--again]   export, store, read back, commit beside the code's tag
    archiver compare A B [--plot FILE]       MFU, throughput and loss side by side, and a picture
    archiver hours [--quarter 2026Q3]        GPU-hours and cost by tenant and quarter
    archiver prune                           make room in the cache
    archiver check                           read the configuration, say what is wrong with it

Ends with 0, or with 1 and the reason (75: the same command may pass later).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from services import durable
from services.archiver.config import Config, load
from services.archiver.gateway import Refused
from services.archiver.problem import Problem
from services.configuration import ConfigError

# What needs this program's own packages is imported where it is used: `check` runs before they are there.

CONFIG = "/etc/sideband/archive/archiver.json"
_LATER = 75  # sysexits.h: EX_TEMPFAIL


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="archiver", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="archive one experiment")
    run.add_argument("--experiment", required=True, metavar="ID")
    run.add_argument("--again", action="store_true", help="read the data anew, also where an archive stands")
    two = verbs.add_parser("compare", help="two experiments side by side")
    two.add_argument("experiments", nargs=2, metavar="ID")
    two.add_argument("--plot", metavar="FILE", help="where to draw (state directory, unless said)")
    spent = verbs.add_parser("hours", help="GPU-hours by tenant and quarter")
    spent.add_argument("--quarter", default="", metavar="2026Q3")
    for verb in (run, two, spent):
        verb.add_argument("--json", action="store_true", help="for programs")
    verbs.add_parser("prune", help="make room in the cache")
    verbs.add_parser("check", help="read the configuration")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    asked = arguments(words)
    try:
        config = load(asked.config)
        if asked.verb != "check":
            print(_done(config, asked), end="", flush=True)
    except ConfigError as problem:
        print(f"archiver: {problem}", file=sys.stderr)
        return 1
    except Refused as problem:
        print(f"archiver: the gateway refuses: {problem.text}", file=sys.stderr)
        return 1
    except Problem as problem:
        print(f"archiver: {problem}", file=sys.stderr)
        return _LATER if problem.retry else 1
    return 0


def _done(config: Config, asked: argparse.Namespace) -> str:
    from services.archiver import archive, hours

    keeper = archive.Archive(config, lambda line: print(f"archiver: {line}", file=sys.stderr, flush=True))
    if asked.verb == "run":
        record = keeper.run(asked.experiment, asked.again)
        words = "archived" if record["changed"] else "unchanged"
        return _json(record) if asked.json else f"{record['experiment']}: {words}: {record['remote']}\n"
    if asked.verb == "compare":
        return _compared(config, asked, [keeper.open(name) for name in asked.experiments])
    if asked.verb == "hours":
        listed = hours.rows(keeper.everything(), config, asked.quarter)
        return _json(listed) if asked.json else hours.text(listed, config.currency)
    gone = keeper.prune()
    return f"{len(gone)} files, {sum(found.size for found in gone):,} bytes\n"


def _compared(config: Config, asked: argparse.Namespace, paths: Sequence[Path]) -> str:
    from services.archiver import compare, plot

    began = time.monotonic()
    left, right = (compare.read(path, config) for path in paths)
    picture = plot.svg(left, right)
    seconds = time.monotonic() - began
    place = Path(asked.plot or f"{config.state_directory}/plots/{left.name}-{right.name}.svg")
    place.parent.mkdir(parents=True, exist_ok=True)
    durable.write(str(place), picture.encode())
    if asked.json:
        both = {"left": compare.record(left), "right": compare.record(right)}
        return _json({**both, "plot": str(place), "seconds": round(seconds, 3)})
    return f"{compare.text(left, right, config.currency)}\n{place} ({seconds:.2f} s)\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
