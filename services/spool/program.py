"""spool: run before a private rsyslog, makes its queues whole again and counts those that were damaged.

spool.pyz DIRECTORY QUEUE...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from services import durable
from services.spool.queue import mend


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    directory, *names = arguments
    damaged = 0
    for name in names:
        found = mend(directory, name)
        if found.state not in ("clean", "empty"):
            print(
                f"queue {name}: {found.state}; {found.records} records wait, "
                f"{found.lost_bytes} bytes were cut off",
                file=sys.stderr,
            )
        damaged += found.state == "damaged"
    # Beside the queues, for whoever tells of them: a count that only rises.
    path = os.path.join(directory, "damaged.count")
    before = (durable.read(path, 64) or b"0").strip()
    count = (int(before) if before.isdigit() else 0) + damaged
    if damaged or before == b"0":
        durable.write(path, str(count).encode(), 0o644)
    return 0
