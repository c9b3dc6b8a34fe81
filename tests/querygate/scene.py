"""A gate before stores, and others beside it: configured otherwise, or broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .attempts import attempts
from .kit import Kit, configuration
from .world import foreign


def rows(answer: Any) -> list[Any]:
    assert answer.status == 200, answer
    found = json.loads(answer.body)["data"]
    return list(found if isinstance(found, list) else found["result"])


@contextmanager
def second(
    kit: Kit, directory: Path, defect: str = "", log_urls: list[str] | None = None, **alpha: Any
) -> Iterator[Kit]:
    """Another gate before the same stores: alpha configured otherwise, or the program broken."""
    config = json.loads((kit.directory / "querygate.json").read_text())
    own = configuration(directory, kit.ports)
    places = ("listen", "ops_listen", "state_directory", "audit_directory", "degraded_file")
    config.update({key: own[key] for key in places})
    config["log_urls"] = log_urls or config["log_urls"]
    next(one for one in config["identities"] if one["key"] == "tenant/alpha").update(alpha)
    path = directory / "querygate.json"
    path.write_text(json.dumps(config))
    other = Kit(directory)
    try:
        other.gate(path, jobs=False, defect=defect)
        yield other
    finally:
        other.stop()


def shown(kit: Kit, *starts: str) -> list[str]:
    """The attempts at these paths that show something of beta."""
    wrong = []
    for attempt in attempts():
        if attempt.method != "HEAD" and attempt.target.startswith(starts):
            answer = kit.send(attempt.method, attempt.target, attempt.body.encode(), attempt.headers)
            if foreign(answer):
                wrong.append(attempt.name)
    return wrong
