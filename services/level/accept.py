"""sideband-accept: what a rack does with a bundle of signed documents that arrives over SSH.

It is the forced command of one key. It takes the bundle on its standard input, keeps what is truly signed,
of this site, for this rack and not older than what it holds, serves that to the nodes and clamps the rack's
intake. It answers one line of JSON. Whoever sends rubbish gets a reason, never a traceback.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from sideband import documents
from sideband.documents import Refused, Signed, Verifier

from services import configuration, durable
from services.configuration import ConfigError
from services.level import runtime

_PATIENCE_SECONDS = 10
_CONFIG = "/etc/sideband/rack/accept.json"


_TEXTS = ("site", "rack", "admin_socket", "documents_map", "intake_map", "allowed_signers", "state_directory")


@dataclass(frozen=True)
class Config:
    site: str
    rack: str
    nodes: tuple[str, ...]
    order: tuple[str, ...]
    levels: dict[str, int]  # bytes per second and node; 0 is no limit
    admin_socket: str
    documents_map: str
    intake_map: str
    allowed_signers: str
    state_directory: str


def parse(value: Any) -> Config:
    try:
        if not isinstance(value["levels"], dict) or not value["order"]:
            raise ValueError("levels and order are needed")
        if not isinstance(value["nodes"], list) or not isinstance(value["order"], list):
            raise ValueError("nodes and order are lists")
        return Config(
            nodes=tuple(map(str, value["nodes"])),
            order=tuple(map(str, value["order"])),
            levels={str(name): int(limit) for name, limit in value["levels"].items()},
            **{key: str(value[key]) for key in _TEXTS},
        )
    except KeyError as error:
        raise ConfigError(f"{error} is missing") from None
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(str(error)) from None


class Store:
    """What the rack holds: the documents in force, and how many it refused and why."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._verifier = Verifier(config.allowed_signers)
        self._path = os.path.join(config.state_directory, "bundle.json")
        self._refused_path = os.path.join(config.state_directory, "refused.json")
        self.damaged: str | None = None

    def held(self) -> list[Signed]:
        """The documents on disk that still pass. A damaged file is said and counts as none."""
        if not os.path.exists(self._path):
            return []
        raw = durable.read(self._path, documents.BUNDLE_BYTES)
        kept = []
        try:
            if raw is None:
                raise Refused("malformed", "unreadable or too long")
            pairs = documents.bundle_pairs(raw)
        except Refused as problem:
            self.damaged = f"{self._path}: {problem}"
            return []
        for text, signature in pairs:
            try:
                kept.append(self.examine(text, signature))
            except Refused as problem:  # of a key, a level or a node that has been taken away since
                self.damaged = f"{self._path}: {problem}"
        return kept

    def keep(self, signed: Sequence[Signed]) -> str:
        text = documents.bundle_text(signed)
        durable.write(self._path, text.encode())
        return text

    def count(self, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        raw = durable.read(self._refused_path, 1 << 16)
        try:
            value = json.loads(raw) if raw else {}
            counts = {str(key): int(number) for key, number in value.items()}
        except (ValueError, TypeError, AttributeError):
            counts = {}
        for problem in refused:
            counts[problem.reason] = counts.get(problem.reason, 0) + 1
        durable.write(self._refused_path, json.dumps(counts, sort_keys=True).encode() + b"\n")

    def examine(self, text: str, signature: str) -> Signed:
        signed = documents.examine(text, signature, self._config.site, self._verifier)
        document = signed.document
        if not document.scope.concerns(self._config.rack, self._config.nodes):
            raise Refused("scope", f"for {document.scope}, this is {self._config.rack}")
        if document.level not in self._config.levels:
            raise Refused("level", f"{document.level} is not known here")
        return signed


def intake(config: Config, signed: Sequence[Signed]) -> int:
    """Bytes a second that each of the rack's nodes may send: the widest that any of them still needs.

    One limit holds for all nodes of a rack, so a document for some of them clamps only when all are lower.
    """
    limits = []
    for node in config.nodes or (None,):
        found = documents.newest(signed, config.rack, node)
        level = found.document.level if found else documents.highest(config.order)
        limits.append(config.levels.get(level, 0))
    return 0 if 0 in limits else max(limits)


def maps(text: str, limit: int) -> tuple[dict[str, str], dict[str, str]]:
    """The entries of the two maps that HAProxy answers and limits from."""
    body = base64.b64encode(text.encode()).decode()
    etag = hashlib.sha256(text.encode()).hexdigest()[:32]
    return {"body": body, "etag": etag}, {"bytes_per_second": str(limit)}


def accept(config: Config, raw: bytes) -> dict[str, Any]:
    """Take what is sound of a bundle. The answer says what was accepted, refused and set."""
    started = time.monotonic()
    store = Store(config)
    held = store.held()
    refused: list[Refused] = []
    arrived: list[Signed] = []
    try:
        pairs = documents.bundle_pairs(raw)
    except Refused as problem:
        pairs = []
        refused.append(problem)
    for text, signature in pairs:
        try:
            arrived.append(store.examine(text, signature))
        except Refused as problem:
            refused.append(problem)
    racks = {config.rack: list(config.nodes)}
    kept = documents.in_force([*held, *arrived], racks)
    accepted = [one for one in arrived if one in kept]
    for one in arrived:
        if one not in kept:
            refused.append(Refused("old", f"generation {one.document.generation} for {one.document.scope}"))
    store.count(refused)
    limit = intake(config, kept)
    answer: dict[str, Any] = {
        "rack": config.rack,
        "accepted": [one.document.generation for one in accepted],
        "refused": [{"reason": problem.reason, "detail": problem.detail} for problem in refused],
        "newest": max((one.document.generation for one in kept), default=0),
        "intake_bytes_per_second": limit,
        "applied": False,
    }
    if store.damaged:
        answer["damaged"] = store.damaged
    if not accepted:
        return answer
    text = store.keep(kept)
    policy, clamp = maps(text, limit)
    durable.write(config.documents_map, runtime.map_text(policy))
    durable.write(config.intake_map, runtime.map_text(clamp))
    try:
        runtime.replace_map(config.admin_socket, config.intake_map, clamp)
        answer["clamp_seconds"] = round(time.monotonic() - started, 3)
        runtime.replace_map(config.admin_socket, config.documents_map, policy)
        answer["applied"] = True
    except runtime.NotTaken as error:
        # On disk all the same: the front takes it when it starts.
        answer["problem"] = str(error)
    answer["seconds"] = round(time.monotonic() - started, 3)
    return answer


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    with open(os.path.join(directory, "accept.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _nothing(problem: str) -> dict[str, Any]:
    return {"problem": problem, "accepted": [], "refused": [], "applied": False}


def _receive(stream: BinaryIO) -> bytes:
    """What the peer sends, to its end. One that holds the line open holds no process of ours for long."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"nothing more came in {_PATIENCE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_PATIENCE_SECONDS)
    try:
        return stream.read((documents.BUNDLE_BYTES + 2) // 3 * 4 + 3)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(path: str, stream: BinaryIO) -> tuple[int, dict[str, Any]]:
    try:
        raw = _receive(stream)
        config = configuration.load(path, parse)
        with _alone(config.state_directory):
            answer = accept(config, raw)
    except ConfigError as error:
        return 2, _nothing(str(error))
    except (OSError, ValueError) as error:
        return 2, _nothing(str(error))
    sound = answer["applied"] and not answer["refused"]
    return (0 if sound else 1), answer


def main(arguments: Sequence[str]) -> int:
    if any(word in ("-h", "--help") for word in arguments):
        print(
            "usage: sideband-accept [CONFIG] < BUNDLE, or sideband-accept --check CONFIG\n\n"
            + (__doc__ or "")
        )
        return 0
    if len(arguments) == 2 and arguments[0] == "--check":
        try:
            configuration.load(arguments[1], parse)
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return 0
    if len(arguments) > 1 or any(word.startswith("-") for word in arguments):
        print("error: usage: sideband-accept [CONFIG], or sideband-accept --check CONFIG", file=sys.stderr)
        return 2
    if sys.stdin is None:
        print(json.dumps(_nothing("the standard input is closed"), sort_keys=True), flush=True)
        return 2
    try:
        code, answer = run(arguments[0] if arguments else _CONFIG, sys.stdin.buffer)
    except Exception as error:  # the peer gets an answer, whatever it sent
        code, answer = 2, _nothing(f"{type(error).__name__}: {error}")
    print(json.dumps(answer, sort_keys=True), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
