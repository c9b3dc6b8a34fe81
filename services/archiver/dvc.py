"""DVC, as a program in a workspace of its own: it is given one file to add and one to push.

Its workspace, with its locks and its notes on what it has seen, lasts for one run. A killed run leaves none
of it behind to be believed (case 83); what outlives a run is the cache, whose names are hashes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from services.archiver.config import Remote
from services.archiver.problem import Problem
from services.archiver.s3 import Object

REMOTE = "sideband"
_SECONDS = 6 * 3600
_RUN = "import sys; sys.path[:] = {path!r}; from dvc.cli import main; sys.exit(main(sys.argv[1:]))"


def settings(remote: Remote) -> str:
    """The section that names the remote, without what is secret or this host's own."""
    lines = [f"['remote \"{REMOTE}\"']", f"    url = {_url(remote)}", f"    endpointurl = {remote.endpoint}"]
    if remote.region:
        lines.append(f"    region = {remote.region}")
    return "\n".join(lines) + "\n"


def _url(remote: Remote) -> str:
    return f"s3://{remote.bucket}/{remote.prefix}".rstrip("/")


class Workspace:
    def __init__(self, directory: Path, cache: Path, remote: Remote) -> None:
        self._directory = directory / "workspace"
        self._cache = cache
        (self._directory / ".dvc").mkdir(parents=True)
        cache.mkdir(parents=True, exist_ok=True)
        own = [
            "[core]",
            "    no_scm = true",
            "    analytics = false",
            "    check_update = false",
            f"    remote = {REMOTE}",
            f"    site_cache_dir = {directory / 'site'}",
            "[cache]",
            f"    dir = {cache}",
            '    type = "hardlink,copy"',
        ]
        text = "\n".join(own) + "\n" + settings(remote) + f"    credentialpath = {remote.credentials}\n"
        if remote.ca:
            text += f"    ssl_verify = {remote.ca}\n"
        (self._directory / ".dvc/config").write_text(text, encoding="utf-8")

    def place(self, name: str) -> Path:
        return self._directory / name

    def add(self, name: str) -> Object:
        """The file goes into the cache under its hash."""
        self._run("add", name)
        text = self.place(f"{name}.dvc").read_text(encoding="utf-8")
        md5, size = re.search(r"md5: ([0-9a-f]{32})$", text, re.M), re.search(r"size: (\d+)$", text, re.M)
        if md5 is None or size is None:
            raise Problem(f"dvc add wrote no hash: {text[:200]!r}")
        return Object(md5.group(1), int(size.group(1)))

    def adopt(self, name: str, found: Object) -> None:
        """As if it had just been added: its file is in the cache."""
        self.place(f"{name}.dvc").write_text(pointer(name, found, "{}"), encoding="utf-8")

    def push(self, name: str) -> None:
        self._run("push", "--jobs", "2", "--remote", REMOTE, f"{name}.dvc")

    def _run(self, *words: str) -> None:
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self._directory),  # no settings of whoever starts it
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(self._directory),
            "DVC_NO_ANALYTICS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "2",  # whoever calls tries again
        }
        launch = _RUN.format(path=[one for one in sys.path if one])
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", launch, *words], cwd=self._directory, env=environment,
                capture_output=True, timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Problem(f"dvc {words[0]} took longer than {_SECONDS} s", retry=True) from None
        if done.returncode != 0:
            lines = (done.stderr + done.stdout).decode("utf-8", "replace").splitlines()
            said = " ".join([line for line in lines if line.startswith("ERROR")] or lines)[:400]
            raise Problem(
                f"dvc {words[0]} failed ({said})", "nothing was committed; run the same again", True
            )


def pointer(name: str, found: Object, summary: str) -> str:
    """The `.dvc` file: the data by its hash, the remote that holds it, and what `archiver hours` reads."""
    return (
        f"outs:\n- md5: {found.md5}\n  size: {found.size}\n  hash: md5\n  path: {name}\n  remote: {REMOTE}\n"
        f"meta:\n  sideband: {summary}\n"
    )


def read_pointer(text: str) -> tuple[Object, str] | None:
    """What `pointer` wrote; None for anything else."""
    md5, size = re.search(r"^- md5: ([0-9a-f]{32})$", text, re.M), re.search(r"^  size: (\d+)$", text, re.M)
    summary = re.search(r"^  sideband: (\{.*\})$", text, re.M)
    if md5 is None or size is None or summary is None:
        return None
    return Object(md5.group(1), int(size.group(1))), summary.group(1)
