"""sideband-level: put the fleet, a rack or a node on another level, with one signed document.

Works alone: it needs this host, its signing key and SSH to the racks, and no controller. It opens no
connection to any training node. Nodes fetch the document from their rack.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sideband import documents
from sideband.documents import Document, Scope, Signed

from services.level import send
from services.level.ledger import Ledger
from services.level.send import Outcome, Target

_CONFIG = "/etc/sideband/policy/level.json"
FOCUS_SECONDS = 30 * 60
_SPAN = re.compile(r"([0-9]+)(s|m|h|d)\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class UsageError(Exception):
    """The request makes no sense; nothing has been signed or sent."""


@dataclass(frozen=True)
class Config:
    site: str
    order: tuple[str, ...]
    racks: tuple[Target, ...]
    signing_key: str
    rack_key: str
    known_hosts: str
    user: str
    state_directory: str

    def places(self) -> dict[str, list[str]]:
        """Nodes by rack; several receivers of one rack are one place."""
        return {target.rack: list(target.nodes) for target in self.racks}


def load(path: str) -> Config:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        racks = tuple(
            Target(
                name=str(one["name"]),
                rack=str(one["rack"]),
                address=str(one["address"]),
                port=int(one["port"]),
                nodes=tuple(map(str, one["nodes"])),
                local=one.get("local") is True,
            )
            for one in value["racks"]
        )
        lists = [value["order"], *(one["nodes"] for one in value["racks"])]
        if not all(isinstance(one, list) for one in lists):
            raise ValueError("order and nodes are lists")
        if not set(value["order"]) - {documents.FOCUS}:
            raise ValueError("order is empty")
        texts = ("site", "signing_key", "rack_key", "known_hosts", "user", "state_directory")
        order = tuple(map(str, value["order"]))
        return Config(order=order, racks=racks, **{key: str(value[key]) for key in texts})
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except KeyError as error:
        raise UsageError(f"{path}: {error} is missing") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None


# -- the request ------------------------------------------------------------------------------------------


def until_from_text(text: str, now: float) -> str:
    """A span (`30m`) or a time (`2031-01-01T00:00:00Z`), as the time that a document carries."""
    span = _SPAN.match(text)
    try:
        end = now + int(span.group(1)) * _UNITS[span.group(2)] if span else documents.seconds_of(text)
        until = documents.timestamp(end)
    except (ValueError, OverflowError, OSError):  # no time, or one that no calendar has
        form = f"a span such as 30m or a time such as {documents.timestamp(now)}"
        raise UsageError(f"until: {form} (got {text!r})") from None
    if end <= now:
        raise UsageError(f"until: lies in the past (got {text!r})")
    return until


def check(
    config: Config, level: str, scope: Scope, until: str | None, issued: Sequence[Signed], now: float
) -> None:
    """Raise UsageError if this may not be issued."""
    if level not in config.order:
        raise UsageError(f"level: {level!r} is unknown here; known, highest first: {', '.join(config.order)}")
    places = config.places()
    known = list(places) if scope.kind == "racks" else [node for nodes in places.values() for node in nodes]
    unknown = [name for name in scope.names if name not in known]
    if unknown:
        hint = f"known: {', '.join(known) or 'none'}"
        raise UsageError(f"scope: no {scope.kind[:-1]} is called {', '.join(unknown)}; {hint}")
    if level == documents.FOCUS:
        _check_focus(config, scope, until, issued, now)


def _check_focus(
    config: Config, scope: Scope, until: str | None, issued: Sequence[Signed], now: float
) -> None:
    if scope.kind == "all":
        raise UsageError("focus: needs a scope of racks or nodes; the global rate is never raised")
    if until is None or documents.seconds_of(until) - now > FOCUS_SECONDS + 1:
        raise UsageError("focus: needs an until of at most 30 minutes")
    top = documents.highest(config.order)
    for rack, nodes in config.places().items():
        for node in nodes:
            if scope.covers(rack, node):
                found = documents.newest(issued, rack, node)
                level = found.document.level if found else top
                if level not in (top, documents.FOCUS):
                    raise UsageError(f"focus: {node} is at {level}; restore it to {top} first")


def sign(text: str, key: str) -> str:
    """The armoured signature. The text travels as a file, so that it is signed byte for byte."""
    with tempfile.TemporaryDirectory(prefix="sideband-") as directory:
        path = os.path.join(directory, "document")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        words = ["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", documents.NAMESPACE, path]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
            )
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip().splitlines()
                raise UsageError(f"{key}: cannot sign ({said[-1] if said else done.returncode})")
            with open(path + ".sig", encoding="ascii") as file:
                return file.read()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{key}: cannot sign ({error})") from None


def issue(
    config: Config, level: str, scope: Scope, until: str | None, issued: Sequence[Signed], now: float
) -> Signed:
    """A signed document, newer than every other on record even if this host's clock has been set back."""
    last = max((one.document.generation for one in issued), default=0)
    generation = max(int(now * 1000), last + 1)
    document = Document(config.site, scope, generation, level, documents.timestamp(now), (), until)
    try:
        documents.parse_document(document.text())
    except documents.Refused as problem:
        raise UsageError(f"this would be refused everywhere ({problem})") from None
    return Signed(document, sign(document.text(), config.signing_key))


