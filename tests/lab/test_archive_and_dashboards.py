"""Experiments of the lab into its site's own storage and back (X1 to X4), and every question of the
dashboards asked of the lab's gateway (Q1). The two share a training that runs meanwhile."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import archive_kit as kit
import dashboards_kit
import duckdb
import pytest
from front import site
from front.client import Answer

from lab.sblab import gpus, topology
from lab.sblab import site as own
from services.querygate import promql
from services.querygate.promql_tree import Selector, parse

pytestmark = pytest.mark.lab
NODE, UID, LAKE, MINUTE = "node1", 20001, "lake1", 8532
HOME = "/tmp/alpha-dashboards"
LOOP = """
import sys, time
for step in range(1, 100000):
    print(f"step {step} loss {5 / step:.4f} lr 0.0001 grad_norm 0.5 samples/s=310.5 tok/s=12500 "
          "data_time 0.012s step_time 0.5s val_loss=1.5", flush=True)
    if step % 20 == 0:
        print("node1:42:43 [0] NCCL WARN NET/IB: Got completion with error 12", flush=True)
    time.sleep(0.5)
"""


def on(host: str, script: str, given: bytes = b"") -> str:
    done = subprocess.run(
        [str(site.PROJECT / "lab/lab"), "exec", host, "sh", "-c", script], input=given, capture_output=True
    )
    assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout!r}{done.stderr!r}"
    return done.stdout.decode()


@pytest.fixture(scope="module", autouse=True)
def training() -> Iterator[float]:
    """A loop under a tenant's uid on a GPU; hands out since when."""
    on(
        NODE,
        f"mkdir -p {HOME} && cat >{HOME}/train_dashboards.py && chown -R {UID}:{UID} {HOME}",
        LOOP.encode(),
    )
    setpriv = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    run = f"cd {HOME}; exec python3 train_dashboards.py >run.out 2>&1"
    pid = int(on(NODE, f"setsid {setpriv} sh -c '{run}' >/dev/null 2>&1 & echo $!"))
    names = gpus.script(topology.load().host(NODE))
    script = f"{names}gpu 0 processes {pid}\ngpu 0 utilization 93\n"
    on(NODE, f"cat >/{gpus.SCRIPT}.new && mv /{gpus.SCRIPT}.new /{gpus.SCRIPT}", script.encode())
    yield time.monotonic()
    on(NODE, f"kill {pid} 2>/dev/null; rm -rf {HOME}; true")
    on(NODE, f"cat >/{gpus.SCRIPT}.new && mv /{gpus.SCRIPT}.new /{gpus.SCRIPT}", names.encode())


# -- experiments


@dataclass(frozen=True)
class Ran:
    """An experiment that is over: its series are in the minute tier, its code is tagged."""

    name: str
    job: str
    start: int
    commit: str


def play(*words: str) -> tuple[int, str]:
    program = [
        f"{Path(sys.executable).parent}/ansible-playbook",
        "-i",
        "inventories/lab",
        "playbooks/archive.yml",
    ]
    ours = {"ANSIBLE_CONFIG": str(site.PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*program, *words], cwd=site.PROJECT, capture_output=True, text=True, env={**os.environ, **ours}
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Ran]]:
    mark, start = uuid.uuid4().hex[:8], int(time.time()) // 60 * 60 - 3600
    names = [f"lab-{mark}-{letter}" for letter in "ab"]
    jobs = [f"slurm-{int(mark, 16) % 10**9}{number}" for number in range(2)]
    lines = []
    for number, job in enumerate(jobs):
        lines += kit.job_series(
            steps=100, nodes=["node1"], start=start, job=job, tokens=50_000.0 * (number + 1)
        )
    text = "".join(f"{line}\n" for line in lines if not line.startswith("sideband_policy_level"))
    site.post(LAKE, MINUTE, "/api/v1/import/prometheus", text.encode())
    site.post(LAKE, MINUTE, "/internal/force_flush")
    git = "git -c safe.directory='*' -c user.name=ada -c user.email=ada@example.org"
    work = f"/tmp/code-{mark}"
    tags = "".join(
        f"{git} tag -a {name} -m 'Sideband-Job: {job}\nSideband-Parameters: 7e9'; "
        for name, job in zip(names, jobs)
    )
    push = f"{git} push -q origin HEAD:refs/heads/{mark} {' '.join(names)}"
    clone = f"set -e; rm -rf {work}; {git} clone -q /srv/git/alpha.git {work} 2>/dev/null; cd {work}; "
    commit = f"echo '{mark}' >train.py; git add train.py; {git} commit -qm model; {tags} {push}; "
    tagged = on(LAKE, f"{clone}{commit}git rev-parse HEAD").strip()
    yield [Ran(name, job, start, tagged) for name, job in zip(names, jobs)]
    gone = " ".join(f":refs/tags/{name} :refs/heads/archive/{name}" for name in names)
    on(LAKE, f"cd {work} && {git} push -q origin :refs/heads/{mark} {gone}; rm -rf {work}")
    for job in jobs:
        match = urllib.parse.quote(f'{{job="{job}"}}')
        site.post(LAKE, MINUTE, f"/api/v1/admin/tsdb/delete_series?match[]={match}")


