"""Hand a bundle to the racks over SSH, all at once; a dead one delays nobody."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

CONNECT_SECONDS = 5
PATIENCE_SECONDS = 30
# What the forced command of the racks' key runs.
ACCEPT = "/opt/sideband/accept.pyz"


@dataclass(frozen=True)
class Target:
    name: str  # the receiver
    rack: str
    address: str
    port: int = 22
    nodes: tuple[str, ...] = ()
    local: bool = False  # on this very host


@dataclass
class Outcome:
    rack: str
    outcome: str  # ok, partial, refused, unreachable
    started: float  # wall clock
    seconds: float
    detail: str = ""
    answer: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "rack": self.rack,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
            "clamp_seconds": self.answer.get("clamp_seconds"),
            "intake_bytes_per_second": self.answer.get("intake_bytes_per_second"),
            "refused": self.answer.get("refused", []),
        }


def command(target: Target, user: str, key: str, known_hosts: str) -> list[str]:
    """What hands a bundle over: SSH to a forced command, or that command itself, as the same user."""
    if target.local:
        return ["runuser", "-u", user, "--", ACCEPT]
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityFile": key,
        "IdentityAgent": "none",
        "ControlPath": "none",
        "ConnectTimeout": str(CONNECT_SECONDS),
        "ServerAliveInterval": "2",
        "ServerAliveCountMax": "2",
        "LogLevel": "ERROR",
        "Port": str(target.port),
    }
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", "-T", *flags, "-l", user, target.address, "sideband-accept"]


def send_one(
    target: Target, bundle: str, words: Sequence[str], patience: float = PATIENCE_SECONDS
) -> Outcome:
    wall, clock = time.time(), time.monotonic()
    try:
        done = subprocess.run(
            words, input=bundle.encode(), capture_output=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(
            target.name, "unreachable", wall, time.monotonic() - clock, f"no answer in {patience:g} s"
        )
    except OSError as error:
        return Outcome(target.name, "unreachable", wall, time.monotonic() - clock, str(error))
    seconds = time.monotonic() - clock
    answer = _answer(done.stdout)
    if answer is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        outcome = "unreachable" if done.returncode == 255 else "refused"
        return Outcome(
            target.name, outcome, wall, seconds, (said[-1] if said else f"exit {done.returncode}")[:200]
        )
    if done.returncode == 0:
        return Outcome(target.name, "ok", wall, seconds, "", answer)
    reasons = [f"{one.get('reason')}: {one.get('detail')}" for one in answer.get("refused", [])]
    detail = "; ".join(filter(None, [answer.get("problem", ""), *reasons]))[:400]
    return Outcome(
        target.name, "partial" if answer.get("accepted") else "refused", wall, seconds, detail, answer
    )


def _answer(output: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(output[-65536:].strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return value if isinstance(value, dict) else None


def send_all(
    parcels: Sequence[tuple[Target, str]],
    words_for: Callable[[Target], Sequence[str]],
    patience: float = PATIENCE_SECONDS,
) -> list[Outcome]:
    if not parcels:
        return []
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, len(parcels))) as pool:
        waits = [
            pool.submit(send_one, target, bundle, words_for(target), patience) for target, bundle in parcels
        ]
        return [wait.result() for wait in waits]
