"""The way of one question: who asks, what is asked, a place, a plan, the store, the audit, the answer."""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from . import form, inbox, logsql
from .answer import Stored
from .audit import Audit
from .config import DELIVERS, Config, Identity
from .counters import Counters
from .degraded import Degraded
from .inbox import Inbox
from .jobs import JobStore, queue
from .plan import Plan, ask_instant, ask_range, plan_metadata, plan_query
from .refusal import Refused
from .sending import Sent, close, size
from .slots import Slots
from .stores import Stores
from .wishes import Wishes

IDENTITY = "x-sideband-identity"  # set by the gateway's HAProxy, which deletes what a client sent
_VALUES = re.compile(r"/api/v1/label/([a-zA-Z_][a-zA-Z0-9_]*)/values")
_JOB = re.compile(r"/api/v1/jobs/([0-9a-f]{32})(/result)?")
_SPAN = frozenset({"start", "end", "limit", "tier"})
KNOWN: Mapping[str, frozenset[str]] = {
    "/api/v1/query": frozenset({"query", "time", "timeout", "tier"}),
    "/api/v1/query_range": frozenset({"query", "start", "end", "step", "timeout", "tier"}),
    "/api/v1/series": _SPAN | {"match[]"},
    "/api/v1/labels": _SPAN | {"match[]"},
    "/api/v1/label/NAME/values": _SPAN | {"match[]"},
    "/select/logsql/query": frozenset({"query", "start", "end", "limit", "timeout"}),
    "/select/logsql/hits": frozenset({"query", "start", "end", "step", "field", "fields_limit", "timeout"}),
    "/api/v1/jobs": frozenset({"query", "time", "start", "end", "step", "timeout", "tier"}),
    "/api/v1/jobs/ID": frozenset(),
    "/api/v1/jobs/ID/result": frozenset(),
    "/api/v1/inbox": frozenset({"since", "status", "limit"}),
    "/api/v1/wishes": frozenset({"wish"}),
}

_EXACT = frozenset(path for path in KNOWN if not path.endswith(("/values", "/ID", "/result")))
_BODY_SECONDS = 10
_INBOX, _WISHES = "/api/v1/inbox", "/api/v1/wishes"
_DELIVERED = (("POST", _INBOX), ("GET", _WISHES))
_WRONG_SIDE = (
    "notifications are handed in by the site's alerting alone",
    "this certificate hands in notifications (POST /api/v1/inbox), reads wishes and asks nothing",
)


@dataclass
class Question:
    """What is known of a request so far; the audit line is written from it, however far it came."""

    endpoint: str
    path: str = ""
    identity: Identity | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    tier: str = ""
    raw: bool = False
    degraded: bool = False
    job: str = ""


