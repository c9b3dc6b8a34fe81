"""The way of a question through querygate, with a stand-in for the stores (Q2, Q5)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from querygate.kit import configuration

from services.querygate import app, ops
from services.querygate import config as configs
from services.querygate.plan import Plan
from services.querygate.refusal import Refused
from services.querygate.stores import Answer, Stores

FORM = [(b"content-type", b"application/x-www-form-urlencoded")]


@dataclass
class Fake:
    """Instead of the stores: what was planned, and one answer for all."""

    plans: list[Plan] = field(default_factory=list)
    problem: Exception | None = None

    async def answer(self, plan: Plan) -> Answer:
        self.plans.append(plan)
        if self.problem:
            raise self.problem
        return Answer(b'{"status":"success","data":[]}', "application/json")


@dataclass
class Bench:
    gate: app.Gate
    fake: Fake
    directory: Path

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

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if not sent:
                self.lines_before_answer = self.lines()
            sent.append(message)

        await app.application(self.gate)(scope, receive, send)
        headers_out = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], headers_out, json.loads(b"".join(one.get("body", b"") for one in sent))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "audit.jsonl").read_text().splitlines()]


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
    made = Stores(None)
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

    assert asyncio.run(stores(handler).answer(PLAN)).body == b"{}"


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
