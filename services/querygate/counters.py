"""querygate's own figures, in Prometheus' text form. Labels come from configuration and code alone."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping

_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)
Labels = tuple[tuple[str, str], ...]


class Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._times: dict[str, dict[Labels, list[float]]] = defaultdict(dict)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name][tuple(sorted(labels.items()))] += amount

    def time(self, name: str, seconds: float, **labels: str) -> None:
        with self._lock:
            row = self._times[name].setdefault(tuple(sorted(labels.items())), [0.0] * (len(_BUCKETS) + 2))
            for index, bound in enumerate(_BUCKETS):
                row[index] += seconds <= bound
            row[-2] += seconds
            row[-1] += 1

    def text(self, gauges: Mapping[tuple[str, Labels], float]) -> str:
        lines: list[str] = []
        with self._lock:
            for name, rows in sorted(self._counts.items()):
                lines.append(f"# TYPE {name} counter")
                lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in sorted(rows.items())]
            for name, times in sorted(self._times.items()):
                lines.append(f"# TYPE {name} histogram")
                for labels, row in sorted(times.items()):
                    for index, bound in enumerate((*(f"{one:g}" for one in _BUCKETS), "+Inf")):
                        count = row[index] if index < len(_BUCKETS) else row[-1]
                        lines.append(f"{name}_bucket{_labels((*labels, ('le', bound)))} {count:g}")
                    lines.append(f"{name}_sum{_labels(labels)} {row[-2]:g}")
                    lines.append(f"{name}_count{_labels(labels)} {row[-1]:g}")
        seen = ""
        for (name, labels), value in sorted(gauges.items()):
            if name != seen:
                lines.append(f"# TYPE {name} gauge")
                seen = name
            lines.append(f"{name}{_labels(labels)} {value:g}")
        return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    quoted = (f'{name}="{_escape(value)}"' for name, value in labels)
    return "{" + ",".join(quoted) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
