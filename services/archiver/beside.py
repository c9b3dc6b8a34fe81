"""An archive's commit: the `.dvc` file on a branch of its own, on the commit that the tag names."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from services.archiver import dvc
from services.archiver.code import Found, Git, Lost
from services.archiver.config import Remote, Repository
from services.archiver.problem import Problem
from services.archiver.s3 import Object

_COMMITS = 3


@dataclass(frozen=True)
class Archived:
    """What an archive's commit says."""

    object: Object
    about: dict[str, Any]
    commit: str  # on branch archive/<ID>


def path(name: str) -> str:
    return f"archive/{name}.parquet.dvc"


def summary(about: dict[str, Any]) -> dict[str, Any]:
    """What a commit and a record hold. What may be long is in the file alone."""
    return {key: value for key, value in about.items() if key not in ("gaps", "levels", "nodes")}


def read(git: Git, repository: Repository, name: str, commit: str) -> Archived | None:
    """None where the commit has no archive. Whose it is follows from the repository, not from its text."""
    text = git.file(commit, path(name)) if commit else None
    found = dvc.read_pointer(text) if text is not None else None
    if found is None:
        return None
    try:
        about = dict(json.loads(found[1]))
    except ValueError:
        return None
    return Archived(found[0], {**about, "experiment": name, "tenant": repository.tenant}, commit)


def write(
    git: Git,
    repository: Repository,
    remote: Remote,
    name: str,
    found: Found,
    made: Object,
    about: dict[str, Any],
) -> str:
    """The commit, once it is pushed. It stands on the tag's commit, or on the archive's own before it."""
    tip = found.archived
    for _ in range(_COMMITS):
        parent = tip or found.commit
        try:
            files = {
                path(name): dvc.pointer(f"{name}.parquet", made, json.dumps(summary(about), sort_keys=True)),
                ".dvc/config": merged(git.file(parent, ".dvc/config"), remote),
                "archive/.gitignore": "*.parquet\n",
            }
            subject = (
                f"archive {name}: {about['job']} of {about['tenant']}, {about['start']} to {about['end']}\n"
            )
            commit = git.commit(parent, files, subject)
            git.push(repository, name, commit, tip)
            return commit
        except Lost:
            # Another host was faster. What it has committed was read back too.
            now = git.find(repository, name)
            tip = now.archived if now else ""
            other = read(git, repository, name, tip)
            if other is not None and other.object == made:
                return tip
        except subprocess.CalledProcessError as error:
            raise Problem(f"{name}: git {error.cmd} failed ({error.stderr})") from None
    raise Problem(f"{name}: branch archive/{name} is moved by others all the time", retry=True)


def merged(there: str | None, remote: Remote) -> str:
    """The code may use DVC itself: its settings stay, the remote of ours comes to them, or is set right."""
    section = dvc.settings(remote)
    head = section.partition("\n")[0]
    kept, skipping = [], False
    for line in (there or "").splitlines():
        if line.lstrip().startswith("["):
            skipping = line.strip() == head
        if not skipping:
            kept.append(line)
    before = "\n".join(kept).strip("\n")
    return f"{before}\n{section}" if before else section
