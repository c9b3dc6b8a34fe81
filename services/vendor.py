"""NVIDIA's binding for the programs that read GPUs: of its one module the parts that they use, and its
licence.

The whole module is 330 kB of definitions, of which a node uses a thirteenth part; compiling the rest would
cost every node 13 MB for good, and every visit to it the transfer. What is kept is kept letter by letter.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.metadata
import re
from pathlib import Path

DISTRIBUTION, MODULE = "nvidia-ml-py", "pynvml.py"
_USED = re.compile(r"\b(?:nvml[A-Z]\w+|nvmlMemory_v2|NVML_[A-Z0-9_]+|NVMLError)\b")
# Found by their beginning at run time, when the binding makes an exception of each.
_DYNAMIC = "NVML_ERROR_"


class BuildError(Exception):
    """The programs cannot be built here; the text says why."""


def module() -> tuple[str, bytes]:
    """The distribution's version, and its module. Three distributions install a module of this name, over
    each other: the hash that ours has on record decides (case 38)."""
    try:
        found = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise BuildError(f"{DISTRIBUTION} is not installed; hint: make venv") from None
    entry = next((one for one in found.files or () if str(one) == MODULE), None)
    if entry is None or entry.hash is None:
        raise BuildError(f"{DISTRIBUTION} {found.version} lists no {MODULE}; hint: make venv")
    data = Path(str(found.locate_file(entry))).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.new(entry.hash.mode, data).digest()).decode().rstrip("=")
    if digest != entry.hash.value:
        raise BuildError(
            f"{MODULE} is not that of {DISTRIBUTION} {found.version}; hint: remove .venv, make venv"
        )
    return found.version, data


def used(sources: list[str]) -> set[str]:
    """The binding's names in our own sources."""
    return {name for source in sources for name in _USED.findall(source)}


def reduced(source: str, wanted: set[str]) -> str:
    """The module without the definitions that nothing wanted leads to; what defines nothing stays."""
    statements = [(one, _defines(one), _names(one)) for one in ast.parse(source).body]
    missing = wanted - {name for _, defined, _ in statements for name in defined or ()}
    if missing:
        raise BuildError(f"{MODULE} has no {', '.join(sorted(missing))}")
    needed, kept = set(wanted), set()
    while True:
        more = {
            number
            for number, (_, defined, _) in enumerate(statements)
            if number not in kept
            and (defined is None or defined & needed or any(name.startswith(_DYNAMIC) for name in defined))
        }
        if not more:
            break
        kept |= more
        needed |= {name for number in more for name in statements[number][2]}
    lines = source.splitlines(keepends=True)
    text = lines[: statements[0][0].lineno - 1]  # the licence
    for number in sorted(kept):
        statement = statements[number][0]
        first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", []))])
        text += lines[first - 1 : statement.end_lineno]
    return "".join(text)


def _defines(statement: ast.stmt) -> set[str] | None:
    """The names that a statement defines; None where it does something else."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in _names(target)}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return set()  # a text that stands there as a comment
    return None


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def members(sources: list[str]) -> dict[str, bytes]:
    """Under a package of our own, which no search path can provide instead."""
    version, data = module()
    text = reduced(data.decode("utf-8"), used(sources)).encode()
    about = f'VERSION = "{version}"\nSHA256 = "{hashlib.sha256(text).hexdigest()}"\n'
    return {
        "sideband_vendor/__init__.py": f'"""Of {DISTRIBUTION}: what is used."""\n\n{about}'.encode(),
        f"sideband_vendor/{MODULE}": text,
    }