def test_a_request_without_an_experiment_changes_nothing() -> None:
    code, said = play()
    assert code == 2
    assert "experiment: is missing; hint: the code's tag, -e experiment=ID. Usage: -e experiment=ID" in said
    code, said = play("-e", "experiment=no-such-tag")
    assert code == 2
    assert "no-such-tag: no repository has a tag of this name" in " ".join(said.split())


def test_experiments_are_archived_beside_their_code_and_compared(pair: list[Ran], tmp_path: Path) -> None:
    for ran in pair:
        code, said = play("-e", f"experiment={ran.name}")
        assert code == 0, said
        assert "changed=1" in said
    ran = pair[0]
    code, said = play("-e", f"experiment={ran.name}")
    assert code == 0, said
    assert "changed=0" in said.splitlines()[-2] or "archived already" in said
    # The commit stands on the tagged one; the storage has the very bytes.
    log = f"git -c safe.directory='*' -C /srv/git/alpha.git log -2 --format=%H archive/{ran.name}"
    tip = on(LAKE, log).split()
    assert tip[1] == ran.commit
    record = json.loads(on(LAKE, f"cat /var/lib/sideband/archive/records/{ran.name}.json"))
    key = record["remote"].removeprefix("s3://")
    access = own.key()
    fetch = f"curl -sS --fail -K - --aws-sigv4 aws:amz:us-east-1:s3 http://127.0.0.1:7480/{key} | base64 -w0"
    path = tmp_path / "back.parquet"
    path.write_bytes(base64.b64decode(on(LAKE, fetch, f'user = "{access}"\n'.encode())))
    rows = duckdb.connect().execute(
        "SELECT step, count(*), any_value(epoch_ms(time)) FROM read_parquet($path) "
        "WHERE metric = 'sideband_train_loss' GROUP BY step ORDER BY step", {"path": str(path)},
    ).fetchall()  # fmt: skip
    assert rows == [(step, 1, ran.start * 1000 + step * 15_000 + 123) for step in range(1, 101)]
    both = json.loads(on(LAKE, f"sideband-archiver compare {pair[0].name} {pair[1].name} --json"))
    left, right = both["left"]["figures"], both["right"]["figures"]
    assert right["throughput"] == pytest.approx(2 * left["throughput"], 0.01)
    assert right["mfu"] > left["mfu"] > 0
    assert on(LAKE, f"head -c 5 {both['plot']}") == "<svg "
    print(f"two experiments were compared in {both['seconds']} s")
    assert "alpha" in on(LAKE, "sideband-archiver hours")


def test_the_archives_keys_are_its_users_alone() -> None:
    secret = own.key().partition(":")[2]
    listed = on(LAKE, "stat -c '%a %U %G' /etc/sideband/archive/s3.ini /etc/sideband/archive/host.key")
    assert listed.splitlines() == ["640 root sideband-archive"] * 2
    places = "/etc/sideband /var/lib/sideband /opt/sideband /var/log /run/log"
    seen = on(LAKE, f"grep -rl {secret} {places} 2>/dev/null; true").split()
    record = "/var/lib/sideband/generations/archive/record.json"  # what undoing it would bring back
    assert set(seen) == {"/etc/sideband/archive/s3.ini", record}
    assert on(LAKE, f"stat -c '%a %U' {record}").split() == ["600", "root"]


# -- dashboards


def asked(query: str) -> list[dict[str, Any]]:
    target = "/api/v1/query?" + urllib.parse.urlencode({"query": query, "tier": "minute"})
    answer: Answer = site.tenant("administrator-ops").ask("GET", target)
    while answer.status == 429:  # so many a certificate and ten seconds
        time.sleep(2)
        answer = site.tenant("administrator-ops").ask("GET", target)
    assert answer.status == 200, (query, answer)
    found: list[dict[str, Any]] = json.loads(answer.body)["data"]["result"]
    return found


def pieces(query: str) -> set[str]:
    """What a query reads, each selector for itself over the last minutes: `or vector(0)` hides nothing."""
    tree = parse(query)
    found = {promql.write_selector(one) for one in promql.every(tree) if isinstance(one, Selector)}
    return {f"count(last_over_time({one}[5m]))" for one in found}


def test_every_question_of_every_dashboard_is_answered_with_data(training: float) -> None:
    questions = list(dashboards_kit.questions())
    wanted = {one for each in questions for one in pieces(each.query)}
    missing = set(wanted)
    # A minute is whole two minutes after it began.
    while missing and time.monotonic() - training < 240:
        missing = {one for one in missing if not asked(one)}
        if missing:
            time.sleep(5)
    assert sorted(missing) == []
    empty = [f"{one.page}: {one.panel}" for one in questions if not asked(one.query)]
    assert empty == []
