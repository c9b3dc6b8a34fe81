"""What goes in, an observation of one line, and what comes out, samples in the text format."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Observation:
    """One line that a rule knew."""

    time: int  # microseconds, the line's own
    key: str
    job: str
    tenant: str
    node: str
    source: str  # a file, a stream, or a rank's part of one
    rank: int | None
    step: int | None
    values: dict[str, float]
    shown: tuple[str, ...]
    events: tuple[str, ...]

    def dump(self) -> dict[str, Any]:
        return {
            key: value for key, value in asdict(self).items() if value is not None and value not in ((), {})
        }

    @classmethod
    def load(cls, value: dict[str, Any]) -> Observation:
        return cls(
            time=int(value["time"]),
            key=str(value["key"]),
            job=str(value["job"]),
            tenant=str(value["tenant"]),
            node=str(value["node"]),
            source=str(value["source"]),
            rank=value.get("rank"),
            step=value.get("step"),
            values={str(key): float(number) for key, number in value.get("values", {}).items()},
            shown=tuple(value.get("shown", ())),
            events=tuple(value.get("events", ())),
        )


@dataclass(frozen=True)
class Sample:
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    millisecond: int

    def text(self) -> str:
        return line(self.name, self.labels, self.value, self.millisecond)


def line(name: str, labels: tuple[tuple[str, str], ...], value: float, millisecond: int) -> str:
    pairs = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels)
    braced = f"{{{pairs}}}" if pairs else ""
    return f"{name}{braced} {_number(value)} {millisecond}\n"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _quoted(text: str) -> str:
    # A log may hold anything; a lone surrogate or a line break must not cut the batch.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", " ")
