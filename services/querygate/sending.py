"""From an answer to bytes on the wire, piece by piece."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .answer import Answer, Stored


class Sent(Response):
    """A response that is read while it is sent, and closed after it however that ends."""

    def __init__(self, answer: Answer | Stored) -> None:
        super().__init__(None, media_type=answer.content_type)
        self.answer = answer
        self.headers["Content-Length"] = str(answer.size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            for piece in self.answer.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.answer.close()


def size(response: Response) -> int:
    return response.answer.size if isinstance(response, Sent) else len(response.body)


def close(response: Response) -> None:
    """For one that will not be sent."""
    if isinstance(response, Sent):
        response.answer.close()
