"""The sample process's rounds with a binding of a few lines: pace, deadlines, lint. No compiler is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvml_kit import series

from services.nodeagent import exposition, sample
from services.nodeagent.gpus import pci_address
from services.nodeagent.sample import FIELDS, Sample
from services.nodeagent.settings import parse


class NVMLError(Exception):
    pass


class NVMLError_LibRmVersionMismatch(NVMLError):  # noqa: N801  # NVIDIA's spelling
    pass


class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801  # NVIDIA's spelling
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801  # NVIDIA's spelling
    pass


class Binding:
    """Says what NVML would for one GPU; whatever is not told raises NotSupported."""

    NVMLError = NVMLError
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound
    NVMLError_NotSupported = NVMLError_NotSupported
    nvmlMemory_v2 = 2  # noqa: N815  # NVIDIA's spelling
    trouble: type[Exception] | None = None
    opened = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return 0
        answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "570.86",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 7,
            "nvmlDeviceGetUUID": b"GPU-a",
            "nvmlDeviceGetName": "NVIDIA H100",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:3B:00.0"),
            "nvmlDeviceGetTemperatureV": 41,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=5)],
        }

        def call(*arguments: Any) -> Any:
            self.opened += name == "nvmlInit"
            if self.trouble is not None:
                raise self.trouble
            if name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetMemoryInfo"):
                raise NVMLError_FunctionNotFound
            if name not in answers:
                raise NVMLError_NotSupported
            return answers[name]

        return call


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 100.0
        self.nvml = Binding()
        names = ("output", "gpus", "jobs", "state", "kernel_log", "maintenance")
        value = {name: str(directory / name) for name in names}
        (directory / "kernel_log").touch()
        self.sample = Sample(parse({**value, "period_seconds": 5}, FIELDS), self.nvml, lambda: self.now)

    def step(self) -> dict[str, float]:
        self.sample.step()
        return series((self.directory / "output").read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_old_or_a_new_driver_lacks_a_call_and_the_other_is_taken(bench: Bench) -> None:
    found = bench.step()
    assert found['DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"}'] == 41
    assert [name for name in found if name.startswith("DCGM")] == [
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H100"}'
    ]
    assert (found["sideband_gpu_exporter_up"], bench.nvml.opened) == (1, 1)


def test_a_driver_in_trouble_is_asked_less_and_less(bench: Bench) -> None:
    """Case 41: back-off."""
    bench.nvml.trouble = NVMLError_LibRmVersionMismatch
    tries = []
    for _ in range(60):
        before = bench.nvml.opened
        assert bench.step()["sideband_gpu_exporter_up"] == 0
        if bench.nvml.opened > before:
            tries.append(bench.now)
        bench.now += 5
    waits = [later - earlier for earlier, later in zip(tries, tries[1:])]
    assert waits == [5, 10, 20, 40, 60, 60, 60]
    assert not bench.sample.stale_library() or bench.now >= tries[-1] + 60
    bench.nvml.trouble = None
    bench.now += 60
    assert bench.step()["sideband_gpu_exporter_up"] == 1
    bench.nvml.trouble = NVMLError_LibRmVersionMismatch
    bench.step()
    bench.now += 5  # once well, trouble is new trouble
    before = bench.nvml.opened
    bench.step()
    assert bench.nvml.opened == before + 1


def test_failures_are_carried_over_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDEBAND_SAMPLE_FAILURES", "3")
    bench = Bench(tmp_path)
    bench.nvml.trouble = NVMLError_LibRmVersionMismatch
    bench.step()
    assert bench.sample._due == bench.now + 40
    assert bench.sample.failures() == 4


def test_a_text_that_fails_the_lint_takes_the_old_one_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Case 47."""
    bench.step()
    monkeypatch.setattr(exposition, "render", lambda families: 'job_ok{j="c')
    for _ in range(3):
        bench.sample.step()
        assert not (bench.directory / "output").exists()
    assert capsys.readouterr().err.count("the last line has no end") == 1
    monkeypatch.undo()
    assert bench.step()["sideband_gpu_exporter_up"] == 1


def test_addresses_are_one_however_they_are_written() -> None:
    assert pci_address("PCI:0000:3b:00") == pci_address("00000000:3B:00.0") == "00000000:3B:00.0"
    assert pci_address("nowhere") == ""


def test_the_supervisor_hears_that_rounds_go_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    said: list[str] = []
    stop = threading.Event()
    monkeypatch.setattr(
        sample.supervisor, "notify", lambda text: said.append(text) or len(said) < 3 or stop.set()
    )
    monkeypatch.setattr(stop, "wait", lambda seconds: True)
    bench.sample.run(stop)
    assert said == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
