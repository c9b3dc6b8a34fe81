"""Where a notification goes: to a receiver of the contract, or to the channel of the tenant that it is
about."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Mapping

from services import durable
from services.notifier.config import Receiver
from services.notifier.deliver import Channel, Later, Never
from services.notifier.message import Notification
from services.notifier.wishes import Wish

TENANTS = "tenants"
_SECRET_BYTES = 4_096
_CHANNELS = 256  # of tenants, kept for their pace


class Desk:
    def __init__(
        self,
        receivers: Mapping[str, Receiver],
        wishes: Callable[[], Mapping[str, Wish]],
        say: Callable[[str], None],
        channel: Callable[[str, Callable[[], str]], Channel] = Channel,
    ) -> None:
        self._wishes, self._say, self._channel = wishes, say, channel
        self._receivers = receivers
        self._own = {name: channel(one.kind, _secret(one)) for name, one in receivers.items()}
        self._tenants: collections.OrderedDict[tuple[str, str], Channel] = collections.OrderedDict()
        self._lock = threading.Lock()
        # (integration, receiver) -> count; there from the start, so that the first failure is an increase
        keys = [(one.kind, name) for name, one in receivers.items()] + [("tenant", "")]
        self.sent = collections.Counter(dict.fromkeys(keys, 0))
        self.failed = collections.Counter(dict.fromkeys(keys, 0))

    @property
    def names(self) -> set[str]:
        return {*self._own, TENANTS}

    def take(self, name: str, notification: Notification) -> None:
        """Raises Later where Alertmanager should try again, Never where it need not."""
        if name == TENANTS:
            self._to_tenants(notification)
        else:
            self._tell((self._receivers[name].kind, name), self._own[name], notification)

    def _tell(self, key: tuple[str, str], channel: Channel, notification: Notification) -> None:
        try:
            count = channel.deliver(notification)
        except (Later, Never) as problem:
            with self._lock:
                self.failed[key] += 1
            self._say(f"{' '.join(key)}: {problem}")
            raise
        with self._lock:
            self.sent[key] += count

    def _to_tenants(self, notification: Notification) -> None:
        wishes, later = self._wishes(), None
        for tenant in sorted({one.tenant for one in notification.alerts}):
            wish = wishes.get(tenant)
            if wish is None or wish.channel is None:
                continue
            alerts = tuple(
                one for one in notification.alerts if one.tenant == tenant and one.name not in wish.quiet
            )
            if not alerts:
                continue
            try:
                self._tell(("tenant", ""), self._of(wish.channel), Notification(notification.site, alerts))
            except Later as problem:
                later = problem
            except Never:
                pass  # said and counted; a tenant's wrong URL is the tenant's to mend
        if later is not None:
            raise later

    def _of(self, channel: tuple[str, str]) -> Channel:
        with self._lock:
            if channel not in self._tenants:
                self._tenants[channel] = self._channel(channel[0], lambda: channel[1])
                while len(self._tenants) > _CHANNELS:
                    self._tenants.popitem(last=False)
            return self._tenants[channel]


def _secret(receiver: Receiver) -> Callable[[], str]:
    """Read each time, so that a changed secret needs no restart."""

    def url() -> str:
        raw = durable.read(receiver.secret_file, _SECRET_BYTES)
        return (raw or b"").decode("utf-8", "replace").strip()

    return url
