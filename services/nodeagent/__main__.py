"""nodeagent PROCESS [options]: one archive, one process per word."""

from __future__ import annotations

import importlib
import sys

# Imported when its word is given: none carries the others' libraries in its memory.
PROCESSES = {
    "policy": "services.nodeagent.policy",
    "sample": "services.nodeagent.sample",
    "job": "services.nodeagent.job",
    "logs": "services.tail.program",
}


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in PROCESSES:
        module = importlib.import_module(PROCESSES[word])
        return int(module.main(sys.argv[2:]))
    usage = f"usage: nodeagent {{{','.join(PROCESSES)}}} [--help]"
    asked = word in ("-h", "--help")
    print(usage, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