def parcels(config: Config, issued: Sequence[Signed]) -> list[tuple[Target, str]]:
    """For each rack the documents in force that concern it. Raises UsageError when they are too many."""
    force = documents.in_force(issued, config.places())
    found = []
    for target in config.racks:
        its = [one for one in force if one.document.scope.concerns(target.rack, target.nodes)]
        try:
            found.append((target, documents.bundle_text(its)))
        except ValueError as error:
            raise UsageError(f"{target.rack}: {error}") from None
    return found


# -- saying what happened ---------------------------------------------------------------------------------


def report(signed: Signed | None, outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    started = min((one.started for one in outcomes), default=time.time())
    clamped = max((one.started + one.seconds for one in outcomes if one.outcome == "ok"), default=None)
    return {
        "level": signed.document.level if signed else None,
        "scope": str(signed.document.scope) if signed else None,
        "generation": signed.document.generation if signed else None,
        "until": signed.document.until if signed else None,
        "racks": [one.as_json() for one in outcomes],
        # From before the first connection until the last rack has said that its limit holds: an upper bound.
        "seconds_to_clamp": None if clamped is None else round(clamped - started, 3),
        "clamped_at": None if clamped is None else round(clamped, 3),
        "seconds": round(seconds, 3),
        "ok": bool(outcomes) and all(one.outcome == "ok" for one in outcomes),
    }


def _print(result: dict[str, Any]) -> None:
    if result["level"]:
        print(f"level {result['level']} for {result['scope']}, generation {result['generation']}")
    for one in result["racks"]:
        limit = one["intake_bytes_per_second"]
        intake = "" if limit is None else "no intake limit" if limit == 0 else f"{limit} bytes/s and node"
        print(f"  {one['rack']:<16} {one['outcome']:<12} {one['seconds']:6.2f} s  {one['detail'] or intake}")
    if not result["ok"]:
        print("not every rack has it; `sideband-level --resend` tries again, and changes nothing else")


def _show(config: Config, issued: Sequence[Signed], as_json: bool) -> int:
    force = documents.in_force(issued, config.places())
    if as_json:
        print(json.dumps([json.loads(one.document.text()) for one in force]))
        return 0
    for one in force:
        document = one.document
        until = f" until {document.until}" if document.until else ""
        print(
            f"{document.level:<12} {document.scope!s:<24} {document.generation}, "
            f"issued {document.issued}{until}"
        )
    if not force:
        print(f"nothing issued: every node is at {documents.highest(config.order)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sideband-level", description=__doc__)
    parser.add_argument("level", nargs="?", help="the level to select")
    parser.add_argument("--scope", default="all", help="all, rack:NAME[,NAME] or node:NAME[,NAME] (all)")
    parser.add_argument("--until", help="when to look again: 30m, 2h or a time; nothing rises by itself")
    parser.add_argument("--reason", default="", help="kept in the ledger")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument(
        "--resend", action="store_true", help="send what is in force again, for a rack that was away"
    )
    parser.add_argument("--show", action="store_true", help="what is in force, and nothing else")
    parser.add_argument("--check", metavar="FILE", help="check a configuration, and nothing else")
    parser.add_argument("--config", default=_CONFIG, help=argparse.SUPPRESS)
    return parser


def run(options: argparse.Namespace, now: float) -> int:
    started = time.monotonic()
    if options.check is not None:
        load(options.check)
        return 0
    if sum((options.level is not None, options.resend, options.show)) != 1:
        raise UsageError("one of LEVEL, --resend and --show is needed")
    config = load(options.config)
    ledger = Ledger(config.state_directory)
    signed: Signed | None = None
    with ledger.alone():
        issued = ledger.issued()
        if ledger.damaged:
            print(f"warning: {ledger.damaged} damaged lines in the ledger are passed over", file=sys.stderr)
        if options.show:
            return _show(config, issued, options.json)
        if options.level is not None:
            try:
                scope = documents.scope_from_text(options.scope)
            except ValueError as error:
                raise UsageError(str(error)) from None
            until = until_from_text(options.until, now) if options.until is not None else None
            check(config, options.level, scope, until, issued, now)
            signed = issue(config, options.level, scope, until, issued, now)
            issued = [*issued, signed]
        to_send = parcels(config, issued)
        if signed is not None:
            ledger.append(
                signed, {"reason": options.reason, "by": os.environ.get("SUDO_USER") or getpass.getuser()}
            )
    outcomes = send.send_all(
        to_send, lambda target: send.command(target, config.user, config.rack_key, config.known_hosts)
    )
    result = report(signed, outcomes, time.monotonic() - started)
    if options.json:
        print(json.dumps(result, sort_keys=True))
    else:
        _print(result)
    return 0 if result["ok"] else 1


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        return run(options, time.time())
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