class Gate:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.stores = Stores(config.tls, config.state_directory)
        self.slots = Slots(config.running, config.wait_seconds)
        self.audit = Audit(config.audit_directory, config.audit_keep_days)
        self.degraded = Degraded(config.degraded_file)
        self.counters = Counters()
        self.jobs = JobStore(config)
        self.jobs.prepare()
        self.inbox = Inbox(config)
        self.inbox.prepare()
        self.wishes = Wishes(config)
        self.wishes.prepare()
        self.audit.open()
        _, self._enqueue = queue(config, self.jobs)

    async def answer(self, request: Request) -> Response:
        question = Question(endpoint="")
        began = time.monotonic()
        reason = "ok"
        try:
            response = await self._judged(request, question)
        except Refused as problem:
            reason, response = problem.reason, _refused(problem)
        except ClientDisconnect:
            reason, response = "gone", _refused(Refused(400, "gone", "the question broke off"))
        except Exception as error:  # an asker never sees a traceback; whoever runs this does
            print(f"querygate: {question.endpoint}: {error!r}", file=sys.stderr, flush=True)
            reason, response = (
                "defect",
                _refused(Refused(502, "defect", "a defect here: tell whoever runs this")),
            )
        if question.tier:
            response.headers["X-Sideband-Tier"] = question.tier
        if question.degraded:
            response.headers["X-Sideband-Degraded"] = "aggregated"
        who = question.identity
        if who and (who.kind not in ("tenant", *DELIVERS) or question.raw):
            response = await self._audited(question, who, response, reason)
        name = who.key if who else ""
        self.counters.add(
            "sideband_querygate_requests_total",
            identity=name, endpoint=question.endpoint, status=str(response.status_code), reason=reason,
        )  # fmt: skip
        self.counters.add("sideband_querygate_sent_bytes_total", size(response), identity=name)
        self.counters.time("sideband_querygate_seconds", time.monotonic() - began, endpoint=question.endpoint)
        return response

    async def _audited(self, question: Question, who: Identity, response: Response, reason: str) -> Response:
        record = {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
            "who": who.key,
            "kind": who.kind,
            "path": question.path,
            "what": dict(question.values) | ({"job": question.job} if question.job else {}),
            "tier": question.tier,
            "raw": question.raw,
            "degraded": question.degraded,
            "bytes": size(response),
            "status": response.status_code,
            "result": reason,
        }
        try:
            await anyio.to_thread.run_sync(self.audit.write, record)
        except OSError as error:
            print(f"querygate: audit: {error}", file=sys.stderr, flush=True)
            close(response)
            self.counters.add("sideband_querygate_audit_failures_total")
            problem = Refused(503, "audit", "the audit trail cannot be written, so nothing is answered")
            return _refused(problem)
        self.counters.add("sideband_querygate_audit_lines_total")
        return response

    async def _judged(self, request: Request, question: Question) -> Response:
        path, question.endpoint = _endpoint(request)
        question.path = path
        identity = question.identity = self._who(request)
        if request.method not in ("GET", "POST"):
            raise Refused(405, "method", "GET and POST are answered")
        delivers = identity.kind in DELIVERS
        if (delivers and (request.method, path) not in _DELIVERED) or (
            not delivers and request.method == "POST" and path == _INBOX
        ):
            raise Refused(403, "path", _WRONG_SIDE[delivers])
        if delivers and path == _WISHES:
            return _success({"wishes": await anyio.to_thread.run_sync(self.wishes.everybodys)})
        if delivers:
            return await self._delivered(request)
        body = await _body(request, form.BODY_BYTES)
        headers = [(name.lower(), value) for name, value in request.headers.items()]
        text = form.source(request.method, request.scope["query_string"], body, headers)
        question.values = form.read(text, KNOWN[question.endpoint])
        question.degraded = self.degraded.now()
        return await _while_wanted(request, self._placed(request.method, path, question, identity))

    async def _placed(self, method: str, path: str, question: Question, who: Identity) -> Response:
        async with self.slots.taken(who) as waited:
            self.counters.time("sideband_querygate_queue_seconds", waited)
            if question.endpoint == _INBOX:
                question.degraded = False
                shown = await anyio.to_thread.run_sync(self.inbox.show, who, question.values, time.time())
                return _success({"alerts": shown})
            if question.endpoint == _WISHES:
                question.degraded = False
                return await self._wished(method, who, question.values)
            if question.endpoint.startswith("/api/v1/jobs"):
                return await self._job(method, path, question, who)
            plan = self._plan(path, question, who, time.time())
            question.tier, question.raw, question.degraded = plan.source, plan.raw, plan.degraded
            began = time.monotonic()
            answer = await self.stores.answer(plan)
            self.counters.time("sideband_querygate_store_seconds", time.monotonic() - began, tier=plan.source)
            return Sent(answer)

    async def _wished(self, method: str, who: Identity, values: Mapping[str, str]) -> Response:
        if who.kind != "tenant":
            raise Refused(403, "path", "wishes are tenants': each has its own")
        if method == "GET":
            return _success({"wish": await anyio.to_thread.run_sync(self.wishes.one, who.name)})
        text = form.needed(values, "wish")
        return _success({"wish": await anyio.to_thread.run_sync(self.wishes.set, who.name, text)})

    async def _delivered(self, request: Request) -> Response:
        """Notifications, from Alertmanager. Its next try comes only where an answer says 5xx."""
        kinds = request.headers.getlist("content-type")
        if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != "application/json":
            raise Refused(415, "type", "notifications come as Content-Type: application/json, once")
        now = time.time()
        alerts = inbox.read(await _body(request, inbox.BODY_BYTES), now)
        try:
            await anyio.to_thread.run_sync(self.inbox.take, alerts, now)
        except sqlite3.Error as error:
            print(f"querygate: inbox: {error}", file=sys.stderr, flush=True)
            raise Refused(503, "room", "the inbox cannot be written now: send again") from None
        self.counters.add("sideband_querygate_inbox_alerts_total", len(alerts))
        return _success({"kept": len(alerts)})

    def _plan(self, path: str, question: Question, who: Identity, now: float) -> Plan:
        values = question.values
        if question.endpoint.startswith("/select/logsql/"):
            question.degraded = False  # there is one copy of the lines
            return logsql.plan_logs(self.config, who, path, values, now)
        if question.endpoint == "/api/v1/query":
            form.needed(values, "query")
            return plan_query(self.config, who, ask_instant(values, now), now, question.degraded)
        if question.endpoint == "/api/v1/query_range":
            for name in ("query", "start", "step"):
                form.needed(values, name)
            return plan_query(self.config, who, ask_range(values, now), now, question.degraded)
        if question.endpoint == "/api/v1/series":
            form.needed(values, "match[]")
        limit = form.count(values, "limit", 1_000_000) if "limit" in values else None
        return plan_metadata(self.config, who, path, values, limit, now, question.degraded)

    async def _job(self, method: str, path: str, question: Question, who: Identity) -> Response:
        found = _JOB.fullmatch(path)
        if found is None:
            if method != "POST":
                raise Refused(405, "method", "a job is POSTed; GET /api/v1/jobs/ID says how it goes")
            return await self._new_job(question, who)
        if method != "GET":
            raise Refused(405, "method", "a job is read by GET")
        question.job = found.group(1)
        job = await anyio.to_thread.run_sync(self.jobs.get, question.job, who)
        question.tier = job.tier
        question.degraded = False
        if found.group(2):
            return Sent(Stored(await anyio.to_thread.run_sync(self.jobs.answer, job)))
        return _success(job.public(self.config.jobs.keep_seconds))

    async def _new_job(self, question: Question, who: Identity) -> Response:
        values, now = question.values, time.time()
        form.needed(values, "query")
        if "time" in values and {"start", "end", "step"} & set(values):
            raise Refused(400, "parameter", "time, or start, end and step: one of both kinds")
        if "start" in values:
            form.needed(values, "step")
        ask = ask_range(values, now) if "start" in values else ask_instant(values, now)
        plan = plan_query(self.config, who, ask, now, question.degraded, job=True)
        question.tier = plan.source

        def submit() -> str:
            self.jobs.purge()
            job = self.jobs.add(who, ask, plan.source)
            self._enqueue(job)
            return job

        question.job = await anyio.to_thread.run_sync(submit)
        return _success({"id": question.job, "state": "queued", "tier": plan.source}, 202,
                        {"Location": f"/api/v1/jobs/{question.job}"})  # fmt: skip

    def _who(self, request: Request) -> Identity:
        given = request.headers.getlist(IDENTITY)
        who = self.config.identities.get(given[0]) if len(given) == 1 else None
        if who is None:
            raise Refused(403, "identity", "this certificate belongs to nobody whom the site lets ask")
        return who


