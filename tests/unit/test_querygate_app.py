"""The way of a question through querygate, with a stand-in for the stores (Q2, Q5)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from querygate.kit import configuration

from services.querygate import app, ops
from services.querygate import config as configs
from services.querygate.plan import Count, Plan
from services.querygate.refusal import Refused
from services.querygate.stores import Answer, Stores

GONE = {"type": "http.disconnect"}

FORM = [(b"content-type", b"application/x-www-form-urlencoded")]


@dataclass
class Fake:
    """Instead of the stores: what was planned, and one answer for all."""

    plans: list[Plan] = field(default_factory=list)
    problem: Exception | None = None
    never: bool = False
    ended: bool = False

    async def answer(self, plan: Plan) -> Answer:
        self.plans.append(plan)
        if self.problem:
            raise self.problem
        if self.never:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True
        answer = Answer("/tmp", "application/json")
        answer.write(b'{"status":"success","data":[]}')
        return answer


@dataclass
class Bench:
    gate: app.Gate
    fake: Fake
    directory: Path
    leaves: bool = False  # the asker, as soon as the question is sent

    def send(
        self, target: str, method: str = "GET", body: bytes = b"", who: str = "tenant/alpha",
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> tuple[int, dict[str, str], Any]:  # fmt: skip
        return asyncio.run(self._send(target, method, body, who, headers or (FORM if body else [])))

    async def _send(
        self, target: str, method: str, body: bytes, who: str, headers: list[tuple[bytes, bytes]]
    ) -> tuple[int, dict[str, str], Any]:
        path, _, query = target.partition("?")
        given = headers + ([(b"x-sideband-identity", who.encode())] if who else [])
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": given,
            "query_string": query.encode(), "scheme": "http", "server": ("gate", 80), "root_path": "",
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        to_come = [{"type": "http.request", "body": body, "more_body": False}] + [GONE] * self.leaves

        async def receive() -> dict[str, Any]:
            if not to_come:
                await asyncio.Event().wait()
            return to_come.pop(0)

        async def send(message: Any) -> None:
            if not sent:
                self.lines_before_answer = self.lines()
            sent.append(message)

        await app.application(self.gate)(scope, receive, send)
        headers_out = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers_out, json.loads(b"".join(one.get("body", b"") for one in sent))

    def lines(self) -> list[dict[str, Any]]:
        (path,) = (self.directory / "audit").iterdir()
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    gate = app.Gate(configs.parse(configuration(tmp_path, {})))
    fake = Fake()
    gate.stores = fake  # type: ignore[assignment]
    return Bench(gate, fake, tmp_path)


def test_the_audit_line_stands_before_the_answer_leaves(bench: Bench) -> None:
    status, headers, _ = bench.send("/api/v1/query?query=up&tier=hot", who="administrator/ops")
    assert (status, headers["x-sideband-tier"]) == (200, "hot")
    assert [line["what"] for line in bench.lines_before_answer] == [{"query": "up", "tier": "hot"}]
    bench.send("/api/v1/label/a/values", who="administrator/ops")
    assert bench.lines()[-1]["path"] == "/api/v1/label/a/values"


def test_without_a_line_there_is_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.gate.audit, "write", full)
    status, _, said = bench.send("/api/v1/query?query=up", who="administrator/ops")
    assert (status, said["reason"], "data" in said) == (503, "audit", False)
    assert bench.send("/api/v1/query?query=up")[0] == 200  # tenants have no line to lose


def test_a_tenants_question_leaves_no_line_and_a_raw_one_does(bench: Bench) -> None:
    bench.send("/api/v1/query?query=up")
    assert bench.lines() == []


@pytest.mark.parametrize(
    "who", ["", "tenant/gamma", "alpha", "tenant/alpha ", "Tenant/alpha", "administrator/alpha"]
)
def test_who_is_not_of_the_site_gets_nothing(bench: Bench, who: str) -> None:
    status, _, said = bench.send("/api/v1/query?query=up", who=who)
    assert (status, said["reason"], bench.fake.plans) == (403, "identity", [])


def test_a_defect_is_no_traceback(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.fake.problem = RuntimeError("secret inside")
    status, _, said = bench.send("/api/v1/query?query=up", who="administrator/ops")
    assert (status, "secret" in json.dumps(said)) == (502, False)
    assert "secret inside" in capsys.readouterr().err
    assert bench.lines()[-1]["result"] == "defect"


def test_who_leaves_ends_the_question_and_the_line_is_there(bench: Bench) -> None:
    bench.fake.never = bench.leaves = True
    bench.send("/api/v1/query?query=up", who="administrator/ops")
    assert (bench.fake.ended, bench.lines()[-1]["result"]) == (True, "gone")
    assert bench.gate.slots.running.total() == 0


WEBHOOK = {
    "version": "4", "receiver": "inbox", "alerts": [
        {"status": "firing", "fingerprint": "ab12", "startsAt": "2026-01-02T03:04:05.678901234Z",
         "endsAt": "0001-01-01T00:00:00Z", "annotations": {"summary": "hot", "try": "look at the fan"},
         "labels": {"alertname": "GpuHot", "severity": "critical", "tenant": "alpha", "node": "node1"}},
    ],
}  # fmt: skip
JSON = [(b"content-type", b"application/json")]


def test_notifications_come_from_alerting_alone_and_are_shown_to_whom_they_concern(bench: Bench) -> None:
    body = json.dumps(WEBHOOK).encode()
    for who in ("tenant/alpha", "administrator/ops", "archive/archiver"):
        status, _, said = bench.send("/api/v1/inbox", "POST", body, who, JSON)
        assert (status, said["reason"]) == (403, "path")
    status, _, said = bench.send("/api/v1/inbox", "POST", body, "alerts/region1", JSON)
    assert (status, said["data"]) == (200, {"kept": 1})
    for target in ("/api/v1/query?query=up", "/api/v1/inbox"):
        assert bench.send(target, who="alerts/region1")[2]["reason"] == "path"
    (shown,) = bench.send("/api/v1/inbox")[2]["data"]["alerts"]
    assert (shown["status"], shown["try"], shown["labels"]["alertname"]) == (
        "firing",
        "look at the fan",
        "GpuHot",
    )
    assert bench.send("/api/v1/inbox", who="tenant/beta")[2]["data"] == {"alerts": []}
    assert len(bench.send("/api/v1/inbox", who="administrator/ops")[2]["data"]["alerts"]) == 1
    assert bench.lines()[-1]["path"] == "/api/v1/inbox"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [(b"{", JSON, 400), (b"[]", JSON, 400), (b"{}", FORM, 415), (b'{"version":"3","alerts":[]}', JSON, 400),
     (b'{"version":"4","alerts":[{}]}', JSON, 400), (b" " * 1_048_577, JSON, 413)],
)  # fmt: skip
def test_what_can_never_be_kept_is_said_with_no_reason_to_try_again(
    bench: Bench, body: bytes, headers: Any, status: int
) -> None:
    assert bench.send("/api/v1/inbox", "POST", body, "alerts/region1", headers)[0] == status


def test_an_inbox_that_cannot_be_written_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(bench.gate.inbox, "take", full)
    status, _, said = bench.send(
        "/api/v1/inbox", "POST", json.dumps(WEBHOOK).encode(), "alerts/region1", JSON
    )
    assert (status, said["reason"]) == (503, "room")


def test_a_long_form_is_cut_off(bench: Bench) -> None:
    status, _, said = bench.send("/api/v1/query", "POST", b"query=" + b"a" * 70000)
    assert (status, said["reason"]) == (413, "length")


def test_busy_says_when_to_come_back(bench: Bench) -> None:
    bench.fake.problem = Refused(429, "queue", "later")
    status, headers, _ = bench.send("/api/v1/query?query=up")
    assert (status, headers["retry-after"]) == (429, "5")


def test_ready_and_metrics_are_apart(bench: Bench) -> None:
    bench.send("/api/v1/query?query=up")
    assert bench.send("/metrics")[0] == 403

    async def look(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=ops.application(bench.gate))
        async with httpx.AsyncClient(transport=transport, base_url="http://ops") as client:
            return await client.get(path)

    assert asyncio.run(look("/-/ready")).text == "ready\n"
    text = asyncio.run(look("/metrics")).text
    assert 'sideband_querygate_requests_total{endpoint="/api/v1/query",identity="tenant/alpha"' in text
    assert "sideband_querygate_degraded 0" in text
    assert asyncio.run(look("/api/v1/query")).status_code == 404


# -- a store's side


def stores(handler: Any) -> Stores:
    made = Stores(None, "/tmp")
    made._client = httpx.AsyncClient(transport=httpx.MockTransport(handler), trust_env=False)
    return made


PLAN = Plan("minute", False, ("http://one", "http://two"), "/api/v1/query", (("query", "up & x"),), 100, 2)


def test_the_form_is_posted_and_no_header_of_an_asker_goes_along() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    asyncio.run(stores(handler).answer(PLAN))
    assert (seen[0].method, str(seen[0].url)) == ("POST", "http://one/api/v1/query")
    assert seen[0].content == b"query=up+%26+x"
    assert not [name for name in seen[0].headers if name.startswith(("x-", "cookie", "authorization"))]


def test_the_next_store_is_asked_when_one_is_away() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.host == "one":
            raise httpx.ConnectError("away")
        return httpx.Response(200, json={})

    assert b"".join(asyncio.run(stores(handler).answer(PLAN)).pieces()) == b"{}"


def rows(number: int) -> bytes:
    series = [{"__name__": "up", "note": 'a"},{"b', "i": str(i)} for i in range(number)]
    return json.dumps({"status": "success", "data": series}, separators=(",", ":")).encode()


@pytest.mark.parametrize(("number", "passes"), [(0, True), (1, True), (1000, True), (1001, False)])
def test_series_are_counted_before_the_question_runs(number: int, passes: bool) -> None:
    """Also where a value looks like the border between two of them."""
    plan = replace(PLAN, count=Count((("match[]", "up"),), 1000))
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, content=rows(number) if request.url.path.endswith("series") else b"{}")

    if passes:
        asyncio.run(stores(handler).answer(plan))
        assert asked == ["/api/v1/series", "/api/v1/query"]
    else:
        with pytest.raises(Refused, match=r"more than 1,000 series of tier minute"):
            asyncio.run(stores(handler).answer(plan))
        assert asked == ["/api/v1/series"]


def test_a_list_that_is_none_is_a_stores_trouble() -> None:
    plan = replace(PLAN, items=10)
    with pytest.raises(Refused, match="not what it should be"):
        asyncio.run(stores(lambda _: httpx.Response(200, content=b'{"data":{}}')).answer(plan))


def test_a_large_answer_is_no_memory() -> None:
    """The body is made while it is read; what the answer keeps of it lies in a file."""
    piece = b"x" * 65536

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(640):
            yield piece

    plan = replace(PLAN, bytes=2**30)
    tracemalloc.start()
    try:
        answer = asyncio.run(stores(lambda _: httpx.Response(200, content=pieces())).answer(plan))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (answer.size, sum(map(len, answer.pieces()))) == (640 * 65536, 640 * 65536)
    assert most < 8 * 2**20


def test_what_a_store_says_of_us_stays_here() -> None:
    said = 'remoteAddr: "10.30.0.51:4711"; requestURI: /select/logsql/query; cannot parse query'
    with pytest.raises(Refused) as refused:
        asyncio.run(stores(lambda _: httpx.Response(400, text=said)).answer(PLAN))
    assert refused.value.text == "minute: cannot parse query"


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (httpx.Response(200, content=b"x" * 101), 413, "bytes"),
        (httpx.Response(422, json={"error": "cannot multiply"}), 422, "store"),
        (httpx.Response(503, json={"error": "timeout exceeded during the query"}), 503, "late"),
        (httpx.Response(503, text="busy"), 429, "store"),
        (httpx.Response(500, text="panic at 10.30.0.41"), 502, "store"),
        (httpx.Response(302, headers={"Location": "http://elsewhere/"}), 502, "store"),
        (httpx.ReadTimeout("late"), 503, "late"),
        (httpx.ReadError("gone"), 502, "store"),
        (httpx.ConnectError("away"), 502, "store"),
    ],
)
def test_a_stores_trouble_is_told_in_our_words(reply: Any, status: int, reason: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        if isinstance(reply, Exception):
            raise reply
        found: httpx.Response = reply
        return found

    with pytest.raises(Refused) as refused:
        asyncio.run(stores(handler).answer(PLAN))
    assert (refused.value.status, refused.value.reason) == (status, reason)
    assert "10.30" not in refused.value.text
