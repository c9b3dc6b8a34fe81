"""Whose job is on which GPU, as the job process has written it. That process reads what users shape, so
this does not trust it: a name that is no label's value, an old list or a damaged one labels nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from services import durable

_BYTES = 8 << 20
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


class GpuJobs:
    def __init__(self, path: str, most_age: float, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._most_age = most_age
        self._clock = clock
        self._raw: bytes | None = None
        self._written = 0.0
        self._labels: dict[str, dict[str, str]] = {}

    def labels(self) -> dict[str, dict[str, str]]:
        """GPU's UUID: its job and tenant. A GPU that several jobs share has only what they agree on."""
        raw = durable.read(self._path, _BYTES)
        if raw is None:
            return {}
        if raw != self._raw:
            self._raw = raw
            self._written, self._labels = _parse(raw)
        return self._labels if abs(self._clock() - self._written) <= self._most_age else {}


def _parse(raw: bytes) -> tuple[float, dict[str, dict[str, str]]]:
    try:
        value = json.loads(raw)
        written = float(value["written"])
        users: dict[str, list[dict[str, str]]] = {}
        for job in value["jobs"]:
            if job["state"] == "running":
                for uuid in job["gpus"]:
                    users.setdefault(str(uuid), []).append(_names(job))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return 0.0, {}
    return written, {
        uuid: {key: text for key, text in jobs[0].items() if all(one.get(key) == text for one in jobs)}
        for uuid, jobs in users.items()
    }


def _names(job: dict[str, Any]) -> dict[str, str]:
    names = {"job": job.get("job"), "tenant": job.get("tenant")}
    return {key: name for key, name in names.items() if isinstance(name, str) and _VALUE.fullmatch(name)}
