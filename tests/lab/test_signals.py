"""GPUs and jobs of the lab, from a node's stand-ins to the gateway (C8, C11, Q5; cases 43, 44, 46)."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from front import site

from lab.sblab import gpus, topology

pytestmark = pytest.mark.lab
NODE, UID = "node1", 20001
FAKE, LOG, MAINTENANCE = f"/{gpus.SCRIPT}", f"/{gpus.KERNEL_LOG}", "/run/sideband/maintenance"
LOOP = "import time\nfor step in range(100000):\n    print('step', step, flush=True)\n    time.sleep(1)\n"
Rows = list[dict[str, Any]]


def on(script: str, node: str = NODE) -> str:
    done = subprocess.run(
        [str(site.PROJECT / "lab/lab"), "exec", node, "sh", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def gpu(*lines: str, node: str = NODE) -> None:
    """What the GPUs of a node are from now on, beside their names."""
    text = gpus.script(topology.load().host(node)) + "".join(f"{line}\n" for line in lines)
    on(f"cat >{FAKE}.new <<'END'\n{text}END\nmv {FAKE}.new {FAKE}", node)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    on(f"rm -f {MAINTENANCE}")
    gpu()


def eventually(ask: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := ask()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def asked(tenant: str, query: str) -> Rows:
    answer = site.tenant(f"tenant-{tenant}").ask("GET", "/api/v1/query?query=" + urllib.parse.quote(query))
    assert answer.status == 200, answer
    rows: Rows = json.loads(answer.body)["data"]["result"]
    return rows


def job_of(pid: int) -> dict[str, Any]:
    listed = json.loads(on("cat /run/sideband/job/jobs.json"))["jobs"]
    return next((job for job in listed if any(one["pid"] == pid for one in job["processes"])), {})


def state_of(name: str) -> str:
    listed = json.loads(on("cat /run/sideband/job/jobs.json"))["jobs"]
    return next((str(job["state"]) for job in listed if job["job"] == name), "")


@pytest.fixture
def training() -> Iterator[int]:
    """A loop under a tenant's uid; nobody was told of it."""
    home = "/tmp/alpha"
    on(f"mkdir -p {home} && cat >{home}/train_signals.py <<'END'\n{LOOP}END\nchown -R {UID}:{UID} {home}")
    # The shell that opens the output is the user's too: root's files are nobody's to see.
    run = f"cd {home}; exec python3 train_signals.py >run.out 2>&1"
    setpriv = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    pid = int(on(f"setsid {setpriv} sh -c '{run}' >/dev/null 2>&1 & echo $!"))
    yield pid
    on(f"kill {pid} 2>/dev/null; rm -rf {home}; true")


def test_a_gpus_temperature_is_in_the_hot_tier() -> None:
    gpu("gpu 0 temperature 71")
    want = 'node="node1",gpu="0"'
    assert eventually(lambda: site.hot(f"DCGM_FI_DEV_GPU_TEMP{{{want}}} == 71"))
    (row,) = site.hot(f"DCGM_FI_DEV_GPU_TEMP{{{want}}}")
    assert set(row["metric"]) == {
        "__name__", "node", "rack", "site", "instance", "gpu", "UUID", "modelName",
    }  # fmt: skip


def test_a_loop_under_a_tenants_uid_is_that_tenants_job(training: int) -> None:
    """Its GPU's curves are its tenant's at the gateway, and another's not."""
    gpu(f"gpu 0 processes {training}", "gpu 0 utilization 93", "gpu 0 temperature 72")
    began = time.monotonic()
    job = eventually(lambda: (found := job_of(training)) and found["gpus"] and found, 60)
    assert (job["tenant"], job["uid"], job["name"], job["state"]) == (
        "alpha", UID, "train_signals.py", "running",
    )  # fmt: skip
    assert [one["path"] for one in job["files"]] == ["/tmp/alpha/run.out"]
    curve = f'{{__name__="DCGM_FI_DEV_GPU_UTIL:1m_max",job="{job["job"]}"}}'
    (row,) = eventually(lambda: asked("alpha", curve))
    print(f"a GPU's curve was at the gateway after {time.monotonic() - began:.0f} s")
    assert (row["metric"]["tenant"], row["metric"]["gpu"], row["value"][1]) == ("alpha", "0", "93")
    assert asked("beta", curve) == []
    heat = f'{{__name__="DCGM_FI_DEV_GPU_TEMP:1m_max",job="{job["job"]}"}} == 72'
    assert eventually(lambda: site.minute(heat))
    assert eventually(
        lambda: asked("alpha", f'{{__name__="sideband_job_workers:1m_max",job="{job["job"]}"}}')
    )
    whole = f'{{__name__="job:DCGM_FI_DEV_GPU_UTIL:1m_max",job="{job["job"]}"}}'
    (row,) = eventually(lambda: site.minute(whole))
    assert set(row["metric"]) == {"__name__", "site", "tenant", "job"}
    # The raw tier knows the GPU and nobody's job.
    assert site.hot(f'{{job="{job["job"]}"}}') == []
    on(f"kill {training}")
    assert eventually(lambda: state_of(job["job"]) == "ended")


