"""Pack this package as a zipapp: the same code that applied a generation can undo it without Ansible."""

from __future__ import annotations

import io
import pkgutil
import zipfile

from . import (  # noqa: F401  # named so that Ansible ships every part with the module
    archives,
    candidate,
    change,
    engine,
    fragment,
    given,
    guard,
    netfilter,
    network,
    packages,
    paths,
    planner,
    record,
    recovery,
    rivals,
    services,
    shaping,
    system,
    units,
)

MODULES = (
    "__init__",
    "archives",
    "candidate",
    "change",
    "engine",
    "fragment",
    "given",
    "guard",
    "netfilter",
    "network",
    "packages",
    "paths",
    "planner",
    "record",
    "recovery",
    "rivals",
    "services",
    "shaping",
    "system",
    "units",
)
MAIN = """\
import sys

from sideband.state.recovery import main

sys.exit(main(sys.argv[1:]))
"""
# Zip's earliest date: the same sources give the same bytes on every host.
DATE = (1980, 1, 1, 0, 0, 0)


def build() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, DATE), data)

        add("__main__.py", MAIN.encode())
        add("sideband/__init__.py", b"")
        for name in MODULES:
            data = pkgutil.get_data(__package__, f"{name}.py")
            if data is None:
                raise ImportError(f"the source of {__package__}.{name} cannot be read")
            add(f"sideband/state/{name}.py", data)
    return buffer.getvalue()
