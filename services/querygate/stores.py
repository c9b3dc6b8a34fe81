"""Asking a store: our own form, no header of the asker, an answer of bounded size, time and memory."""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import time
from typing import Protocol
from urllib.parse import urlencode

import anyio
import httpx

from .answer import LABEL_SETS, NAMES, Answer, Rows
from .config import Tls
from .moments import spoken
from .plan import Count, Fields, Plan
from .refusal import Refused

_COUNTED_SECONDS = 60.0  # series come and go slowly; dashboards ask every few seconds
_COUNTED_MOST = 4096
_SERIES_BYTES = 4096  # of one series' labels, at most, while counting
_SAID = 400  # characters of a store's own words that reach the asker
_SAID_BYTES = 65_536  # of them that are read
# VictoriaMetrics' and VictoriaLogs' own note on who asked them, which is us.
_WHO = re.compile(r'remoteAddr: "[^"]*"(?:, X-Forwarded-For: "[^"]*")?; requestURI: \S*; ')


class Sink(Protocol):
    """Where an answer goes, piece by piece; it may refuse at any of them."""

    def add(self, piece: bytes) -> None: ...


class _Whole:
    """An answer that is passed on. The bound holds for what is read, not for what is promised."""

    def __init__(self, plan: Plan, answer: Answer) -> None:
        self._plan = plan
        self._answer = answer
        between = LABEL_SETS if plan.path.endswith("/series") else NAMES
        self._rows = Rows(between) if plan.items else None

    def add(self, piece: bytes) -> None:
        most = self._plan.bytes
        if self._answer.size + len(piece) > most:
            raise Refused(
                413,
                "bytes",
                f"the answer is larger than {most:,} bytes: aggregate (sum by …), take a longer step, a "
                "shorter range or a smaller limit",
            )
        if self._rows:
            self._rows.add(piece)
        try:
            self._answer.write(piece)
        except OSError as error:
            raise Refused(
                503, "room", f"no room here for the answer ({error.strerror}): ask again later"
            ) from None

    def judge(self) -> None:
        if self._rows is None:
            return
        found = self._rows.found
        if found is None:
            raise Refused(502, "store", "the store's answer is not what it should be: ask again")
        if found > self._plan.items:
            raise Refused(
                422, "series", f"more than {self._plan.items:,} match: add a matcher (match[]), or limit="
            )


class _Counting:
    """An answer of which only the number of its rows matters."""

    def __init__(self, most: int) -> None:
        self.rows = Rows()
        self._left = (most + 1) * _SERIES_BYTES
        self.many = False

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            self.many = True
            raise _Enough
        self.rows.add(piece)


class _Enough(Exception):
    """The rest of an answer need not be read."""


