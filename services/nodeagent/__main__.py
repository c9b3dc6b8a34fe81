"""nodeagent PROCESS [options]: one archive, one process per word."""

from __future__ import annotations

import sys

from services.nodeagent import policy

PROCESSES = {"policy": policy.main}


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in PROCESSES:
        return PROCESSES[word](sys.argv[2:])
    usage = f"usage: nodeagent {{{','.join(PROCESSES)}}} [--help]"
    asked = word in ("-h", "--help")
    print(usage, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
