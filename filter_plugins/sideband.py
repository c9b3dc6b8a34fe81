"""Filters that hand the compilers of module_utils/sideband to plays and templates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "module_utils"))

from sideband.contract import compile_site


def sideband_compile(hostvars: Any, groups: Any) -> Any:
    """The site's model from the whole inventory: `hostvars | sideband_compile(groups)`."""
    return compile_site(hostvars, groups)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"sideband_compile": sideband_compile}
