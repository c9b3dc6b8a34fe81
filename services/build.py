"""Build the programs for hosts: one reproducible archive each, so that unchanged sources change no host.

    python services/build.py [DIRECTORY]     # services/build

Prints what changed, one name a line. Times, order and permissions are fixed: equal sources give equal bytes.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:  # run by its path
    sys.path.insert(0, str(HERE.parent))

from services import vendor

LIBRARY = HERE.parent / "module_utils" / "sideband"
SHEBANG = b"#!/usr/bin/python3 -I\n"  # no variable and no directory of a caller may lend it a module
LAUNCH = "import sys\n\n{packages}from {module} import main\n\nsys.exit(main({arguments}))\n"
# Last on the path: what is packed in here, and Python's own, come first.
PATH = "sys.path.append({directory!r})\n\n"

# program: its entry, the services packages in it, and the modules of the library that it shares
PROGRAMS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "nodeagent": ("services.nodeagent.__main__", "", ("nodeagent", "tail"), ("documents",)),
    "level": ("services.level.issue", "sys.argv[1:]", ("level",), ("documents",)),
    "accept": ("services.level.accept", "sys.argv[1:]", ("level",), ("documents",)),
    "curves": ("services.curves.program", "sys.argv[1:]", ("curves",), ()),
    "keeper": ("services.keeper.program", "sys.argv[1:]", ("keeper",), ()),
    "logexport": ("services.logexport.program", "sys.argv[1:]", ("logexport",), ()),
    "spool": ("services.spool.program", "sys.argv[1:]", ("spool",), ()),
    "notifier": ("services.notifier.__main__", "sys.argv[1:]", ("notifier",), ()),
    "querygate": ("services.querygate.__main__", "sys.argv[1:]", ("querygate",), ()),
    "archiver": ("services.archiver.__main__", "sys.argv[1:]", ("archiver",), ()),
}


# program: where its host has the Python packages that it needs (services/wheels.py)
PACKAGES: dict[str, str] = {
    "querygate": "/opt/sideband/querygate_packages",
    "archiver": "/opt/sideband/archiver_packages",
}

# programs that read GPUs, and their modules that name NVIDIA's binding
READS_GPUS: dict[str, tuple[str, ...]] = {"nodeagent": ("nodeagent/gpus.py", "nodeagent/gpu_fields.py")}


def members(program: str) -> dict[str, bytes]:
    module, arguments, packages, shared = PROGRAMS[program]
    room = PATH.format(directory=PACKAGES[program]) if program in PACKAGES else ""
    found = {
        "__main__.py": LAUNCH.format(module=module, arguments=arguments, packages=room).encode(),
        "services/__init__.py": (HERE / "__init__.py").read_bytes(),
        "services/configuration.py": (HERE / "configuration.py").read_bytes(),
        "services/durable.py": (HERE / "durable.py").read_bytes(),
        "services/relp.py": (HERE / "relp.py").read_bytes(),
        "sideband/__init__.py": b"",
    }
    for package in packages:
        for path in sorted((HERE / package).glob("*.py")):
            found[f"services/{package}/{path.name}"] = path.read_bytes()
    if "curves" in packages:
        found["services/curves/rules.json"] = _rules()
    for name in shared:
        found[f"sideband/{name}.py"] = (LIBRARY / f"{name}.py").read_bytes()
    if program in READS_GPUS:
        found.update(vendor.members([(HERE / path).read_text("utf-8") for path in READS_GPUS[program]]))
    return found


def _rules() -> bytes:
    from services import rulebook  # it reads YAML, which only the controller has

    return json.dumps(rulebook.compiled(), ensure_ascii=False, sort_keys=True, indent=1).encode()


def archive(program: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in sorted(members(program).items()):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            file.writestr(entry, data)
    return SHEBANG + buffer.getvalue()


def build(directory: Path) -> list[str]:
    """Bring every archive up to date; the names of those that changed."""
    directory.mkdir(parents=True, exist_ok=True)
    changed = []
    for program in PROGRAMS:
        path, data = directory / f"{program}.pyz", archive(program)
        if not path.exists() or path.read_bytes() != data:
            candidate = path.with_suffix(".new")
            candidate.write_bytes(data)
            candidate.chmod(0o755)
            candidate.replace(path)
            changed.append(program)
    return changed


if __name__ == "__main__":
    try:
        for name in build(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "build"):
            print(name)
    except vendor.BuildError as problem:
        sys.exit(f"error: {problem}")
