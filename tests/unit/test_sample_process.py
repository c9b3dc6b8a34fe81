"""The sample process as it runs: the built program, the real binding, a fake library below it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from nvml_kit import TEMPERATURE, UP, Bed, names_of, replace, series, stop, value

from services import build, vendor
from services.nodeagent import exposition
from services.nodeagent.gpu_fields import METRICS

# -- values -----------------------------------------------------------------------------------------------


def test_every_field_under_dcgm_exporters_names(bed: Bed) -> None:
    """C11."""
    bed.script(
        f"device {bed.directory}/nvidia0", "gpu 0 utilization 91", "gpu 0 memory_utilization 40",
        "gpu 0 memory_total 85899345920", "gpu 0 memory_used 42949672960", "gpu 0 memory_reserved 1048576",
        "gpu 0 temperature 63", "gpu 0 power 501250", "gpu 0 energy 18446744073709", "gpu 0 clock_sm 1755",
        "gpu 0 clock_memory 2619", "gpu 0 pcie_tx 1000", "gpu 0 pcie_rx 2000", "gpu 0 pcie_replay 3",
        "gpu 0 ecc_sbe_volatile 4", "gpu 0 ecc_dbe_volatile 5", "gpu 0 ecc_sbe_aggregate 6",
        "gpu 0 ecc_dbe_aggregate 7", "gpu 0 fan 33",
    )  # fmt: skip
    done = bed.once()
    assert done.returncode == 0, done.stderr
    found = series(done.stdout)
    expected = {
        "GPU_UTIL": 91, "MEM_COPY_UTIL": 40, "FB_TOTAL": 81920, "FB_USED": 40960, "FB_FREE": 40959,
        "GPU_TEMP": 63, "POWER_USAGE": 501.25, "TOTAL_ENERGY_CONSUMPTION": 18446744073709, "SM_CLOCK": 1755,
        "MEM_CLOCK": 2619, "PCIE_TX_THROUGHPUT": 1000, "PCIE_RX_THROUGHPUT": 2000, "PCIE_REPLAY_COUNTER": 3,
        "ECC_SBE_VOL_TOTAL": 4, "ECC_DBE_VOL_TOTAL": 5, "ECC_SBE_AGG_TOTAL": 6, "ECC_DBE_AGG_TOTAL": 7,
        "FAN_SPEED": 33,
    }  # fmt: skip
    assert {name: value(found, f"DCGM_FI_DEV_{name}") for name in expected} == expected
    assert names_of(found, 0) == {metric.name for metric in METRICS}
    assert (found[UP], found["sideband_gpu_count"], found["sideband_gpu_open_handles"]) == (1, 1, 1)
    assert 'sideband_gpu_driver_info{version="570.86"}' in found
    exposition.lint(done.stdout)


def test_an_unsupported_field_is_that_series_missing(bed: Bed) -> None:
    """Case 40."""
    bed.script(
        "gpu 0 temperature 40",
        "gpu 1 fan NotSupported",
        "gpu 1 ecc_sbe_volatile NotSupported",
        "gpu 1 power Unknown",
        "gpu 1 temperature 41",
        "gpu 1 energy 18446744073709551615",  # NVML's way of saying that there is none
    )
    done = bed.once()
    found = series(done.stdout)
    every = {metric.name for metric in METRICS}
    missing = {"FAN_SPEED", "ECC_SBE_VOL_TOTAL", "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION"}
    assert names_of(found, 0) == every
    assert names_of(found, 1) == every - {f"DCGM_FI_DEV_{name}" for name in missing}
    assert value(found, TEMPERATURE, 1) == 41
    assert found['sideband_gpu_call_errors_total{error="Unknown"}'] == 1
    assert not [name for name in found if "NotSupported" in name]
    assert "N/A" not in done.stdout
    assert found[UP] == 1


def test_a_host_without_gpus_or_driver_says_so_and_no_more(bed: Bed) -> None:
    bed.script("driver 570.86")
    found = series(bed.once().stdout)
    assert (found[UP], found["sideband_gpu_count"]) == (1, 0)
    bed.value["library"] = ""
    if subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.count("libnvidia-ml.so.1"):
        pytest.skip("this machine has a driver")
    done = bed.once()
    assert done.returncode == 1
    assert series(done.stdout)[UP] == 0
    assert "LibraryNotFound" in done.stderr
    assert "DCGM" not in done.stdout


def test_job_and_tenant_ride_on_what_a_job_does_not_on_what_the_hardware_suffers(bed: Bed) -> None:
    bed.script("gpu 0 utilization 9", "gpu 1 utilization 8", "gpu 2 utilization 7", "gpu 0 processes 77 78")
    uuid = "GPU-00000000-0000-0000-0000-00000000000{}".format
    jobs = [
        {"job": "slurm-7", "tenant": "alpha", "state": "running", "gpus": [uuid(0), uuid(1)]},
        {"job": "slurm-8", "tenant": "alpha", "state": "running", "gpus": [uuid(1)]},
        {"job": "slurm-9", "tenant": "beta", "state": "ended", "gpus": [uuid(2)]},
        {"job": 'a"b', "tenant": None, "state": "running", "gpus": [uuid(2)]},
    ]
    replace(bed.directory / "jobs", json.dumps({"written": time.time(), "jobs": jobs}))
    found = series(bed.once().stdout)
    model = 'modelName="NVIDIA H100 80GB HBM3"'
    assert (
        found[f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{uuid(0)}",{model},job="slurm-7",tenant="alpha"}}'] == 9
    )
    # Two jobs on one GPU: what they agree on.
    assert found[f'DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="{uuid(1)}",{model},tenant="alpha"}}'] == 8
    assert found[f'DCGM_FI_DEV_GPU_UTIL{{gpu="2",UUID="{uuid(2)}",{model}}}'] == 7
    assert f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0",UUID="{uuid(0)}",{model}}}' in found
    listed = json.loads(bed.text("gpus"))["gpus"]
    assert listed[0] == {"uuid": uuid(0), "gpu": 0, "pids": [77, 78]}
    replace(bed.directory / "jobs", json.dumps({"written": time.time() - 3600, "jobs": jobs}))
    assert "slurm-7" not in bed.once().stdout


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"written": 1}', '{"written": "x", "jobs": [1]}'])
def test_a_damaged_job_list_labels_nothing_and_stops_nothing(bed: Bed, damage: str) -> None:
    bed.script("gpu 0 utilization 9")
    replace(bed.directory / "jobs", damage)
    done = bed.once()
    assert done.returncode == 0, done.stderr
    assert "job=" not in done.stdout


# -- events, maintenance, ends ----------------------------------------------------------------------------


def test_xids_are_counters_and_there_before_the_first(bed: Bed) -> None:
    """Case 43."""
    bed.script("gpu 0 pci 00000000:3B:00.0")
    process = bed.start()
    bed.until(lambda found: value(found, "sideband_gpu_xid_any_total") == 0)
    with (bed.directory / "kernel_log").open("a") as file:
        file.write("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n")
        file.write("NVRM: Xid (PCI:0000:3b:00): 45, pid=4242, name=train\n")
        file.write("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n")
    found = bed.until(lambda found: value(found, "sideband_gpu_xid_any_total") == 3)
    by_number = {
        re.search(r'xid="(\d+)"', name)[1]: number  # type: ignore[index]
        for name, number in found.items()
        if name.startswith("sideband_gpu_xid_errors_total")
    }
    assert by_number == {"79": 2, "45": 1}
    # The GPU goes, its errors stay told under its name.
    bed.script("driver 1")
    replace(bed.directory / "script", "all GpuIsLost\n")
    found = bed.until(lambda found: found.get(UP) == 0)
    assert value(found, "sideband_gpu_xid_any_total") == 3
    stop(process)


def handles(process: subprocess.Popen[str], path: Path) -> int:
    directory = f"/proc/{process.pid}/fd"
    return sum(os.readlink(f"{directory}/{name}") == str(path) for name in os.listdir(directory))


def test_maintenance_lets_go_of_the_device_and_takes_it_up_again(bed: Bed) -> None:
    """Case 46."""
    device = bed.directory / "nvidia0"
    bed.script("gpu 0 temperature 40", f"device {device}")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    assert handles(process, device) == 1
    (bed.directory / "maintenance").touch()
    found = bed.until(lambda found: found.get("sideband_gpu_maintenance") == 1)
    assert (found[UP], found["sideband_gpu_open_handles"]) == (0, 0)
    assert handles(process, device) == 0
    assert not [name for name in found if name.startswith("DCGM")]
    time.sleep(0.5)
    assert handles(process, device) == 0
    (bed.directory / "maintenance").unlink()
    bed.until(lambda found: found.get(UP) == 1 and found["sideband_gpu_maintenance"] == 0)
    assert "anew" not in stop(process)


def test_a_library_that_keeps_the_device_is_left_with_its_process(bed: Bed) -> None:
    """Case 46: what nvmlShutdown leaves open, and inheritable too, only another process gets rid of."""
    device = bed.directory / "nvidia0"
    bed.script("gpu 0 temperature 40", f"device {device}", "keep")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    (bed.directory / "maintenance").touch()
    bed.until(lambda found: found.get("sideband_gpu_maintenance") == 1)
    assert handles(process, device) == 0
    assert "keeps device files open" in stop(process)


def test_an_end_leaves_no_values_behind(bed: Bed) -> None:
    bed.script("gpu 0 temperature 40")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    stop(process)
    assert not (bed.directory / "output").exists()
    assert not (bed.directory / "gpus").exists()


def test_two_writers_share_a_directory_and_no_name(bed: Bed, tmp_path: Path) -> None:
    """Case 47: a name in two files with two HELPs, or one series twice, would break the scrape."""
    bed.script("gpu 0 temperature 40")
    sample = bed.once().stdout
    other = Bed(tmp_path, bed.program, word="job")
    done = other.once()
    assert done.returncode == 0, done.stderr
    names = [set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) for text in (sample, done.stdout)]
    assert all(names)
    assert not names[0] & names[1]


# -- the program ------------------------------------------------------------------------------------------


def test_another_packages_binding_is_not_taken(bed: Bed, tmp_path: Path) -> None:
    """Case 38: three packages install `pynvml`; whatever the system has, ours is used."""
    foreign = tmp_path / "site"
    foreign.mkdir()
    for name in ("pynvml", "sideband_vendor"):
        (foreign / f"{name}.py").write_text("raise SystemExit('a stranger')\n")
    bed.script("gpu 0 temperature 40")
    command = [word for word in bed.command("--once") if word != "-I"]  # even where a variable is obeyed
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=foreign,
        env={**bed.environment, "PYTHONPATH": str(foreign)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert TEMPERATURE in done.stdout


def rebuilt(program: Path, path: Path, member: str, data: bytes | None) -> None:
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            content = old.read(entry) if entry.filename != member else data
            if content is not None:
                new.writestr(entry.filename, content)


def test_a_binding_that_is_not_what_was_built_in_is_refused(bed: Bed, tmp_path: Path) -> None:
    bed.script("gpu 0 temperature 40")
    original = bed.program
    bed.program = tmp_path / "other.pyz"
    rebuilt(original, bed.program, "sideband_vendor/pynvml.py", b"print('a stranger')\n")
    done = bed.once()
    assert done.returncode == 2
    assert "not what was built in" in done.stderr
    assert "stranger" not in done.stdout
    rebuilt(original, bed.program, "sideband_vendor/pynvml.py", None)
    done = bed.once()
    assert done.returncode == 2
    assert "binding" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_binding_that_another_package_has_overwritten_is_not_built_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Case 38, where the program is made: the three packages overwrite each other's file in site-packages."""
    real = vendor.importlib.metadata.distribution("nvidia-ml-py")
    about = tmp_path / "nvidia_ml_py.dist-info"
    about.mkdir()
    for name in ("METADATA", "RECORD"):
        (about / name).write_text(real.read_text(name) or "")
    (tmp_path / "pynvml.py").write_text("# pynvml 11, a wrapper\n")
    monkeypatch.setattr(
        vendor.importlib.metadata,
        "distribution",
        lambda name: vendor.importlib.metadata.PathDistribution(about),
    )
    with pytest.raises(vendor.BuildError, match="not that of nvidia-ml-py"):
        build.archive("nodeagent")
    (about / "RECORD").write_text("")
    with pytest.raises(vendor.BuildError, match="lists no"):
        build.archive("nodeagent")


