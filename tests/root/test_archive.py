"""An experiment's whole way by real programs, with faults at the storage's edge (X1 to X4, case 83).

No lab; root for the S3 server's namespace. What stands there is in tests/archive_scene.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import archive_kit as kit
import duckdb
import pytest
from archive_scene import JOBS, NotHere, Scene
from archive_scene import scene as made

from services.archiver.s3 import Object

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    try:
        with made(tmp_path_factory.mktemp("archive")) as found:
            yield found
    except NotHere as why:
        pytest.skip(str(why))


def read(path: Path, query: str) -> list[Any]:
    return duckdb.connect().execute(query.format(file=f"read_parquet('{path}')")).fetchall()


def checkout(scene: Scene, name: str, directory: Path) -> Path:
    """As a researcher gets it back: the archive's branch, and `dvc pull` with a key of one's own."""
    scene.code.git(
        "clone",
        "--quiet",
        "--branch",
        f"archive/{name}",
        scene.code.url,
        str(directory),
        where=scene.directory,
    )
    keys = scene.directory / "state/s3.ini"
    environment = {
        **scene.code.environment,
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "DVC_NO_ANALYTICS": "1",
    }
    pull = [sys.executable, "-m", "dvc", "pull", f"archive/{name}.parquet.dvc"]
    done = subprocess.run(pull, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return directory / f"archive/{name}.parquet"


def test_an_experiment_is_archived_beside_its_code_and_comes_back(scene: Scene, tmp_path: Path) -> None:
    config = scene.configure()
    record = scene.record(config, "run-a")
    assert record["changed"]
    assert (record["tenant"], record["job"], record["commit"]) == (
        "alpha", "slurm-1", scene.code.git("rev-parse", "run-a^{commit}"),
    )  # fmt: skip
    assert record["steps"] == {"logged": 60, "first": 1, "last": 60, "stride": 1, "repeated": 0, "missing": 0}
    assert record["gpu_seconds"] == {next(iter(record["gpu_seconds"])): 4 * 901.5}
    scene.stored(record)
    path = checkout(scene, "run-a", tmp_path / "back")
    assert (
        scene.code.git(
            "merge-base", "--is-ancestor", "run-a", scene.branches()["run-a"], where=tmp_path / "back"
        )
        == ""
    )
    # Every logged step once, with its own time; the NaN at step 7 is one, not a hole.
    losses = read(
        path,
        "SELECT step, value, epoch_ms(time) FROM {file} WHERE metric = 'sideband_train_loss' ORDER BY time",
    )
    assert [step for step, _, _ in losses] == list(range(1, 61))
    assert [str(value) for step, value, _ in losses if step == 7] == ["nan"]
    assert [value for step, value, _ in losses if step != 7] == [
        kit.falling(step) for step in range(1, 61) if step != 7
    ]
    assert [moment for _, _, moment in losses] == [
        scene.start * 1000 + step * 15_000 + 123 for step in range(1, 61)
    ]
    # The other tenant's job of the same name is not in it.
    assert read(path, "SELECT DISTINCT labels['tenant'], labels['job'] FROM {file}") == [("alpha", "slurm-1")]
    about = dict(read(path, f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')"))
    assert about["experiment"] == "run-a"
    assert about["commit"] == record["commit"]
    assert [level["nodes"] for level in json.loads(about["levels"])] == [{"full": 2}, {"core": 2}]


def test_the_same_again_changes_nothing_and_gives_the_same_bytes(scene: Scene) -> None:
    branches = scene.branches()
    before = scene.record(scene.configure(), "run-a")
    assert not before["changed"]
    # Another host that has never seen it makes the same bytes of the same data.
    other = scene.record(scene.configure(name="elsewhere"), "run-a", "--again")
    assert (other["md5"], other["changed"]) == (before["md5"], False)
    assert scene.branches() == branches


def test_a_gap_is_in_the_metadata_and_the_curve_is_whole(scene: Scene) -> None:
    config = scene.configure()
    record = scene.record(config, "run-b")
    assert record["steps"]["missing"] == 0
    code, out, error = scene.done(config, "compare", "run-a", "run-b", "--json")
    assert code == 0, error
    both = json.loads(out)
    gaps = both["right"]["about"]["gaps"]
    assert [gap["metrics"][0] for gap in gaps] == ["DCGM_FI_DEV_GPU_UTIL:1m_count_samples"]
    assert both["left"]["about"]["gaps"] == []
    assert both["left"]["figures"]["steps"] == both["right"]["figures"]["steps"] == 60
    assert Path(both["plot"]).read_text().startswith("<svg ")


def test_faults_of_the_storage_lose_nothing(scene: Scene) -> None:
    """One of five uploads fails, or is cut and left by half: nothing is committed before all is read back."""
    for fault in ("fail_puts", "cut_puts"):
        faults = kit.Faults(**{fault: lambda number: number % 5 == 1})
        name = {"fail_puts": "run-c", "cut_puts": "run-d"}[fault]
        with kit.edge(scene.endpoint, faults) as endpoint:
            record = scene.record(scene.configure(endpoint, name=fault), name)
        assert faults.seen["PUT"] >= 2, faults
        scene.stored(record)
        assert name in scene.branches()


def test_nothing_is_committed_before_it_is_stored_and_a_killed_run_is_finished_by_the_next(
    scene: Scene,
) -> None:
    scene.code.tag("run-f", "Sideband-Job: slurm-2\nSideband-Parameters: 1e9")
    with kit.edge(scene.endpoint, kit.Faults(fail_puts=lambda number: True)) as endpoint:
        code, _, error = scene.done(scene.configure(endpoint, name="killed"), "run", "--experiment", "run-f")
    assert code == 75
    assert "could not be stored" in error
    assert "nothing was committed and nothing removed; run the same again" in error
    assert "run-f" not in scene.branches()
    hang = threading.Event()
    faults = kit.Faults(hang_puts=hang)
    with kit.edge(scene.endpoint, faults) as endpoint:
        config = scene.configure(endpoint, name="killed")
        first = scene.begin(config, "run", "--experiment", "run-f")
        deadline = time.monotonic() + 120
        while not faults.seen.get("PUT") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert faults.seen.get("PUT")
        # A second runner is started meanwhile, and waits.
        second = scene.begin(config, "run", "--experiment", "run-f", "--json")
        first.send_signal(signal.SIGKILL)
        first.wait()
        hang.set()
        out, error = second.communicate(timeout=240)
    assert second.returncode == 0, error
    scene.stored(json.loads(out))
    assert list((scene.directory / "killed/state/runs").iterdir()) == []
    assert scene.branches()["run-f"] == json.loads(out)["archived_in"]


def test_two_runners_at_once_make_one_archive(scene: Scene) -> None:
    """On one host the second waits; on two hosts the one who comes second finds the first's."""
    scene.code.tag("run-g", "Sideband-Job: slurm-3\nSideband-Parameters: 2e9")
    configs = [scene.configure(name="one"), scene.configure(name="one"), scene.configure(name="two")]
    runs = [scene.begin(config, "run", "--experiment", "run-g", "--json") for config in configs]
    ends = [run.communicate(timeout=240) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], [error for _, error in ends]
    records = [json.loads(out) for out, _ in ends]
    assert len({(record["md5"], record["archived_in"]) for record in records}) == 1
    scene.stored(records[0])
    assert scene.code.git("rev-list", "--count", "run-g..FETCH_HEAD", where=fetched(scene, "run-g")) == "1"


