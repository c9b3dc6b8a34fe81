"""One channel: messages at the pace that it takes, each once. Its URL is a secret and is in no line of
ours."""

from __future__ import annotations

import collections
import hashlib
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from services.notifier import forms
from services.notifier.message import Notification, compose

MOST_PARTS = 12  # of one notification: a chat takes 20 messages a minute, and nobody reads more
_PATIENCE_SECONDS = 40.0  # Alertmanager gives a notification its group's interval, at least a minute
_MINUTE = 61.0  # by our clock: the chat's may be a little behind
_ANSWER_BYTES = 65_536
_TIMEOUT_SECONDS = 10.0
_UNFINISHED = 64


class Later(Exception):
    """Not delivered now; the same again may be."""


class Never(Exception):
    """Will not be delivered however often it is tried."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """A redirect would take the message, and its key, elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """(status, answer). Raises OSError; what it says may hold the URL, so show `reason()` only."""
    opener = urllib.request.build_opener(
        _Straight(), urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.status, answer.read(_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_BYTES)


def reason(error: BaseException) -> str:
    """Why, without what was asked: texts of errors may repeat the URL."""
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return reason(error.reason)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


class Channel:
    def __init__(
        self,
        kind: str,
        url: Callable[[], str],
        send: Callable[[str, bytes, dict[str, str]], tuple[int, bytes]] = post,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._form = forms.FORMS[kind]
        self._url, self._send, self._clock, self._sleep = url, send, clock, sleep
        self._lock = threading.Lock()
        self._sent: collections.deque[float] = collections.deque()
        # Parts of a notification that another part of it stopped: told again, they are left out.
        self._unfinished: collections.OrderedDict[str, set[int]] = collections.OrderedDict()

    def deliver(self, notification: Notification) -> int:
        """How many messages it took. Raises Later or Never."""
        parts = compose(notification, self._form.markup, MOST_PARTS)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        with self._lock:
            done = self._unfinished.setdefault(key, set())
            while len(self._unfinished) > _UNFINISHED:
                self._unfinished.popitem(last=False)
            until = self._clock() + _PATIENCE_SECONDS
            try:
                for at, part in enumerate(parts):
                    if at not in done:
                        self._pace(until)
                        self._one(part)
                        done.add(at)
            except Later:
                raise
            except BaseException:
                self._unfinished.pop(key, None)
                raise
            self._unfinished.pop(key, None)
        return len(parts)

    def _pace(self, until: float) -> None:
        """Wait until one more message is within what the chat takes in a minute."""
        while True:
            now = self._clock()
            while self._sent and now - self._sent[0] >= _MINUTE:
                self._sent.popleft()
            if len(self._sent) < self._form.per_minute:
                return
            wait = self._sent[0] + _MINUTE - now
            if now + wait > until:
                raise Later("too many messages for one minute")
            self._sleep(wait)

    def _one(self, part: str) -> None:
        url = self._url()
        if not url.startswith(("http://", "https://")):
            raise Never("its secret is no http or https URL")
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "sideband"}
        self._sent.append(self._clock())
        try:
            status, raw = self._send(url, self._form.body(part), headers)
        except Exception as error:
            # Of any type: a URL that is none fails in many ways, and their texts repeat it.
            raise Later(reason(error)) from None
        outcome, why = self._form.judge(status, raw)
        if outcome == forms.LATER:
            raise Later(why)
        if outcome == forms.NEVER:
            raise Never(why)
