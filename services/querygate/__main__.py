"""querygate: the program behind the gateway's front.

querygate serve CONFIG      answer questions
querygate jobs CONFIG       work on jobs (a process of its own)
querygate check CONFIG      read the configuration, say what is wrong with it
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from services.configuration import ConfigError

from .config import load


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2 or arguments[0] not in ("serve", "jobs", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        config = load(arguments[1])
    except ConfigError as error:
        print(f"querygate: {error}", file=sys.stderr)
        return 1
    # What checks alone starts in a tenth of a second: no more is read than it needs.
    if arguments[0] == "serve":
        from .serve import serve

        asyncio.run(serve(config))
    elif arguments[0] == "jobs":
        from .work import work

        work(config)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
