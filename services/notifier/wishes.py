"""What tenants wish for (N2): thresholds, a channel of their own, alerts that it need not hear of.

They set it at the gateway by their certificate; here it is asked for, checked once more, and kept on disk
for when nobody answers. A channel leads to a chat's own host only: else a tenant could make this host
knock anywhere."""

from __future__ import annotations

import contextlib
import json
import math
import re
import ssl
import threading
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from services import durable
from services.notifier.config import Wishes
from services.notifier.deliver import reason
from services.notifier.forms import FORMS

_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_ALERT = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


@dataclass(frozen=True)
class Wish:
    thresholds: Mapping[str, float] = field(default_factory=dict)
    channel: tuple[str, str] | None = None  # (kind, URL)
    quiet: frozenset[str] = frozenset()


def parse(value: Any, config: Wishes) -> dict[str, Wish]:
    """Tenant -> wish; what is not right in one is left out of it, and nothing else."""
    found = {}
    if isinstance(value, dict):
        for tenant, given in value.items():
            if isinstance(tenant, str) and _NAME.fullmatch(tenant) and isinstance(given, dict):
                found[tenant] = _wish(given, config)
    return found


def _wish(given: Mapping[str, Any], config: Wishes) -> Wish:
    wanted, quiet = given.get("thresholds"), given.get("quiet")
    thresholds = {
        name: float(number)
        for name, number in (wanted.items() if isinstance(wanted, dict) else ())
        if name in config.tunable
        and isinstance(number, (int, float))
        and not isinstance(number, bool)
        and math.isfinite(number)
    }
    names = [one for one in quiet if isinstance(one, str)] if isinstance(quiet, list) else []
    return Wish(
        thresholds,
        _channel(given.get("channel"), config.hosts),
        frozenset(one for one in names if _ALERT.fullmatch(one)),
    )


def _channel(given: Any, hosts: tuple[str, ...]) -> tuple[str, str] | None:
    if not isinstance(given, dict) or given.get("kind") not in FORMS or not isinstance(given.get("url"), str):
        return None
    url: str = given["url"]
    try:
        parts = urlsplit(url)
        place = parts.netloc
    except ValueError:
        return None
    # `hosts` are spelt as they stand in a URL; plain http only where the site says so with the scheme.
    if (
        re.search(r"[\s\x00-\x1f\\]", url)
        or (place if parts.scheme == "https" else f"{parts.scheme}://{place}") not in hosts
    ):
        return None
    return str(given["kind"]), url


def fetch(config: Wishes) -> bytes:
    context = ssl.create_default_context(cafile=config.ca)
    context.load_cert_chain(config.certificate, config.key)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(config.url, timeout=10) as answer:
        raw: bytes = answer.read(_BYTES + 1)
    if len(raw) > _BYTES:
        raise ValueError("longer than it can be")
    return raw


class Book:
    """The wishes in force."""

    def __init__(
        self, config: Wishes, say: Callable[[str], None], fetch: Callable[[Wishes], bytes] = fetch
    ) -> None:
        self._config, self._say, self._fetch = config, say, fetch
        self._well = True
        self._raw = durable.read(config.state, _BYTES) or b"{}"
        self.wishes: Mapping[str, Wish] = {}
        with contextlib.suppress(ValueError, RecursionError):
            self.wishes = parse(json.loads(self._raw), config)

    def refresh(self) -> None:
        try:
            value = json.loads(self._fetch(self._config))["data"]["wishes"]
            raw = json.dumps(value, sort_keys=True).encode()
            wishes = parse(value, self._config)
        except Exception as error:
            # Whatever it is, what was heard last stays in force.
            if self._well:
                self._say(f"wishes: {reason(error)}; those heard last stay in force")
            self._well = False
            return
        self._well = True
        if raw != self._raw:
            with contextlib.suppress(OSError):
                durable.write(self._config.state, raw, 0o600)
            self._raw, self.wishes = raw, wishes

    def run(self, stop: threading.Event) -> None:
        while True:
            self.refresh()
            if stop.wait(self._config.seconds):
                return

    def series(self) -> list[str]:
        return [
            f'sideband_alert_wish{{tenant="{tenant}",threshold="{name}"}} {number!r}'
            for tenant, wish in sorted(self.wishes.items())
            for name, number in sorted(wish.thresholds.items())
        ]
