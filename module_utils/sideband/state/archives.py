"""Programs that are unpacked, never installed: a package's own scripts and units stay out of the host."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from .paths import Link
from .system import StateError, System

STORE = "/var/lib/sideband/archives"
UNPACK = {
    "deb": ["dpkg-deb", "-x", "{file}", "{to}"],
    "tar": ["tar", "-xf", "{file}", "-C", "{to}", "--no-same-owner"],
}


@dataclass(frozen=True)
class Archive:
    """Unpacked under its checksum; `path` is a link to it: a new version and its undo are one rename each."""

    path: str
    url: str
    sha256: str
    format: str
    kind = "archive"

    @property
    def store(self) -> str:
        return f"{STORE}/{self.sha256}"

    def link(self) -> Link:
        return Link(self.path, self.store)

    def present(self, system: System) -> bool:
        return system.is_directory(self.store)


def is_url(text: str) -> bool:
    """An address of the web, or the whole path of a file, which only a run on the host itself may name."""
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "file":
        return bool(re.fullmatch(r"file:///[!-~]+", text))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and bool(re.fullmatch(r"[!-~]+", text))


def fetch(system: System, archive: Archive) -> None:
    """Download, verify, unpack beside, rename: the store holds whole trees only."""
    if archive.url.startswith("file:") and not system.local:
        raise StateError(
            f"{archive.path}: {archive.url}: a file of the host itself comes with a local run only; "
            "name the site's mirror (sideband_mirror_url); nothing was changed"
        )
    os.makedirs(system.at(STORE), mode=0o755, exist_ok=True)
    part, tree = system.at(f"{archive.store}.part"), system.at(f"{archive.store}.unpacking")
    shutil.rmtree(tree, ignore_errors=True)
    hint = (
        "nothing was changed\n  next: is the site's mirror up, and does its manifest name this file? "
        "build both anew, then run the same play again"
    )
    try:
        seen = hashlib.sha256()
        with urllib.request.urlopen(archive.url, timeout=30) as answer, open(part, "wb") as file:
            for block in iter(lambda: answer.read(1 << 20), b""):
                seen.update(block)
                file.write(block)
        if seen.hexdigest() != archive.sha256:
            raise StateError(
                f"{archive.path}: {archive.url}: sha256 is {seen.hexdigest()}, "
                f"wanted {archive.sha256}; {hint}"
            )
        os.makedirs(tree, mode=0o755)
        system.must(
            [word.format(file=part, to=tree) for word in UNPACK[archive.format]],
            f"{archive.path}: {archive.url} is no {archive.format} archive; {hint}",
        )
        os.chmod(tree, 0o755)
        os.rename(tree, system.at(archive.store))
    except (urllib.error.URLError, http.client.HTTPException, OSError) as problem:
        raise StateError(
            f"{archive.path}: {archive.url} could not be fetched: {problem}; {hint}"
        ) from problem
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        if os.path.exists(part):
            os.unlink(part)
        if not os.listdir(system.at(STORE)):
            os.rmdir(system.at(STORE))


def sweep(system: System, keep: Iterable[str]) -> None:
    """Remove trees that no generation of any owner uses."""
    store = system.at(STORE)
    if not os.path.isdir(store):
        return
    kept = set(keep)
    for name in sorted(os.listdir(store)):
        if name not in kept:
            shutil.rmtree(os.path.join(store, name), ignore_errors=True)
    if not os.listdir(store):
        os.rmdir(store)
