"""Archives beside the package mirror: `.cache/mirror/archives/`, one per component of lab/archives.yml,
for hosts whose system has no package of it, and the Python packages of programs (services/wheels.py). Packed
from the mirror's own packages and from locked wheels; equal ones give equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from services import wheels
from services.wheels import pack

from .paths import LAB
from .say import LabError, line, run

SUITE = "archives"
FORMAT = 1  # another way to pack is another archive
Manifest = dict[str, dict[str, dict[str, Any]]]


def wanted(path: Path = LAB / "archives.yml") -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        data: dict[str, Any] = yaml.safe_load(file)
    return data


def upstream(version: str) -> str:
    """`1.112.0+ds1-1` is 1.112.0."""
    return re.split(r"[-+~]", version.split(":", 1)[-1])[0]


def digest(component: Mapping[str, Any], held: Mapping[str, Any]) -> str:
    """What an archive is made of; KeyError names a package that the mirror lacks."""
    parts = {package: held[package]["sha256"] for package in component}
    return hashlib.sha256(json.dumps([FORMAT, dict(component), parts], sort_keys=True).encode()).hexdigest()


def _programs(package: Path, paths: Mapping[str, str]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as tree:
        run(["dpkg-deb", "-x", str(package), tree], hint="build the mirror anew: remove .cache/mirror")
        return {name: (Path(tree) / path).read_bytes() for path, name in paths.items()}


def ensure(mirror: Path, manifest: Manifest) -> bool:
    """Packs what is missing or made of other packages; whether the manifest has changed."""
    spec = wanted()
    suite, held = spec["suite"], manifest[spec["suite"]]
    directory = mirror / SUITE
    directory.mkdir(parents=True, exist_ok=True)
    before = manifest.get(SUITE, {})
    found: dict[str, dict[str, Any]] = {}
    for name, component in sorted(spec["components"].items()):
        try:
            key = digest(component, held)
        except KeyError as lost:
            raise LabError(
                f"{suite} has no package {lost.args[0]} for {name}", "see lab/mirror.yml"
            ) from None
        there = before.get(name, {})
        if there.get("made_from") == key and (directory / str(there.get("file"))).is_file():
            found[name] = there
            continue
        files: dict[str, bytes] = {}
        for package, paths in component.items():
            files.update(_programs(mirror / suite / held[package]["file"], paths))
        version = upstream(held[next(iter(component))]["version"])
        data, file = pack(files, 0o755), f"{name}-{version}.tar.gz"
        (directory / f".{file}").write_bytes(data)
        (directory / f".{file}").rename(directory / file)
        sha256 = hashlib.sha256(data).hexdigest()
        found[name] = {
            "version": version, "file": file, "sha256": sha256, "size": len(data), "made_from": key
        }  # fmt: skip
    try:
        found.update(wheels.ensure(directory, before))
    except wheels.WheelError as problem:
        raise LabError(str(problem), "lab/lab mirror, when that is mended") from None
    manifest[SUITE] = found
    kept = {entry["file"] for entry in found.values()}
    for path in directory.iterdir():
        if path.name not in kept:
            path.unlink()
    if found != before:
        total = sum(entry["size"] for entry in found.values())
        line(f"mirror {SUITE}: {len(found)} archives, {total / 1e6:.0f} MB")
    return found != before
