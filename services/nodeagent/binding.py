"""NVIDIA's own binding, and no other of its name (case 38).

Three packages install a module `pynvml`, and the wrong one answers with texts or misses symbols. Ours
travels in this archive under a package of our own, so that no search path can lend another; its bytes are
compared with what was built all the same.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
from typing import Any

PACKAGE = "sideband_vendor"
# The archive, or the directory, that this module itself came from.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class BindingError(Exception):
    """There is no binding that can be trusted; the text says why."""


def load(root: str = _ROOT) -> Any:
    """The binding. It is executed after its bytes have been found to be those that were built in."""
    try:
        vendored = importlib.import_module(PACKAGE)
        spec = importlib.util.find_spec(f"{PACKAGE}.pynvml")
    except ImportError as error:
        raise BindingError(f"nvidia-ml-py is not in this program: {error}") from None
    if spec is None or spec.origin is None or not spec.origin.startswith(root + os.sep):
        raise BindingError(f"the binding comes from elsewhere (got {spec and spec.origin}, not below {root})")
    data = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    found = hashlib.sha256(data).hexdigest()
    if found != vendored.SHA256:
        raise BindingError(f"{spec.origin}: not what was built in (got {found}, not {vendored.SHA256})")
    return importlib.import_module(f"{PACKAGE}.pynvml")
