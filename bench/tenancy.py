#!/usr/bin/env python3
"""A tenant tries to see another's series and lines: every way of tests/querygate/attempts.py, over mutual TLS
from the tenant's desk, through HAProxy and querygate to the lab's stores (Q2, Q5; cases 68, 70).

    bench/tenancy.py             # reports/tenancy.json

Series and lines of both tenants are written into the lake first, beta's with a mark on all of them, and the
series are taken away again. An administrator must see the mark: an answer without it then proves something.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TREE), str(TREE / "module_utils"), str(TREE / "tests")]

from front import site
from front.client import Answer, Client
from querygate import world
from querygate.attempts import ODD_REQUESTS, Attempt, attempts
from sideband import report

LAKE = "lake1"
MINUTE, LOGS = 8532, 8537  # loopback ports of the lake's host
TENANT, ADMINISTRATOR = "tenant-alpha", "administrator-ops"
# What HAProxy says before querygate could: a target that is none, and an identity that it replaces.
BY_THE_FRONT = {"path *": (400,), "path http://gate/api/v1/query": (400,)}
SPOOFS = ("second identity", "lower case")


def store(port: int, path: str, body: bytes = b"") -> Answer:
    return site.post(LAKE, port, path, body)


@contextmanager
def something_to_steal() -> Iterator[bool]:
    """Series in the minute tier, lines where there is a log store; hands out whether there is one."""
    store(MINUTE, "/api/v1/import/prometheus", world.as_text(world.series()))
    store(MINUTE, "/internal/force_flush")
    try:
        fields = "_stream_fields=tenant,node&_msg_field=_msg&_time_field=_time"
        store(LOGS, f"/insert/jsonline?{fields}", world.lines())
        logs = True
    except OSError:
        logs = False  # this site has no log store: every question for lines is refused
    try:
        yield logs
    finally:
        match = urllib.parse.quote(f'{{made_by="{world.MADE_BY}"}}')
        store(MINUTE, f"/api/v1/admin/tsdb/delete_series?match[]={match}")


def patient(client: Client, attempt: Attempt) -> Answer:
    """The answer to an attempt; where the front bounds the rate, a little later."""
    while True:
        answer = client.ask(attempt.method, attempt.target, attempt.body.encode(), attempt.headers)
        if answer.status != 429 or "too many questions:" not in answer.text:
            return answer
        time.sleep(2)


def noticed(answer: Answer) -> int:
    return world.foreign(answer, world.LIMIT_BESIDE_REAL)


def may(attempt: Attempt, logs: bool) -> tuple[int, ...]:
    """The statuses that an attempt may get on its way through the whole gateway."""
    if attempt.name in BY_THE_FRONT:
        return BY_THE_FRONT[attempt.name]
    if attempt.name.startswith(SPOOFS):
        return (200,)
    if "logsql" in attempt.target and not logs and attempt.status in (200, 422):
        return (403,)
    return (attempt.status,)


def try_all(chosen: Sequence[Attempt], logs: bool) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(a check for each endpoint, figures)."""
    client = site.tenant(TENANT)
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(lambda one: patient(client, one), chosen))
    wrong: dict[str, list[str]] = defaultdict(list)
    asked: dict[str, int] = defaultdict(int)
    figures = {"attempts": len(chosen), "foreign_series": 0, "answered": 0}
    for attempt, answer in zip(chosen, answers):
        path = attempt.target.partition("?")[0]
        place = path if attempt.status != 403 or path.startswith("/select") else "paths that do not exist"
        found = noticed(answer) if attempt.method != "HEAD" and answer.body[:1] in b"{[" else 0
        figures["foreign_series"] += found
        figures["answered"] += answer.status == 200
        asked[place] += 1
        if found or answer.status not in may(attempt, logs):
            wrong[place].append(f"{attempt.name}: {answer.status}, {found} foreign")
    for name, raw in ODD_REQUESTS.items():
        answer = client.raw(raw)
        figures["attempts"] += 1
        asked["odd requests"] += 1
        if answer.status not in (400, 403, 405, 411, 415):
            wrong["odd requests"].append(f"{name}: {answer.status}")
    checks = [
        report.check(f"{count} attempts at {place}", not wrong[place], wrong[place][:20], [])
        for place, count in sorted(asked.items())
    ]
    return checks, figures


def seen_by_an_administrator() -> dict[str, Any]:
    """There is something to steal, and every one of these answers shows that it can be noticed."""
    client, deadline = site.tenant(ADMINISTRATOR), time.monotonic() + 60
    question = "/api/v1/query?query=gpu_util&tier=minute"
    while (found := noticed(client.ask("GET", question))) < 8 and time.monotonic() < deadline:
        time.sleep(1)
    return report.check("an administrator sees what a tenant must not", found >= 8, found, "at least 8")


def run(chosen: Sequence[Attempt] | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All attempts, or those given."""
    with something_to_steal() as logs:
        baseline = seen_by_an_administrator()
        began = time.monotonic()
        checks, figures = try_all(list(attempts()) if chosen is None else chosen, logs)
        seconds = round(time.monotonic() - began, 1)
    total = report.check(
        "another tenant's series", not figures["foreign_series"], figures["foreign_series"], 0
    )
    return [baseline, total, *checks], {**figures, "log_store": int(logs), "seconds": seconds}


def some(number: int, seed: int = 4) -> list[Attempt]:
    """The same few each time."""
    return random.Random(seed).sample(list(attempts()), number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    checks, figures = run()
    passed = report.passes(checks) and figures["attempts"] >= 100
    path = report.write("tenancy", passed, figures, checks, {}, str(TREE / "reports"))
    print(json.dumps({"pass": passed, **figures}, indent=1))
    for one in checks:
        if not one["pass"]:
            print(f"failed: {one['name']}: {one['got']}", file=sys.stderr)
    print(f"report: {path}", file=sys.stderr)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
