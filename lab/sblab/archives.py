"""Archives beside the package mirror: `.cache/mirror/archives/`, one per component of lab/archives.yml,
for hosts whose system has no package of it, and the Python packages of programs (services/wheels.py). Packed
from the mirror's own packages and from locked wheels; equal ones give equal bytes."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Mapping
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
Apt = Callable[[str], list[Any]]  # apt-get for a suite


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


def _written(directory: Path, file: str, data: bytes, version: str, key: str) -> dict[str, Any]:
    (directory / f".{file}").write_bytes(data)
    (directory / f".{file}").rename(directory / file)
    sha256 = hashlib.sha256(data).hexdigest()
    return {"version": version, "file": file, "sha256": sha256, "size": len(data), "made_from": key}


def _tree(name: str, tree: Mapping[str, Any], apt: Apt) -> tuple[str, dict[str, bytes]]:
    """Version and files of several packages as one tree: what its `take` names, and each licence."""
    with tempfile.TemporaryDirectory() as room:
        hint = "see that this machine's own Debian source answers (apt-get update), then again"
        run([*apt(tree["suite"]), "update"], hint=hint)
        run([*apt(tree["suite"]), "download", *tree["packages"]], cwd=Path(room), hint=hint)
        packages = sorted(Path(room).glob("*.deb"))
        files: dict[str, bytes] = {}
        version = ""
        for package in packages:
            root = Path(room) / package.stem
            run(["dpkg-deb", "-x", str(package), str(root)])
            if package.name.startswith(f"{tree['packages'][0]}_"):
                version = upstream(run(["dpkg-deb", "-f", str(package), "Version"]).strip())
            for pattern, folder in tree["take"].items():
                for path in sorted(root.glob(pattern)):
                    files[f"{folder}/{path.name}"] = path.read_bytes()  # links too, as what they lead to
            for path in root.glob("usr/share/doc/*/copyright"):
                files[f"doc/{path.parent.name}/copyright"] = path.read_bytes()
    return version, files


def ensure(mirror: Path, manifest: Manifest, apt: Apt) -> bool:
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
        found[name] = _written(directory, f"{name}-{version}.tar.gz", pack(files, 0o755), version, key)
    for name, tree in sorted(spec["trees"].items()):
        key = hashlib.sha256(json.dumps([FORMAT, tree], sort_keys=True).encode()).hexdigest()
        there = before.get(name, {})
        if there.get("made_from") != key or not (directory / str(there.get("file"))).is_file():
            version, files = _tree(name, tree, apt)
            there = _written(directory, f"{name}-{version}.tar.gz", pack(files, 0o755), version, key)
        found[name] = there
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
