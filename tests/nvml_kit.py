"""The fake NVML, the real programs, and what they write: shared by the tests of `sample` and `job`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
UP = "sideband_gpu_exporter_up"
ROOT = Path(__file__).resolve().parent.parent


def library(directory: Path) -> Path:
    if shutil.which(os.environ.get("CC", "gcc")) is None:
        pytest.skip("no C compiler here: the fake NVML cannot be built")
    done = subprocess.run(
        [ROOT / "lab" / "fake_nvml" / "build", directory], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def series(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def replace(path: Path, text: str) -> None:
    candidate = path.with_name(path.name + ".new")
    candidate.write_text(text)
    candidate.replace(path)


@dataclass
class Bed:
    """One node's directory: configuration, script of the fake NVML, and what the programs write."""

    directory: Path
    program: Path
    library: Path | None = None
    value: dict[str, Any] = field(default_factory=dict)
    word: str = "sample"
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = ("output", "gpus", "jobs")
        self.value = {name: str(self.directory / name) for name in own} | {"period_seconds": 0.1}
        if self.word == "sample":
            self.value |= {
                "state": str(self.directory / "state"),
                "kernel_log": str(self.directory / "kernel_log"),
                "maintenance": str(self.directory / "maintenance"),
                "deadline_seconds": 0.3,
                "backoff_seconds": 1,
                "library": str(self.library or ""),
                "devices": [str(self.directory / "nvidia")],
            }
            (self.directory / "kernel_log").touch()
            (self.directory / "nvidia0").touch()

    def script(self, *lines: str) -> None:
        replace(self.directory / "script", "".join(line + "\n" for line in lines))

    def configure(self) -> Path:
        path = self.directory / f"{self.word}.json"
        path.write_text(json.dumps(self.value))
        return path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-I", str(self.program), self.word, "--config", str(self.configure()), *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SIDEBAND_FAKE_NVML": str(self.directory / "script")}

    def once(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--once", *words), capture_output=True, text=True, timeout=60, env=self.environment
        )

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True, env=self.environment)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=10)

    def text(self, name: str = "output") -> str:
        try:
            return (self.directory / name).read_text()
        except FileNotFoundError:
            return ""

    @property
    def series(self) -> dict[str, float]:
        return series(self.text())

    def until(self, holds: Callable[[dict[str, float]], Any], seconds: float = 20) -> dict[str, float]:
        """Wait for the series to be so; the patience is for a busy machine, not part of what is tested."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.series
            if holds(found):
                return found
            time.sleep(0.02)
        raise AssertionError(f"not so within {seconds} s:\n{self.text()}")


def names_of(found: dict[str, float], gpu: int) -> set[str]:
    return {name.partition("{")[0] for name in found if f'gpu="{gpu}"' in name and name.startswith("DCGM")}


def value(found: dict[str, float], name: str, gpu: int = 0) -> float | None:
    hits = [number for key, number in found.items() if key.startswith(f'{name}{{gpu="{gpu}"')]
    assert len(hits) <= 1, hits
    return hits[0] if hits else None


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    return said
