"""The kept mutual-TLS connection to a rack: policy comes down, the node's own few series go up."""

from __future__ import annotations

import http.client
import os
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from sideband.documents import BUNDLE_BYTES

_BODY_BYTES = (BUNDLE_BYTES + 2) // 3 * 4 + 3  # one more than a bundle in base64: what is longer shows itself


class Unavailable(Exception):
    """The rack gave no usable answer; the text says why."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    etag: str | None


class Rack:
    """One of the node's racks at a time; the next one when it fails."""

    def __init__(
        self, urls: tuple[str, ...], ca: str, certificate: str, key: str, timeout: float = 5.0
    ) -> None:
        self._urls = urls
        self._paths = (ca, certificate, key)
        self._timeout = timeout
        self._index = 0
        self._connection: http.client.HTTPSConnection | None = None
        self._context: ssl.SSLContext | None = None
        self._seen: tuple[tuple[int, int, int], ...] | None = None

    def fetch(self, etag: str | None) -> Answer:
        return self._request("GET", "/policy", None, {"If-None-Match": etag} if etag else {})

    def push(self, text: str) -> None:
        headers = {"Content-Type": "text/plain"}
        answer = self._request("POST", "/api/v1/import/prometheus", text.encode(), headers)
        if answer.status not in (200, 204):
            raise Unavailable(f"{self.url}: push answered {answer.status}")

    @property
    def url(self) -> str:
        return self._urls[self._index]

    def next_rack(self) -> None:
        self.close()
        self._index = (self._index + 1) % len(self._urls)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # -- the certificate ----------------------------------------------------------------------------------

    def _certificates(self) -> ssl.SSLContext:
        """The context for the files as they are now. A pair that is half replaced keeps the one in use."""
        seen = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError as error:
                if self._context is not None:
                    return self._context
                raise Unavailable(f"{path}: {error.strerror}") from None
            seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
        if self._context is not None and tuple(seen) == self._seen:
            return self._context
        ca, certificate, key = self._paths
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError, ValueError) as error:
            if self._context is not None:
                return self._context
            raise Unavailable(f"{ca}, {certificate}, {key}: cannot be used together ({error})") from None
        self._context, self._seen = context, tuple(seen)
        self.close()  # the next request shows the new certificate
        return context

    # -- requests -----------------------------------------------------------------------------------------

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        context = self._certificates()
        kept = self._connection is not None
        try:
            return self._once(context, method, path, body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # A kept connection that the rack had closed meanwhile says nothing about the rack: once more.
            if not kept or isinstance(error, TimeoutError):
                raise Unavailable(f"{self.url}: {_reason(error)}") from None
        try:
            return self._once(context, method, path, body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Unavailable(f"{self.url}: {_reason(error)}") from None

    def _once(
        self, context: ssl.SSLContext, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> Answer:
        if self._connection is None:
            parts = urlsplit(self.url)
            self._connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port or 443, timeout=self._timeout, context=context
            )
        deadline = time.monotonic() + self._timeout
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        read = bytearray()
        while len(read) < _BODY_BYTES:
            if time.monotonic() > deadline:
                raise TimeoutError("the answer dribbles")
            piece = response.read1(_BODY_BYTES - len(read))
            if not piece:
                break
            read += piece
        if len(read) >= _BODY_BYTES:
            self.close()  # more is to come than anybody wants
        elif not response.isclosed():
            response.read()  # takes nothing more; it marks the connection as free for the next request
        return Answer(response.status, bytes(read), response.getheader("ETag"))


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    text = str(error) or type(error).__name__
    return text if isinstance(error, OSError) else f"answers no HTTP ({text[:120]})"
