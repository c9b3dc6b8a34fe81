"""For whoever runs querygate, on a loopback port of its own: is it ready, and what did it do."""

from __future__ import annotations

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .app import Gate
from .counters import Labels


def application(gate: Gate) -> Starlette:
    async def ready(_: Request) -> Response:
        """Ready is what we need ourselves; a store that is away is its own alert, not a reason to go too."""
        try:
            await anyio.to_thread.run_sync(gate.audit.open)
            await anyio.to_thread.run_sync(gate.jobs.counts)
        except Exception as error:  # whatever keeps us from working is the answer
            return PlainTextResponse(f"not ready: {error}\n", 503)
        return PlainTextResponse("ready\n")

    async def metrics(_: Request) -> Response:
        counts = await anyio.to_thread.run_sync(gate.jobs.counts)
        gauges: dict[tuple[str, Labels], float] = {
            ("sideband_querygate_degraded", ()): float(gate.degraded.now()),
            ("sideband_querygate_degraded_file_damaged", ()): float(gate.degraded.damaged),
        }
        for state in ("queued", "running", "done", "failed"):
            gauges[("sideband_querygate_jobs", (("state", state),))] = counts.get(state, 0)
        for identity in gate.config.identities:
            labels = (("identity", identity),)
            gauges[("sideband_querygate_running", labels)] = gate.slots.running[identity]
            gauges[("sideband_querygate_waiting", labels)] = gate.slots.waiting[identity]
        return PlainTextResponse(gate.counters.text(gauges), media_type="text/plain; version=0.0.4")

    return Starlette(routes=[Route("/-/ready", ready), Route("/metrics", metrics)])
