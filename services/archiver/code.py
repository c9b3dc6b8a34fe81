"""The code's Git repositories: where experiments are tagged, and where their archives are committed.

Everything happens in a small bare repository that lives as long as one run, so that nothing of a killed run
is left to be believed. An archive's commit stands on the tagged commit, on a branch of its own,
`archive/<ID>`: it is beside the code's tag, and no two experiments ever meet.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.archiver.config import Repository
from services.archiver.problem import Problem

BRANCH = "refs/heads/archive/"
_SECONDS = 600


class Lost(Exception):
    """Somebody else has moved the branch meanwhile."""


@dataclass(frozen=True)
class Found:
    """What a repository has of an experiment: the tagged commit, the tag's message, its archive's commit."""

    commit: str
    message: str
    archived: str  # "" where there is none yet


class Git:
    def __init__(self, directory: Path, config: str) -> None:
        self._directory = directory
        # Nothing of the caller's or of the machine's own settings counts, and nobody is asked for a password.
        self._environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": config,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_DIR": str(directory / "code.git"),
        }
        self.run("init", "--quiet", "--bare", str(directory / "code.git"))

    def run(self, *words: str, stdin: bytes = b"", more: Mapping[str, str] | None = None) -> str:
        try:
            done = subprocess.run(
                ["git", *words], input=stdin, capture_output=True, timeout=_SECONDS, check=False,
                env={**self._environment, **(more or {})}, cwd=self._directory,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Problem(f"git {words[0]} took longer than {_SECONDS} s", retry=True) from None
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[-400:]
            raise subprocess.CalledProcessError(done.returncode, words[0], stderr=said)
        return done.stdout.decode("utf-8", "replace")

    def _remote(self, url: str, *words: str) -> str:
        try:
            return self.run(*words)
        except subprocess.CalledProcessError as error:
            raise Problem(
                f"{url}: git {error.cmd} failed ({error.stderr})",
                "can this host reach the repository, and may it read and write there?",
                True,
            ) from None

    # -- reading

    def heads(self, url: str, *patterns: str) -> dict[str, str]:
        rows = (row.split("\t") for row in self._remote(url, "ls-remote", url, *patterns).splitlines())
        return {name: commit for commit, name in rows}

    def find(self, repository: Repository, name: str) -> Found | None:
        """None where the repository has no such tag."""
        tag, branch = f"refs/tags/{name}", f"{BRANCH}{name}"
        heads = self.heads(repository.url, tag, branch)
        if tag not in heads:
            return None
        wanted = [f"+{one}:{one}" for one in (tag, branch) if one in heads]
        self._remote(repository.url, "fetch", "--quiet", "--no-tags", "--depth=1", repository.url, *wanted)
        if self.run("cat-file", "-t", tag).strip() != "tag":
            raise Problem(
                f"{name}: its tag in {repository.url} has no message",
                f"git tag -f -a {name} -m 'Sideband-Job: JOB' {name} && git push -f origin {name}",
            )
        text = self.run("cat-file", "tag", tag).partition("\n\n")[2]
        commit = self.run("rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}").strip()
        return Found(commit, text, heads.get(branch, ""))

    def archives(self, repository: Repository) -> dict[str, str]:
        """Of every archived experiment the commit, fetched."""
        heads = self.heads(repository.url, f"{BRANCH}*")
        names = [f"+{name}:{name}" for name in heads]
        for index in range(0, len(names), 200):
            some = names[index : index + 200]
            self._remote(repository.url, "fetch", "--quiet", "--no-tags", "--depth=1", repository.url, *some)
        return {name.removeprefix(BRANCH): commit for name, commit in heads.items()}

    def file(self, commit: str, path: str) -> str | None:
        try:
            return self.run("cat-file", "blob", f"{commit}:{path}")
        except subprocess.CalledProcessError:
            return None

    # -- writing

    def commit(self, parent: str, files: Mapping[str, str], message: str) -> str:
        """A commit on `parent` with these files more; nothing of what is there is touched."""
        index = {"GIT_INDEX_FILE": str(self._directory / "index")}
        self.run("read-tree", parent, more=index)
        for path, text in sorted(files.items()):
            blob = self.run("hash-object", "-w", "--stdin", stdin=text.encode()).strip()
            self.run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", more=index)
        tree = self.run("write-tree", more=index).strip()
        return self.run("commit-tree", tree, "-p", parent, stdin=message.encode()).strip()

    def push(self, repository: Repository, name: str, commit: str, tip: str) -> None:
        """Raises Lost where the branch is not at `tip` any more: nothing is overwritten."""
        branch = f"{BRANCH}{name}"
        try:
            # Only onto what was seen: also where nothing was.
            lease = f"--force-with-lease={branch}:{tip}"
            self.run("push", "--quiet", lease, repository.url, f"{commit}:{branch}")
        except subprocess.CalledProcessError as error:
            if self.heads(repository.url, branch).get(branch, "") != tip:
                raise Lost(name) from None
            raise Problem(
                f"{repository.url}: the archive's commit was not taken ({error.stderr})",
                "may this host write branches archive/* there? Its data is stored; run the same again",
                True,
            ) from None


def search(git: Git, repositories: Sequence[Repository], name: str) -> tuple[Repository, Found]:
    """The one repository that has the experiment's tag."""
    found = [(one, there) for one in repositories if (there := git.find(one, name)) is not None]
    if not found:
        urls = ", ".join(one.url for one in repositories) or "none is configured"
        raise Problem(
            f"{name}: no repository has a tag of this name ({urls})",
            f"git tag -a {name} -m 'Sideband-Job: JOB' && git push origin {name}",
        )
    if len(found) > 1:
        urls = ", ".join(one.url for one, _ in found)
        raise Problem(
            f"{name}: is a tag of several repositories ({urls})", "an experiment has a name of its own"
        )
    return found[0]