def fetched(scene: Scene, name: str) -> Path:
    scene.code.git("fetch", "--quiet", "origin", f"archive/{name}")
    return scene.code.checkout


def test_what_the_storage_lost_is_put_back_from_the_cache(scene: Scene) -> None:
    config = scene.configure()
    record = scene.record(config, "run-a")
    scene.storage().remove(Object(record["md5"], record["size"]))
    code, _, error = scene.done(config, "run", "--experiment", "run-a")
    assert code == 0
    assert "committed, but the remote has not got it" in error
    scene.stored(record)


def test_a_host_that_has_nothing_fetches_what_it_compares(scene: Scene) -> None:
    config = scene.configure(name="fresh")
    code, out, error = scene.done(config, "compare", "run-a", "run-b")
    assert code == 0, error
    assert "throughput (tokens/s)" in out
    code, out, _ = scene.done(config, "hours")
    assert code == 0
    assert "alpha" in out


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["run", "--experiment", "running"], 75, "running: job slurm-9 still runs"),
        (["run", "--experiment", "nowhere"], 1, "no series of job slurm-404 of tenant alpha in tier minute"),
        (["run", "--experiment", "untagged"], 1, "untagged: no repository has a tag of this name"),
        (["run", "--experiment", "../x"], 1, "experiment: no name"),
        (["compare", "run-a", "running"], 1, "running: is not archived"),
    ],
)
def test_what_cannot_be_says_why(scene: Scene, words: Sequence[str], status: int, problem: str) -> None:
    code, out, error = scene.done(scene.configure(), *words)
    assert (code, out) == (status, "")
    assert problem in error
    assert "; hint: " in error
    assert "Traceback" not in error


def test_a_tag_that_moved_is_refused(scene: Scene) -> None:
    (scene.code.checkout / "train.py").write_text("print('another loss')\n")
    scene.code.git("commit", "--quiet", "-am", "another model")
    scene.code.tag("run-d", f"Sideband-Job: {JOBS['run-d']}")
    code, _, error = scene.done(scene.configure(), "run", "--experiment", "run-d")
    assert code == 1
    assert "run-d: its tag was moved" in error


def test_no_secret_is_shown(scene: Scene) -> None:
    """Neither in the repository nor in what the program says."""
    for name, commit in scene.branches().items():
        scene.code.git("fetch", "--quiet", "origin", f"archive/{name}")
        assert kit.SECRET not in scene.code.git("show", commit)
    state = scene.directory / "state/state"
    for path in state.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".svg", ""):
            assert kit.SECRET.encode() not in path.read_bytes(), path
