"""Every rule file is its own test; rules that cannot work are refused when the archive is built (C11)."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from services import rulebook
from services.curves import record
from services.curves.rules import Reading, Rules

RULES = Rules(json.loads(json.dumps(rulebook.compiled())))
SAMPLES = [
    pytest.param(sample, id=f"{path.stem}-{number}")
    for path in sorted(rulebook.FOLDER.glob("*.yml"))
    for number, sample in enumerate(rulebook.read(path)["samples"], 1)
]


def read(message: str) -> Reading:
    found = list(record.lines(record.Record(1, "node1", "1", "a", "f", "", message)))
    assert len(found) == 1
    return RULES.read(found[0])


def same(one: dict[str, float], other: dict[str, float]) -> bool:
    return set(one) == set(other) and all(
        (math.isnan(one[key]) and math.isnan(other[key])) or math.isclose(one[key], other[key], rel_tol=1e-9)
        if not math.isinf(one[key])
        else one[key] == other[key]
        for key in one
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_line_yields_what_its_rule_file_says(sample: dict[str, Any]) -> None:
    reading = read(sample["line"])
    assert same(reading.values, {key: float(value) for key, value in sample.get("values", {}).items()}), reading
    assert reading.step == sample.get("step")
    assert list(reading.events) == sample.get("events", [])
    assert list(reading.shown) == sample.get("shown", [])
