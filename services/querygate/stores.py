"""Asking a store: our own form, no header of the asker, an answer of bounded size and time."""

from __future__ import annotations

import json
import os
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlencode

import anyio
import httpx

from .config import Tls
from .moments import spoken
from .plan import Count, Fields, Plan
from .refusal import Refused

_COUNTED_SECONDS = 60.0  # series come and go slowly; dashboards ask every few seconds
_COUNTED_MOST = 4096
_SERIES_BYTES = 4096  # of one series' labels, at most, while counting
_SAID = 400  # characters of a store's own words that reach the asker


@dataclass(frozen=True)
class Answer:
    body: bytes
    content_type: str


class Stores:
    """One pool of connections for one event loop."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._stamp: tuple[int, ...] = ()
        self._looked = 0.0
        self._client: httpx.AsyncClient | None = None
        self._counted: dict[tuple[tuple[str, ...], Fields], tuple[float, int]] = {}

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()

    async def answer(self, plan: Plan) -> Answer:
        """The answer to a plan, or a refusal. One time limit holds for counting and asking together."""
        try:
            with anyio.fail_after(plan.seconds + 2):
                if plan.count:
                    await self._count(plan, plan.count)
                answer = await self._ask(plan, plan.path, plan.fields, plan.bytes, get=plan.get)
        except TimeoutError:
            raise _late(plan) from None
        if plan.items:
            found = len(_data(answer.body))
            if found > plan.items:
                raise Refused(
                    422, "series", f"more than {plan.items:,} series match: add a matcher, or limit="
                )
        return answer

    async def _count(self, plan: Plan, count: Count) -> None:
        # The same selectors within the same hour count alike.
        hours = tuple(
            (name, str(int(float(value) // 3600)) if name in ("start", "end") else value)
            for name, value in count.fields
        )
        key = (plan.urls, hours)
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
        try:
            answer = await self._ask(
                plan, "/api/v1/series", count.fields, (count.limit + 1) * _SERIES_BYTES, get=False
            )
        except Refused as problem:
            if problem.reason == "bytes" or (problem.reason == "store" and "exceeds" in problem.text):
                return count.limit + 1
            raise
        return len(_data(answer.body))

    async def _ask(self, plan: Plan, path: str, fields: Fields, most: int, get: bool) -> Answer:
        problem: Exception | None = None
        for url in plan.urls:
            try:
                return await self._one(plan, url + path, fields, most, get)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error  # the next of the same tier holds the same
            except httpx.TimeoutException:
                raise _late(plan) from None
            except (httpx.HTTPError, ssl.SSLError, OSError) as error:
                raise Refused(502, "store", f"{plan.source} broke off ({type(error).__name__})") from None
        raise Refused(
            502, "store", f"{plan.source} is not reachable ({type(problem).__name__}): ask again later"
        )

    async def _one(self, plan: Plan, url: str, fields: Fields, most: int, get: bool) -> Answer:
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
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > most:
                    raise Refused(
                        413,
                        "bytes",
                        f"the answer is larger than {most:,} bytes: aggregate (sum by …), take a longer "
                        "step, a shorter range or a smaller limit",
                    )
        finally:
            await response.aclose()
        if response.status_code != 200:
            raise _refusal(plan, response.status_code, bytes(body))
        logs = plan.source == "logs" and path_is_lines(plan.path)
        return Answer(bytes(body), "application/stream+json" if logs else "application/json")

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


def path_is_lines(path: str) -> bool:
    return path.endswith("/query")


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


def _data(body: bytes) -> list[object]:
    try:
        data = json.loads(body)["data"]
    except (ValueError, KeyError, TypeError):
        data = None
    if not isinstance(data, list):
        raise Refused(502, "store", "the store's answer is not what it should be: ask again")
    return data


def _refusal(plan: Plan, status: int, body: bytes) -> Refused:
    """A store's words on a question are for the asker; on its own troubles they are not."""
    said = ""
    try:
        said = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        said = body.decode("utf-8", "replace")
    said = " ".join(said.split())[:_SAID]
    if "timeout" in said or "deadline" in said:
        return _late(plan)
    if status in (400, 422):
        return Refused(422, "store", f"{plan.source}: {said or 'refused'}")
    if status in (429, 503):
        return Refused(429, "store", f"{plan.source} is busy: ask again in some seconds")
    return Refused(502, "store", f"{plan.source} answered {status}: ask again later")
