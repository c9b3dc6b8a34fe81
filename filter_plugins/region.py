"""Filters of role region: where its agent sends to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# To a target that is aggregated goes what was made of the samples, and not they themselves.
_FLAGS = (
    ("url", lambda target: target["url"]),
    ("forcePromProto", lambda target: _word(target["engine"] == "prometheus")),
    ("forceVMProto", lambda target: _word(target["engine"] == "victoriametrics")),
    ("urlRelabelConfig", lambda target: target["relabel"]),
    ("streamAggr.config", lambda target: target["aggregate"]),
    ("streamAggr.dropInput", lambda target: _word(bool(target["aggregate"]))),
)


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def targets(listed: Iterable[Mapping[str, Any]]) -> list[str]:
    """vmagent's flags for [{url, relabel, aggregate, engine}]: the n-th value of each is the n-th target."""
    known = list(listed)
    return [f"-remoteWrite.{name}=" + ",".join(str(say(target)) for target in known) for name, say in _FLAGS]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"sideband_region_targets": targets}
