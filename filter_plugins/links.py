"""Filters that hand sideband.links to the roles `planes` and `fabric`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

from sideband.links import fabric_fragment, planes_fragment


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_planes_fragment": planes_fragment,
            "sideband_fabric_fragment": fabric_fragment,
        }