def test_of_the_binding_what_is_used_is_built_in_letter_by_letter() -> None:
    """C7: the whole would cost each node 13 MB and each visit to it 330 kB."""
    _, whole = vendor.module()
    text = build.members("nodeagent")["sideband_vendor/pynvml.py"].decode()
    assert "Copyright (c)" in text.partition("import")[0]
    assert len(text) < 40_000
    lines = iter(whole.decode().splitlines())
    assert all(line in lines for line in text.splitlines())  # the same lines in the same order
    with pytest.raises(vendor.BuildError, match="has no nvmlDeviceGetNothing"):
        vendor.reduced(whole.decode(), {"nvmlInit", "nvmlDeviceGetNothing"})


def test_the_other_processes_do_not_load_the_binding(nodeagent: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(nodeagent)!r}); from services.nodeagent import job, policy"
    code += "; print([name for name in sys.modules if 'vendor' in name or 'ctypes' in name])"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_bad_configuration_names_every_problem(bed: Bed) -> None:
    bed.value |= {"perod_seconds": 5, "output": "relative", "deadline_seconds": "1"}
    done = bed.once()
    assert done.returncode == 2
    for words in (
        "perod_seconds: unknown; hint: period_seconds",
        "output: an absolute path",
        "deadline_seconds",
    ):
        assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert (
        subprocess.run([*bed.command()[:4], "--check", "/nonexistent"], capture_output=True).returncode == 2
    )


def test_a_good_configuration_passes_its_check(bed: Bed) -> None:
    done = subprocess.run([*bed.command()[:4], "--check", str(bed.configure())], capture_output=True)
    assert done.returncode == 0


def test_a_directory_that_cannot_be_written_is_said_once_and_survived(bed: Bed) -> None:
    bed.script("gpu 0 temperature 40")
    bed.value["output"] = str(bed.directory / "later" / "sample.prom")
    process = bed.start()
    time.sleep(1.5)
    (bed.directory / "later").mkdir()
    deadline = time.monotonic() + 20
    while not Path(bed.value["output"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert Path(bed.value["output"]).exists()
    said = stop(process)
    assert said.count("No such file") == 1


def test_values_that_cannot_be_replaced_are_taken_away(bed: Bed) -> None:
    """Case 41: no frozen values."""
    bed.script("gpu 0 temperature 40")
    bed.value["gpus"] = str(bed.directory / "own" / "gpus.json")
    (bed.directory / "own").mkdir()
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    shutil.rmtree(bed.directory / "own")
    bed.until(lambda found: not found)
    (bed.directory / "own").mkdir()
    bed.until(lambda found: found.get(UP) == 1)
    stop(process)