def test_xid_errors_are_counted_each_one() -> None:
    """Case 43."""

    def counted() -> dict[str, float]:
        rows = site.hot('sum by (xid) (sideband_gpu_xid_errors_total{node="node1"})')
        return {row["metric"]["xid"]: float(row["value"][1]) for row in rows}

    before = counted()
    lines = [f"NVRM: Xid (PCI:0000:10:00): {number}, pid=1, name=x" for number in (79, 45, 79)]
    on("".join(f"echo '{line}' >>{LOG}; " for line in lines))
    want = {xid: before.get(xid, 0) + count for xid, count in (("79", 2), ("45", 1))}
    assert eventually(lambda: {**counted(), **want} == counted() and counted())
    (row,) = site.hot('sideband_gpu_xid_errors_total{node="node1",xid="79"}')
    assert row["metric"]["gpu"] == "0"
    assert row["metric"]["pci_bus_id"] == "00000000:10:00.0"


def test_the_sandbox_opens_devices_and_nothing_else() -> None:
    """Case 44: hardened, and yet it reads every GPU."""
    for unit, bar in (("sideband-sample", 4.0), ("sideband-job", 4.0)):
        report = on(f"systemd-analyze security --no-pager {unit}.service | tail -1")
        assert float(re.search(r"(\d+\.\d)", report)[1]) <= bar, report  # type: ignore[index]
    pid = on("systemctl show -p MainPID --value sideband-sample").strip()
    inside = f"nsenter -t {pid} -m setpriv --reuid sideband-sample --regid sideband-sample --clear-groups"
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm"):
        on(f"{inside} sh -c ': </dev/{name}'")
    assert on(f"readlink /proc/{pid}/fd/* | grep -c /dev/nvidia").strip() == "1"
    assert site.hot('count by (node) (DCGM_FI_DEV_GPU_UTIL{node="node1"})')[0]["value"][1] == "2"
    # The process that looks at what users shape has no way to the key that speaks for the node.
    pid = on("systemctl show -p MainPID --value sideband-job").strip()
    hidden = f"nsenter -t {pid} -m cat /etc/sideband/node/host.key 2>/dev/null | wc -c"
    assert on(hidden).strip() == "0"
    assert on(f"nsenter -t {pid} -n ip -o link | grep -cv ' lo:'; true").strip() == "0"


def test_maintenance_lets_go_of_every_device_and_takes_it_up_again() -> None:
    """Case 46."""
    handles = (
        "for p in $(pgrep -u sideband-sample); do readlink /proc/$p/fd/*; done | grep -c /dev/nvidia; true"
    )
    assert on(handles).strip() == "1"
    on(f"touch {MAINTENANCE}")
    assert eventually(lambda: on(handles).strip() == "0", 30)
    assert eventually(lambda: site.hot('sideband_gpu_maintenance{node="node1"} == 1'))
    on(f"rm {MAINTENANCE}")
    assert eventually(lambda: on(handles).strip() == "1", 30)


def test_what_a_user_pushes_on_the_node_goes_nowhere() -> None:
    """Else a user could say that a series is another tenant's."""
    text = 'DCGM_FI_DEV_GPU_UTIL{gpu="9",UUID="GPU-0f",job="slurm-1",tenant="alpha"} 1'
    program = (
        "import urllib.request as r; print(r.urlopen(r.Request("
        f"'http://127.0.0.1:8529/api/v1/import/prometheus', data={text.encode()!r})).status)"
    )
    assert on(f"setpriv --reuid {UID} --clear-groups python3 - <<'END'\n{program}\nEND").strip() == "204"
    time.sleep(8)
    assert site.hot('{UUID="GPU-0f"}') == []
