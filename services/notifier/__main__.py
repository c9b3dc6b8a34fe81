"""notifier serve CONFIG | notifier check CONFIG | notifier render AMTOOL ALERTMANAGER.YML"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from services import configuration
from services.configuration import ConfigError
from services.notifier import render
from services.notifier.config import Config, parse
from services.notifier.desk import Desk
from services.notifier.facts import Facts
from services.notifier.server import Server
from services.notifier.wishes import Book


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def serve(config: Config) -> int:
    stop = threading.Event()
    book = Book(config.wishes, say) if config.wishes else None
    desk = Desk(config.receivers, lambda: book.wishes if book else {}, say)
    facts = Facts(config.facts_file, config.facts_urls, book.series if book else list, say)
    try:
        server = Server(config.listen, desk, lambda: facts.failed)
    except OSError as error:
        say(f"error: {config.listen[0]} port {config.listen[1]}: {error.strerror}")
        return 1
    threads = [threading.Thread(target=facts.run, args=(stop, config.facts_seconds), daemon=True)]
    if book:
        threads.append(threading.Thread(target=book.run, args=(stop,), daemon=True))
    threads.append(threading.Thread(target=server.serve_forever, daemon=True))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    for thread in threads:
        thread.start()
    stop.wait()
    server.shutdown()
    return 0


def main(arguments: Sequence[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "render":
        try:
            found = render.problems(arguments[1], arguments[2])
        except FileNotFoundError:
            say(f"no such program: {arguments[1]}")  # host_state's words for a package that is still to come
            return 127
        for line in found:
            say(f"error: {line}")
        return 1 if found else 0
    if len(arguments) != 2 or arguments[0] not in ("serve", "check"):
        say(str(__doc__))
        return 2
    try:
        config = configuration.load(arguments[1], parse)
    except ConfigError as error:
        say(f"error: {error}")
        return 2
    return 0 if arguments[0] == "check" else serve(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
