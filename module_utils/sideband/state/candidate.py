"""Check candidates before anything is written.

A daemon's own check (`haproxy -c -f …`) reads more than one file: certificates, maps, other snippets, which
on a first run do not exist yet. So the checks run in a mount namespace of their own, where overlays show
every wanted file at its real path; the host is not touched, and the namespace vanishes with the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import stat
import traceback
from collections.abc import Sequence
from typing import Any

from .paths import Directory, File, Item, Link
from .system import StateError, System

CLONE_NEWNS = 0x00020000
# Where the private tmpfs goes: must exist on any host, and nothing that a check reads may be below.
MOUNT_POINTS = ("/mnt", "/media", "/srv", "/tmp")

Outcome = tuple[str, str]  # path, problem ("" = passed, "absent: PROGRAM" = could not run)


def checks(items: Sequence[Item]) -> list[File]:
    return [item for item in items if isinstance(item, File) and item.check]


def run_checks(
    system: System, items: Sequence[Item], due: Sequence[File], archives: dict[str, str]
) -> list[Outcome]:
    """Run the checks of `due` in a world that holds `items`; `archives` maps link paths to unpacked trees."""
    if not due:
        return []
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer: Any = _in_private_world(system, items, due, archives)
        except StateError as problem:
            answer = {"error": str(problem)}
        except OSError as problem:
            answer = {"error": f"{problem.filename or 'the system'}: {problem.strerror}"}
        except BaseException as problem:
            place = traceback.extract_tb(problem.__traceback__)[-1]
            answer = {"error": f"a fault of sideband's own, {type(problem).__name__} in {place.name}"}
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"error": "the checking process died"}
    if isinstance(answer, dict):
        raise StateError(f"candidate files could not be staged for their check: {answer['error']}")
    return [(path, problem) for path, problem in answer]


def _in_private_world(
    system: System, items: Sequence[Item], due: Sequence[File], archives: dict[str, str]
) -> list[Outcome]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise StateError(f"unshare: {os.strerror(ctypes.get_errno())}; host_state needs root")
    hint = "candidates are shown to their check through overlayfs"
    system.must(["mount", "--make-rprivate", "/"], hint)
    point = next(place for place in MOUNT_POINTS if os.path.isdir(place))
    system.must(["mount", "-t", "tmpfs", "-o", "mode=0755", "sideband", point], hint)
    for number, base in enumerate(_bases(system, items)):
        upper, work = f"{point}/{number}/upper", f"{point}/{number}/work"
        os.makedirs(upper)
        os.makedirs(work)
        status = os.stat(system.at(base))
        os.chown(upper, status.st_uid, status.st_gid)
        os.chmod(upper, stat.S_IMODE(status.st_mode))
        place = system.at(base)
        system.must(
            [
                "mount",
                "-t",
                "overlay",
                "-o",
                f"lowerdir={place},upperdir={upper},workdir={work}",
                "sideband",
                place,
            ],
            hint,
        )
    for item in items:
        for parent in system.missing_parents(item.path):
            os.mkdir(system.at(parent), 0o755)
        if isinstance(item, File) and item.create and system.exists(item.path):
            continue
        if isinstance(item, Link) and item.path in archives:
            item = Link(item.path, archives[item.path])
        _stage(system, item)
    return [(item.path, _check(system, item)) for item in due]


def _stage(system: System, item: Item) -> None:
    """Owners that do not exist yet stay root's: the check runs as root."""
    if not isinstance(item, Link):
        uid, gid = system.uid(item.owner) or 0, system.gid(item.group) or 0
        if isinstance(item, Directory):
            system.make_directory(item.path, item.mode, uid, gid)
        else:
            system.write(item.path, item.content, item.mode, uid, gid)
    else:
        item.write(system)


def _bases(system: System, items: Sequence[Item]) -> list[str]:
    """The nearest existing directories above the items; one below another on its file system is dropped."""
    found = set()
    for item in items:
        parent = os.path.dirname(item.path)
        while not system.is_directory(parent):
            parent = os.path.dirname(parent)
        found.add(os.path.realpath(system.at(parent)))
    bases: list[str] = []
    for base in sorted(found):
        if not any(
            base.startswith(f"{above.rstrip('/')}/") and os.stat(base).st_dev == os.stat(above).st_dev
            for above in bases
        ):
            bases.append(base)
    prefix = "" if system.root == "/" else os.path.realpath(system.root)
    return [base[len(prefix) :] or "/" for base in bases]


def _check(system: System, item: File) -> str:
    argv = [
        system.at(item.path) if word == "%s" else word.replace("%s", system.at(item.path))
        for word in shlex.split(item.check)
    ]
    result = system.run(argv, timeout=60)
    if result.rc == 127 and ("no such program" in result.err or argv[0] == "env"):
        # `env NAME=value program …` gives a check its environment; what is missing is the program.
        return "absent: " + next((word for word in argv if word != "env" and "=" not in word), argv[0])
    if result.rc != 0:
        said = (result.err + result.out).strip()[-2000:]
        return f"`{' '.join(argv)}` ended with {result.rc}: {said}"
    return ""
