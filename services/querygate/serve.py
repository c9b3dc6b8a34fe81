"""Answering: two servers on one loop, for the front and for whoever runs this."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat

import uvicorn
from starlette.types import ASGIApp

from . import app, ops
from .config import Config


def listening(address: str) -> socket.socket:
    """A socket that the front alone reaches: of a unix socket, owner and group."""
    if address.startswith("unix:"):
        path = address[5:]
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o117)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    listener.listen(256)
    return listener


class _Server(uvicorn.Server):
    """Two of them share a loop; signals are ours."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def server(application: ASGIApp) -> _Server:
    return _Server(
        uvicorn.Config(
            application, http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, date_header=True, timeout_keep_alive=75,
            h11_max_incomplete_event_size=98304, timeout_graceful_shutdown=5,
        )
    )  # fmt: skip


async def serve(config: Config) -> None:
    gate = app.Gate(config)
    pair = [
        (server(app.application(gate)), listening(config.listen)),
        (server(ops.application(gate)), listening(config.ops_listen)),
    ]
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for one, _ in pair:
            one.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await asyncio.gather(*(one.serve(sockets=[listener]) for one, listener in pair))
    finally:
        await gate.stores.close()
