"""The offline package mirror: a flat apt repository per suite and a manifest with checksums.

`.cache/mirror/<suite>/` holds the packages of lab/mirror.yml and all that they need beyond the base image;
`archives` is a suite of its own (archives.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from . import archives, built, images, sources
from .paths import CACHE, LAB
from .say import LabError, line, run

MIRROR = CACHE / "mirror"
Manifest = dict[str, dict[str, dict[str, Any]]]


def wanted(path: Path = LAB / "mirror.yml") -> dict[str, list[str]]:
    with path.open(encoding="utf-8") as file:
        data = yaml.safe_load(file)
    return {suite: sorted(set(names)) for suite, names in data.items()}


def digest(suite: str, names: list[str]) -> str:
    return hashlib.sha256(
        json.dumps([2, images.digest(suite), names, built.digest(suite)]).encode()
    ).hexdigest()


def parse_index(text: str) -> dict[str, dict[str, Any]]:
    """A Packages file as {package: {version, file, sha256, size}}."""
    found = {}
    for stanza in text.strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))
        found[fields["Package"]] = {
            "version": fields["Version"],
            "file": fields["Filename"].removeprefix("./"),
            "sha256": fields["SHA256"],
            "size": int(fields["Size"]),
        }
    return dict(sorted(found.items()))


def apt(suite: str) -> list[str | Path]:
    """apt-get with a state of its own: the suite's sources, and what the base image has as installed."""
    state = CACHE / "apt" / suite
    for path in ("lists/partial", "archives/partial"):
        (state / path).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("\n".join(sources.lines(suite)) + "\n")
    options = {
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state,
        "Dir::Cache::Archives": state / "archives",
        "Dir::State::status": images.root(suite) / "var/lib/dpkg/status",
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "APT::Get::AllowUnauthenticated": "false",
        "Acquire::Retries": "3",
        "Acquire::Languages": "none",
        "APT::Keep-Downloaded-Packages": "true",
    }
    return ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]


def _download(suite: str, names: list[str], into: Path) -> None:
    state, get = CACHE / "apt" / suite, apt(suite)
    hint = "see that this machine's own Debian source answers (apt-get update), then again"
    run([*get, "update"], hint=hint)
    run(
        [*get, "install", "-y", "--download-only", *names],
        hint="every name in lab/mirror.yml must exist in its suite",
    )
    # An empty archive makes apt name the whole set, also what an earlier list has brought already.
    (state / "none/partial").mkdir(parents=True, exist_ok=True)
    plan = run([*get, "install", "-y", "--print-uris", "-o", f"Dir::Cache::Archives={state}/none", *names])
    files = re.findall(r"^'[^']*' (\S+\.deb) \d+", plan, re.MULTILINE)
    if not files:
        raise LabError(f"apt named no package for {suite}", "see lab/mirror.yml")
    for name in files:
        shutil.copyfile(state / "archives" / name, into / name)


def _build(suite: str, names: list[str]) -> None:
    half, target = MIRROR / f".{suite}.half", MIRROR / suite
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    _download(suite, names, half)
    for package in built.packages(suite):
        shutil.copyfile(package, half / package.name)
    (half / "Packages").write_text(run(["apt-ftparchive", "packages", "."], cwd=half))
    release = run(
        ["apt-ftparchive", "-o", f"APT::FTPArchive::Release::Codename={suite}", "release", "."], cwd=half
    )
    (half / "Release").write_text(release)
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)


def ensure() -> Manifest:
    """Builds what is missing or out of date. The directory itself stays: a running lab has it mounted."""
    MIRROR.mkdir(parents=True, exist_ok=True)
    path = MIRROR / "manifest.json"
    stamp = MIRROR / "built-from.json"
    built: dict[str, str] = json.loads(stamp.read_text()) if stamp.is_file() else {}
    manifest: Manifest = json.loads(path.read_text()) if path.is_file() else {}
    for suite, names in wanted().items():
        key = digest(suite, names)
        if built.get(suite) == key and (MIRROR / suite / "Packages").is_file() and suite in manifest:
            continue
        _build(suite, names)
        manifest[suite] = parse_index((MIRROR / suite / "Packages").read_text())
        built[suite] = key
        path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        stamp.write_text(json.dumps(built) + "\n")
        total = sum(entry["size"] for entry in manifest[suite].values())
        line(f"mirror {suite}: {len(manifest[suite])} packages, {total / 1e6:.0f} MB")
    if archives.ensure(MIRROR, manifest, apt):
        path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return manifest
