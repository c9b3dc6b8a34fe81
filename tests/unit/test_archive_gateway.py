"""Asking the gateway: every sample once in whatever pieces it answers, patience, its own words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import archive_kit as kit
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.archiver.gateway import Gateway, Refused, either, read, selector
from services.archiver.problem import Problem


@dataclass
class Fake:
    """One series; a window is (T - w, T], and only so many samples come at a time."""

    samples: Sequence[int]
    most: int = 10**9
    reason: str = "bytes"
    busy: int = 0  # times that it is busy first
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str, values: dict[str, str]) -> tuple[int, Any]:
        self.asked.append({"path": path, **values})
        if self.busy:
            self.busy -= 1
            return 429, {"reason": "busy", "error": "wait"}
        width = int(re.search(r"\[(\d+)ms\]", values["query"]).group(1))  # type: ignore[union-attr]
        at = round(float(values["time"]) * 1000)
        found = [moment for moment in self.samples if at - width < moment <= at]
        if len(found) > self.most:
            return 413, {"reason": self.reason, "error": "the answer is larger"}
        pairs = [[moment / 1000, str(moment)] for moment in found]
        rows = [{"metric": {"__name__": "m"}, "values": pairs}] if pairs else []
        return 200, {"data": {"resultType": "matrix", "result": rows}}


@contextmanager
def asking(fake: Fake, directory: Path, *before: str) -> Iterator[Gateway]:
    class Handler(kit.Handler):
        def served(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, said = fake.answer(self.path, {key: one[0] for key, one in parse_qs(body).items()})
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with kit.serving(Handler) as port:
        gateway = Gateway(
            kit.config(directory, gateways=[*before, f"http://127.0.0.1:{port}"]), sleep=lambda seconds: None
        )
        yield gateway
        gateway.close()


def asked(gateway: Gateway, start: float, end: float) -> list[int]:
    rows = gateway.samples("m", start, end, "minute")
    return [moment for _, samples in rows for moment, _ in samples]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.sets(st.integers(0, 40 * 86_400_000), max_size=40),
    start=st.integers(0, 20 * 86_400_000),
    width=st.integers(1, 30 * 86_400_000),
    most=st.integers(40, 60),
)
def test_every_sample_of_a_span_comes_once_and_no_other(
    samples: set[int], start: int, width: int, most: int, tmp_path: Path
) -> None:
    with asking(Fake(sorted(samples), most), tmp_path) as gateway:
        found = asked(gateway, start / 1000, (start + width) / 1000)
    assert found == sorted(moment for moment in samples if start <= moment <= start + width)


def test_what_is_too_large_is_asked_for_in_halves(tmp_path: Path) -> None:
    samples = list(range(0, 86_400_000, 60_000))
    for reason in ("bytes", "range", "late", "series"):
        fake = Fake(samples, most=100, reason=reason)
        with asking(fake, tmp_path) as gateway:
            assert asked(gateway, 0, 86_400) == samples
        assert len(fake.asked) < 40
    fake = Fake(samples, most=0, reason="bytes")
    with asking(fake, tmp_path) as gateway, pytest.raises(Problem, match="refuses m: the answer is larger"):
        asked(gateway, 0, 86_400)


def test_another_refusal_ends_in_the_gateways_own_words(tmp_path: Path) -> None:
    fake = Fake([1], most=0, reason="identity")
    with asking(fake, tmp_path) as gateway, pytest.raises(Problem, match="the answer is larger"):
        asked(gateway, 0, 1)
    assert len(fake.asked) == 1


def test_a_busy_gateway_is_asked_again_and_the_next_one_where_the_first_is_gone(tmp_path: Path) -> None:
    fake = Fake([1000], busy=3)
    with asking(fake, tmp_path, "http://127.0.0.1:9") as gateway:
        assert asked(gateway, 0, 2) == [1000]
    assert len(fake.asked) == 4
    alone = Gateway(kit.config(tmp_path, gateways=["http://127.0.0.1:9"]), sleep=lambda seconds: None)
    with pytest.raises(Problem, match=r"the gateway does not answer \(http://127.0.0.1:9: .*refused") as said:
        asked(alone, 0, 2)
    assert said.value.retry


def test_a_refusal_says_status_and_reason(tmp_path: Path) -> None:
    fake = Fake([1000], most=0, reason="identity")
    with asking(fake, tmp_path) as gateway, pytest.raises(Refused) as said:
        gateway.instant("m[1000ms]", 1, "minute")
    assert (said.value.status, said.value.reason) == (413, "identity")


def test_null_is_not_nan() -> None:
    assert read([1.5, None]) == (1500, None)
    assert str(read([1.5, "NaN"])) == "(1500, nan)"
    assert read(["1780000000.123", "+Inf"]) == (1_780_000_000_123, float("inf"))


def test_texts_in_selectors_match_themselves() -> None:
    assert selector(job='a"b\\c', node_re="x|y") == '{job="a\\"b\\\\c",node=~"x|y"}'
    pattern = either(["node.1", "a+b", "plain"])
    assert [bool(re.fullmatch(pattern, one)) for one in ("node.1", "nodeX1", "a+b", "aab", "plain")] == [
        True, False, True, False, True,
    ]  # fmt: skip