class Stores:
    """One pool of connections for one event loop."""

    def __init__(self, tls: Tls | None, directory: str) -> None:
        self._tls = tls
        self._directory = directory
        self._stamp: tuple[int, ...] = ()
        self._looked = 0.0
        self._client: httpx.AsyncClient | None = None
        self._counted: dict[bytes, tuple[float, int]] = {}

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()

    async def answer(self, plan: Plan) -> Answer:
        """The answer to a plan, or a refusal. One time limit holds for counting and asking together."""
        lines = plan.source == "logs" and plan.path.endswith("/query")
        answer = Answer(self._directory, "application/stream+json" if lines else "application/json")
        try:
            whole = _Whole(plan, answer)
            with anyio.fail_after(plan.seconds + 2):
                if plan.count:
                    await self._count(plan, plan.count)
                await self._ask(plan, plan.path, plan.fields, whole, get=plan.get)
            whole.judge()
        except TimeoutError:
            answer.close()
            raise _late(plan) from None
        except BaseException:
            answer.close()
            raise
        return answer

    async def _count(self, plan: Plan, count: Count) -> None:
        # The same selectors within the same hour count alike.
        hours = tuple(
            (name, str(int(float(value) // 3600)) if name in ("start", "end") else value)
            for name, value in count.fields
        )
        # A question may be long, and many are remembered.
        key = hashlib.blake2b(repr((plan.urls, hours)).encode(), digest_size=16).digest()
        at, found = self._counted.get(key, (0.0, 0))
        if not at or time.monotonic() - at > _COUNTED_SECONDS:
            found = await self._counted_now(plan, count)
            if len(self._counted) >= _COUNTED_MOST:
                self._counted.clear()
            self._counted[key] = (time.monotonic(), found)
        if found > count.limit:
            raise Refused(
                422,
                "series",
                f"the selectors match more than {count.limit:,} series of tier {plan.source}: "
                "another matcher or a shorter range would pass",
            )

    async def _counted_now(self, plan: Plan, count: Count) -> int:
        counting = _Counting(count.limit)
        try:
            await self._ask(plan, "/api/v1/series", count.fields, counting, get=False)
        except Refused as problem:
            if problem.reason == "store" and "exceeds" in problem.text:
                return count.limit + 1
            raise
        if counting.many:
            return count.limit + 1
        if counting.rows.found is None:
            raise Refused(502, "store", "the store's answer is not what it should be: ask again")
        return counting.rows.found

    async def _ask(self, plan: Plan, path: str, fields: Fields, sink: Sink, get: bool) -> None:
        problem: Exception | None = None
        for url in plan.urls:
            try:
                return await self._one(plan, url + path, fields, sink, get)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error  # the next of the same tier holds the same
            except httpx.TimeoutException:
                raise _late(plan) from None
            except (httpx.HTTPError, ssl.SSLError, OSError) as error:
                raise Refused(502, "store", f"{plan.source} broke off ({type(error).__name__})") from None
        raise Refused(
            502, "store", f"{plan.source} is not reachable ({type(problem).__name__}): ask again later"
        )

    async def _one(self, plan: Plan, url: str, fields: Fields, sink: Sink, get: bool) -> None:
        client = self._ready()
        encoded = urlencode(fields)
        request = (
            client.build_request("GET", f"{url}?{encoded}")
            if get
            else client.build_request(
                "POST",
                url,
                content=encoded.encode(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            )
        )
        request.extensions["timeout"] = httpx.Timeout(plan.seconds + 1, connect=3.0).as_dict()
        response = await client.send(request, stream=True)
        try:
            if response.status_code != 200:
                raise _refusal(plan, response.status_code, await _said(response))
            async for piece in response.aiter_bytes():
                sink.add(piece)
        except _Enough:
            pass
        finally:
            await response.aclose()

    def _ready(self) -> httpx.AsyncClient:
        """The client; another one when the certificate on disk is another (case 62)."""
        if self._client is None or (self._tls and time.monotonic() - self._looked > 10):
            self._looked = time.monotonic()
            stamp = _stamps(self._tls)
            if self._client is None or stamp != self._stamp:
                # An old client ends with its last request: it is dropped, not closed under somebody.
                self._client = self._make(self._client)
                self._stamp = stamp
        return self._client

    def _make(self, before: httpx.AsyncClient | None) -> httpx.AsyncClient:
        context: ssl.SSLContext | bool = False
        if self._tls:
            try:
                context = ssl.create_default_context(cafile=self._tls.ca)
                context.load_cert_chain(self._tls.certificate, self._tls.key)
            except (OSError, ssl.SSLError):
                if before is None:
                    raise
                return before  # a pair that is half replaced; looked at again soon
        return httpx.AsyncClient(
            verify=context,
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            headers={"User-Agent": "sideband-querygate", "Accept-Encoding": "identity"},
        )


async def _said(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _SAID_BYTES:
            break
    return bytes(body[:_SAID_BYTES])


def _stamps(tls: Tls | None) -> tuple[int, ...]:
    if tls is None:
        return ()
    try:
        return tuple(os.stat(path).st_mtime_ns for path in (tls.ca, tls.certificate, tls.key))
    except OSError:
        return ()


def _late(plan: Plan) -> Refused:
    return Refused(
        503,
        "late",
        f"no answer within {spoken(plan.seconds)}: fewer series, a shorter range or a longer step would pass",
    )


def _refusal(plan: Plan, status: int, body: bytes) -> Refused:
    """A store's words on a question are for the asker; on its own troubles they are not."""
    said = ""
    try:
        said = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        said = body.decode("utf-8", "replace")
    said = _WHO.sub("", " ".join(said.split()))[:_SAID]
    if "timeout" in said or "deadline" in said:
        return _late(plan)
    if status in (400, 422):
        return Refused(422, "store", f"{plan.source}: {said or 'refused'}")
    if status in (429, 503):
        return Refused(429, "store", f"{plan.source} is busy: ask again in some seconds")
    return Refused(502, "store", f"{plan.source} answered {status}: ask again later")
