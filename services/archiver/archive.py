"""One experiment into the archive (X1 to X3, case 83).

The order is the promise: export, `dvc add`, `dvc push`, read every byte back from the remote and compare
its hash, and only then commit the `.dvc` file beside the code's tag. Whoever finds the commit finds the data.
A run that is killed anywhere before it changes nothing that counts, and the next run of the same experiment
begins anew: the same data give the same bytes, hence the same hash, so nothing is stored twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.archiver import beside, code, experiment, export, span
from services.archiver.beside import Archived
from services.archiver.code import Git
from services.archiver.config import Config
from services.archiver.experiment import Experiment
from services.archiver.gateway import Gateway
from services.archiver.problem import Problem
from services.archiver.rooms import Rooms
from services.archiver.s3 import Damaged, Missing, Object
from services.archiver.store import Store


class Archive:
    """`say` gets one line for each thing that is done."""

    def __init__(
        self,
        config: Config,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._say, self._clock, self._sleep = config, say, clock, sleep
        self._rooms = Rooms(config.state_directory)
        self._store = Store(config, self._rooms, say, sleep)

    def run(self, name: str, again: bool = False) -> dict[str, Any]:
        """The experiment's record. With `again` the data are read anew even where an archive stands."""
        experiment.check_id(name)
        file = f"{name}.parquet"
        with self._rooms.alone(name), self._rooms.run(name) as directory:
            git = Git(directory, self._config.git_config)
            repository, found = code.search(git, self._config.repositories, name)
            wanted = experiment.read(name, repository.tenant, repository.url, found.commit, found.message)
            standing = beside.read(git, repository, name, found.archived)
            if standing is not None:
                _same_code(wanted, standing)
                if not again and self._store.stands(directory, wanted.tenant, file, standing.object):
                    self._say(f"{name}: archived already, and its data is there")
                    return self._record(standing, changed=False)
            made, about = self._made(wanted, directory, file)
            if standing is not None and standing.object == made:
                self._say(f"{name}: the same data as archived")
                return self._record(standing, changed=False)
            remote = self._store.remote(wanted.tenant)
            commit = beside.write(git, repository, remote, name, found, made, about)
            self._say(f"{name}: committed as {commit[:12]} on branch archive/{name} of {repository.url}")
            record = self._record(Archived(made, beside.summary(about), commit), changed=True)
        self.prune()
        return record

    def _made(self, wanted: Experiment, directory: Path, file: str) -> tuple[Object, dict[str, Any]]:
        """The file: exported, in cache and remote, and read back from there."""
        workspace = self._store.workspace(directory, wanted.tenant)
        gateway = Gateway(self._config, self._sleep)
        try:
            ran = self._over(gateway, wanted)
            target = workspace.place(file)
            about = export.write(gateway, self._config, wanted, ran, directory, target, self._clock())
        finally:
            gateway.close()
        self._say(f"{wanted.name}: {about['rows']:,} samples of {about['series']:,} series")
        made = workspace.add(file)
        self._store.put(workspace, wanted.tenant, file, made)
        return made, about

    def _over(self, gateway: Gateway, wanted: Experiment) -> span.Span:
        """The span of a job that is over, after its last samples have had their time to come."""
        ran = span.find(gateway, wanted, self._config.tiers, self._clock())
        if not ran.ended:
            raise Problem(
                f"{wanted.name}: job {wanted.job} still runs",
                "archive it when it is over, or say in the tag where the experiment ends (Sideband-End)",
                retry=True,
            )
        wait = ran.end + self._config.settle_seconds - self._clock()
        if wait > 0:
            self._say(f"{wanted.name}: waiting {wait:.0f} s for the job's last samples")
            self._sleep(wait)
        return ran

    # -- what is known

    def _record(self, archived: Archived, changed: bool) -> dict[str, Any]:
        url = self._store.storage(str(archived.about["tenant"])).url
        record = {
            **archived.about,
            "md5": archived.object.md5,
            "size": archived.object.size,
            "remote": f"{url}/{archived.object.path}",
            "archived_in": archived.commit,
        }
        self._rooms.write_record(str(archived.about["experiment"]), record)
        return {**record, "changed": changed}

    def prune(self) -> list[Object]:
        return self._store.prune()

    def open(self, name: str) -> Path:
        """An archived experiment's file, fetched where it is not at hand."""
        experiment.check_id(name)
        record = self._rooms.record(name) or self._known(name)
        found = Object(str(record["md5"]), int(record["size"]))
        try:
            return self._store.local(str(record["tenant"]), found)
        except (Damaged, Missing) as problem:
            hint = f"sideband-archiver run --experiment {name}"
            raise Problem(f"{name}: its data cannot be had ({problem})", hint) from None

    def _known(self, name: str) -> dict[str, Any]:
        """From the code's repository, where this host has no note of it."""
        with self._rooms.run(name) as directory:
            git = Git(directory, self._config.git_config)
            repository, found = code.search(git, self._config.repositories, name)
            archived = beside.read(git, repository, name, found.archived)
            if archived is None:
                raise Problem(f"{name}: is not archived", f"sideband-archiver run --experiment {name}")
            return self._record(archived, changed=False)

    def everything(self) -> list[dict[str, Any]]:
        """What is archived in all repositories, as committed there."""
        found = []
        with self._rooms.run("all") as directory:
            git = Git(directory, self._config.git_config)
            for repository in self._config.repositories:
                for name, commit in sorted(git.archives(repository).items()):
                    archived = beside.read(git, repository, name, commit)
                    if archived is not None:
                        found.append(archived.about)
        return found


def _same_code(wanted: Experiment, standing: Archived) -> None:
    archived = str(standing.about.get("commit"))
    if archived != wanted.commit:
        raise Problem(
            f"{wanted.name}: its tag was moved: it stands on {wanted.commit[:12]}, "
            f"archived was {archived[:12]}",
            "tag other code under another name; where the archive is not wanted any more, delete branch "
            f"archive/{wanted.name} in {wanted.repository}",
        )