def _endpoint(request: Request) -> tuple[str, str]:
    """The exact path as sent, undecoded, and its name (case 70). Everything else does not exist."""
    path = request.scope["raw_path"].decode("latin-1")
    if found := _JOB.fullmatch(path):
        return path, "/api/v1/jobs/ID/result" if found.group(2) else "/api/v1/jobs/ID"
    name = "/api/v1/label/NAME/values" if _VALUES.fullmatch(path) else path
    if name == path and path not in _EXACT:
        raise _no_path()
    return path, name


def _no_path() -> Refused:
    return Refused(403, "path", f"only these paths exist here, spelt exactly so: {', '.join(KNOWN)}")


async def _while_wanted(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """Work that ends when the asker leaves: a closed panel must not keep a store busy."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, most: int) -> bytes:
    body = bytearray()
    with anyio.move_on_after(_BODY_SECONDS) as limit:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise Refused(413, "length", f"longer than {most:,} bytes: send less at a time")
    if limit.cancelled_caught:
        raise Refused(400, "gone", f"the form did not come within {_BODY_SECONDS}s")
    return bytes(body)


def _refused(problem: Refused) -> Response:
    headers = {"Retry-After": "5"} if problem.status == 429 else {}
    if problem.status == 405:
        headers["Allow"] = "GET, POST"
    return Response(problem.body(), problem.status, headers, media_type="application/json")


def _success(
    data: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        json.dumps({"status": "success", "data": data}).encode() + b"\n", status, headers, "application/json"
    )


class _Everything:
    """All paths and methods come to one place, undecoded: a router in between would tidy them up."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)


def application(gate: Gate) -> Starlette:
    async def elsewhere(request: Request, error: Exception) -> Response:
        return _refused(_no_path())

    # `*` and other targets that begin with no slash match no route.
    return Starlette(
        routes=[Route("/{path:path}", _Everything(gate.answer))], exception_handlers={404: elsewhere}
    )
