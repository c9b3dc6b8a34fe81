"""Python packages for a program on hosts: wheels by their locked hashes, as one tree for several Pythons.

    python services/wheels.py [DIRECTORY [COMPONENT ...]]     # .cache/mirror, all

A host unpacks the tree and installs nothing. Compiled files of several Pythons and machines lie side by side:
each carries its own tag in its name, and an interpreter looks for its own alone. Plain files must agree.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FORMAT = 1  # another way to pack is another archive
# Of a wheel's own record hosts need the licence and the version; the rest says how pip installed it.
_KEPT = ("METADATA", "LICENSE", "LICENCE", "NOTICE", "COPYING", "AUTHORS")


class WheelError(Exception):
    """The tree cannot be made; the text says why and what to do."""


@dataclass(frozen=True)
class Component:
    """What one program needs, and for which Pythons and machines."""

    name: str
    requirements: Path  # exact versions with hashes (tools/lock writes it)
    direct: tuple[str, ...]  # what the program imports or runs; the rest is what these need
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    without: tuple[str, ...] = ()  # what somebody declares to need and our use of it does not

    def digest(self) -> str:
        parts = [FORMAT, self.requirements.read_text("utf-8"), self.pythons, self.platforms]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# The Pythons of the systems that hosts may run, as far as the packages themselves support them.
COMPONENTS = (
    Component(
        "querygate_packages",
        HERE / "querygate/requirements.txt",
        ("httpx", "huey", "promql-parser", "starlette", "uvicorn"),
        ("3.11", "3.12", "3.13"),
        ("manylinux2014_x86_64",),
    ),
    Component(
        "archiver_packages",
        HERE / "archiver/requirements.txt",
        ("botocore", "duckdb", "dvc", "dvc-s3"),
        ("3.11", "3.12", "3.13"),
        ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_26_x86_64", "manylinux2014_x86_64"),
        # For DVC's experiments and repositories of its own: it gets files to add and to push, and no more.
        ("antlr4-python3-runtime", "asyncssh", "hydra-core", "omegaconf", "pygit2", "setuptools"),
    ),
)


def pip(component: Component, python: str, into: Path, *what: str) -> list[Path]:
    """`pip download` for another Python than ours; wheels alone, since nothing is built here."""
    platforms = [word for name in component.platforms for word in ("--platform", name)]
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms,
            "--dest", str(into), *what,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = " ".join(line for line in done.stderr.splitlines() if line.startswith("ERROR"))
        raise WheelError(
            f"{component.name}: no wheels for Python {python} ({said[:400] or done.stderr[-400:]}); "
            "hint: see that pip reaches a package index, and run tools/lock if the lock is another"
        )
    return sorted(into.glob("*.whl"))


def tree(wheels: Sequence[Path]) -> dict[str, bytes]:
    """All files of all wheels. Raises WheelError where two say different things at one place."""
    found: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in filter(wanted, archive.namelist()):
                data = archive.read(name)
                if found.setdefault(name, data) != data:
                    raise WheelError(f"{wheel.name}: {name} differs from that of another wheel")
    return found


def wanted(name: str) -> bool:
    first, _, rest = name.partition("/")
    if name.endswith("/") or name.startswith("/") or ".." in name.split("/") or first.endswith(".data"):
        return False
    return not first.endswith(".dist-info") or rest.split("/")[-1].upper().startswith(_KEPT)


def pack(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    """A tar.gz without anything of here and now: fixed order, times, owners and modes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=4) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), mode
            tar.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


def ensure(
    directory: Path, before: Mapping[str, Any], components: Sequence[Component] = ()
) -> dict[str, Any]:
    """The entries of these components, or of all; their archives in `directory`, where there is none yet."""
    found = {}
    for component in components or COMPONENTS:
        key = component.digest()
        there = before.get(component.name, {})
        if there.get("made_from") == key and (directory / str(there.get("file"))).is_file():
            found[component.name] = there
            continue
        with tempfile.TemporaryDirectory() as place:
            data = pack(tree(locked(component, Path(place))))
        version = key[:12]
        file = f"{component.name}-{version}.tar.gz"
        (directory / f".{file}").write_bytes(data)
        (directory / f".{file}").replace(directory / file)
        sha256 = hashlib.sha256(data).hexdigest()
        found[component.name] = {
            "version": version, "file": file, "sha256": sha256, "size": len(data), "made_from": key
        }  # fmt: skip
    return found


def locked(component: Component, place: Path) -> list[Path]:
    """The wheels of the requirements file: all for the first Python, for others those that differ by it."""
    text = component.requirements.read_text("utf-8")
    entries = [entry for entry in re.split(r"\n(?=\S)", text.strip()) if "--hash=" in entry]
    found: list[Path] = []
    for number, python in enumerate(component.pythons):
        chosen = [entry for entry in entries if not number or entry.count("--hash=") > 1]
        list_of = place / f"requirements-{python}.txt"
        list_of.write_text("\n".join(chosen) + "\n", encoding="utf-8")
        found = pip(component, python, place, "--no-deps", "--require-hashes", "-r", str(list_of))
    return found


def closure(component: Component, python: str) -> list[str]:
    """All that a component needs on a Python, as pins of what is installed here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    pins: dict[str, str] = {}
    left = [Requirement(one) for one in component.direct]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        wanted = left.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if name in component.without or (name, extras) in seen:
            continue
        seen.add((name, extras))
        found = importlib.metadata.distribution(name)
        pins[name] = f"{name}=={found.version}"
        for text in found.requires or ():
            one = Requirement(text)
            fits = [{**environment, "extra": extra} for extra in ("", *extras)]
            if one.marker is None or any(one.marker.evaluate(each) for each in fits):
                left.append(one)
    return sorted(pins.values())


def lock(component: Component) -> str:
    """The text of a requirements file: all that it needs, with the hash of the wheel for each Python."""
    hashes: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as place:
        for python in component.pythons:
            pins = {pin.partition("==")[0]: pin for pin in closure(component, python)}
            for wheel in pip(component, python, Path(place, python), "--no-deps", *pins.values()):
                name = re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
                digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
                hashes.setdefault(pins[name], set()).add(digest)
    lines = ["# Written by tools/lock: what runs on hosts, exactly."]
    for key, values in sorted(hashes.items()):
        lines.append(" \\\n    ".join([key, *(f"--hash=sha256:{value}" for value in sorted(values))]))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Into a mirror's directory: archives, and their entries in its manifest."""
    mirror = Path(arguments[0]) if arguments else HERE.parent / ".cache/mirror"
    known = {one.name: one for one in COMPONENTS}
    unknown = [name for name in arguments[1:] if name not in known]
    if unknown:
        print(f"error: {unknown[0]} is none of {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in arguments[1:]]
    (mirror / "archives").mkdir(parents=True, exist_ok=True)
    path = mirror / "manifest.json"
    manifest = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    held = manifest.setdefault("archives", {})
    try:
        found = ensure(mirror / "archives", held, chosen)
    except WheelError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if any(held.get(name) != entry for name, entry in found.items()):
        held.update(found)
        path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
