"""A visit to a host that Ansible does not manage: the probe's own modules travel as text over the standard
input of a command that reaches it, and run there by its Python. Nothing is left on that host."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
from collections.abc import Sequence
from typing import Any

Record = dict[str, Any]
# In the order in which they import each other.
ROOMS = ("packets", "probe_facts", "probe_observer", "probe")
BOOT = """
import json, sys, types
rooms, given = json.loads({payload!r})
package = types.ModuleType("sideband")
package.__path__ = []
sys.modules["sideband"] = package
for name, text in rooms:
    module = types.ModuleType("sideband." + name)
    module.__package__ = "sideband"
    sys.modules["sideband." + name] = module
    setattr(package, name, module)
    exec(compile(text, "sideband/" + name + ".py", "exec"), module.__dict__)
print(json.dumps(package.probe.visit(*given)))
"""


def program(phase: str, run: Record, request: Record, directory: str) -> str:
    """The whole visit as one Python program."""
    package = __name__.rpartition(".")[0]
    rooms = [(name, inspect.getsource(importlib.import_module(f"{package}.{name}"))) for name in ROOMS]
    return BOOT.format(payload=json.dumps([rooms, [phase, run, request, directory]]))


def visit(through: Sequence[str], phase: str, run: Record, request: Record, directory: str) -> Record:
    """Like probe.visit, behind a command."""
    done = subprocess.run(
        [*through, "python3", "-"],
        input=program(phase, run, request, directory),
        capture_output=True,
        text=True,
        timeout=float(run["seconds"]) + 60,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{' '.join(through)}: {done.stderr.strip()[-400:] or f'exit {done.returncode}'}")
    found: Record = json.loads(done.stdout)
    return found
