"""The sample process: reads every GPU through NVML and the kernel log, and writes what node_exporter reads.

It has no listener. node_exporter's textfile collector, on loopback, takes up the file; vmagent pushes it
with the rest and keeps of it what the level in force lists. The process never waits for the driver longer
than a deadline.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from services import durable
from services.configuration import ConfigError
from services.nodeagent import binding, exposition, settings, supervisor
from services.nodeagent.bounded import Bounded
from services.nodeagent.gpu_jobs import GpuJobs
from services.nodeagent.gpu_report import Round, families
from services.nodeagent.gpus import Broken, Gpu, Reading, Session
from services.nodeagent.kernel_log import Xids
from services.nodeagent.settings import Field

FIELDS = {
    "period_seconds": Field(settings.seconds(0.05, 300), 5),
    "deadline_seconds": Field(settings.seconds(0.01, 30), 1),
    "backoff_seconds": Field(settings.seconds(0.05, 3600), 60),
    "output": Field(settings.PATH, "/run/sideband/textfile/sample/sample.prom"),
    "gpus": Field(settings.PATH, "/run/sideband/sample/gpus.json"),
    "state": Field(settings.PATH, "/run/sideband/sample/state.json"),
    "jobs": Field(settings.PATH, "/run/sideband/job/jobs.json"),
    "jobs_max_age_seconds": Field(settings.seconds(1, 3600), 60),
    "kernel_log": Field(settings.PATH, "/dev/kmsg"),
    "maintenance": Field(settings.PATH, "/run/sideband/maintenance"),
    "library": Field(settings.PATH_OR_NONE, ""),
    "devices": Field(settings.TEXTS, ["/dev/nvidia", "/dev/dri/"]),
    "pci": Field(settings.PATH, "/sys/bus/pci/devices"),
}
# NVML's words for a host that nobody has set up for GPUs.
_NO_DRIVER = ("LibraryNotFound", "DriverNotLoaded")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # of /sys: the vendor, and the class that GPUs are of
_FAILURES = "SIDEBAND_SAMPLE_FAILURES"  # carried over to the process that this one becomes


class Restart(Exception):
    """The library in this process is of no use any more; another process must load the one that is there
    now."""


class Sample:
    def __init__(
        self, config: dict[str, Any], nvml: Any, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._clock = clock
        self._bounded = Bounded()
        self._said: dict[str, str] = {}
        self._failures = int(os.environ.pop(_FAILURES, "0"))
        self._due = clock()
        self._known: dict[str, Gpu] = {}
        self._unequipped = False  # neither a driver nor a GPU on the bus: there is nothing to say here
        self._errors: collections.Counter[str] = collections.Counter()
        self._reopened = self._failures
        self.session = Session(nvml, self._bounded, float(config["deadline_seconds"]))
        self.xids = Xids(config["kernel_log"], config["state"])
        self.jobs = GpuJobs(config["jobs"], float(config["jobs_max_age_seconds"]))

    def say(self, topic: str, text: str) -> None:
        """Each thing once, until it changes."""
        if self._said.get(topic, "") != text:
            self._said[topic] = text
            print(f"{topic}: {text or 'well again'}", file=sys.stderr, flush=True)

    # -- one round ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One round. What it could not read is missing from the file, which is whole in any case."""
        reading = Reading()
        maintenance = os.path.exists(self._config["maintenance"])
        if maintenance:
            self._let_go()
        else:
            self._open()
            reading = self._read()
        if self._unequipped:
            return self._withdraw()
        self.xids.poll()
        self.say("kernel log", self.xids.problem)
        self._publish(reading, maintenance)

    def _let_go(self) -> None:
        """For a reset, a change of MIG or an unbind nobody may hold the device (case 46)."""
        closed = self.session.close()
        self._failures, self._due = 0, self._clock()
        if closed and self.open_handles():
            raise Restart("the library keeps device files open")
        self.say("maintenance", "" if closed else "a call that hangs in the driver holds the device")

    def _open(self) -> None:
        unwell = not self.session.is_open or self.session.incomplete
        if not unwell or self._clock() < self._due:
            return
        if self.session.is_open:
            self.session.close()
        try:
            self.session.open()
        except Broken as problem:
            self._failed(problem.error)
            return
        self._unequipped = False
        self._known.update(self.session.gpus)
        if self.session.incomplete:
            self._wait()
        else:
            self._failures = 0
        self.say("nvml", "a GPU does not answer" if self.session.incomplete else "")

    def _read(self) -> Reading:
        if not self.session.is_open:
            return Reading()
        try:
            reading = self.session.read()
        except Broken as problem:
            self.session.close()
            self._failed(problem.error)
            return Reading()
        self._errors += reading.errors
        if reading.lost and not self.session.incomplete:
            # It may come back, by a reset, and then only to a session that is opened after that.
            self.session.incomplete = True
            self._wait()
        hung = [f"{key[1]} of {key[0]}" for key in self._bounded.hung() if isinstance(key, tuple)]
        self.say("hung", ", ".join(sorted(hung)))
        return reading

    def _failed(self, error: str) -> None:
        self._unequipped = error in _NO_DRIVER and not self._known and not _on_bus(self._config["pci"])
        if not self._unequipped:
            self.say("nvml", error)
        self._errors[error] += 1
        self._wait()

    def _wait(self) -> None:
        """Slower with every failure: a driver that is being replaced is left in peace."""
        self._failures += 1
        self._reopened += 1
        period = float(self._config["period_seconds"])
        longest = max(period, float(self._config["backoff_seconds"]))
        self._due = self._clock() + min(period * 2 ** min(self._failures - 1, 16), longest)

    def stale_library(self) -> bool:
        """After a driver's upgrade the library in memory is the old one for ever: a new process loads the
        new one. Not while a call hangs: the process would wait for it."""
        return (
            self._said.get("nvml") == "LibRmVersionMismatch"
            and self._clock() >= self._due
            and not self._bounded.hung()
        )

    def open_handles(self) -> int:
        """Device files of the driver that this process holds, whoever opened them."""
        return len(_device_handles(self._config["devices"]))

    # -- writing ------------------------------------------------------------------------------------------

    def _publish(self, reading: Reading, maintenance: bool) -> None:
        seen = Round(
            up=self.session.is_open and (bool(reading.values) or not self.session.gpus),
            maintenance=maintenance,
            reading=reading,
            gpus=self._known,
            jobs=self.jobs.labels(),
            xids=self.xids.counts,
            kernel_log_up=not self.xids.problem,
            kernel_log_lost=self.xids.lost,
            hung=self._bounded.hung(),
            driver=self.session.driver if self.session.is_open else "",
            reopened=self._reopened,
            open_handles=self.open_handles(),
            errors=self._errors,
        )
        try:
            exposition.publish(self._config["output"], families(seen))
            pids = [
                {"uuid": uuid, "gpu": self._known[uuid].index, "pids": pids}
                for uuid, pids in sorted(reading.processes.items())
            ]
            text = json.dumps({"version": 1, "written": round(time.time(), 3), "gpus": pids})
            durable.write(self._config["gpus"], text.encode(), 0o640)
            self.say("output", "")
        except exposition.LintError as problem:
            self._withdraw()  # rather nothing than what makes the whole scrape fail, or what was true once
            self.say("output", str(problem))
        except OSError as error:
            self._withdraw()
            self.say("output", f"{os.path.dirname(self._config['output'])}: {error.strerror}")

    def _withdraw(self) -> None:
        for path in (self._config["output"], self._config["gpus"]):
            with contextlib.suppress(OSError):
                os.unlink(path)

    # -- rounds -------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        period = float(self._config["period_seconds"])
        if _on_bus(self._config["pci"]):
            # At once: up is 0, not missing. The first round may wait for the driver.
            self._publish(Reading(), os.path.exists(self._config["maintenance"]))
        supervisor.notify("READY=1")
        due = self._clock()
        while not stop.is_set():
            if self.stale_library():
                raise Restart("the driver is another one now")
            self.step()
            supervisor.notify("WATCHDOG=1")
            # On a grid, so that rounds keep their distance; one that took too long skips its successors.
            due = max(due + period, self._clock())
            stop.wait(due - self._clock())

    def end(self) -> None:
        """Nothing of what was true stays behind to be read as what is."""
        self._withdraw()
        self.session.close()
        self.xids.close()

    def failures(self) -> int:
        return self._failures


def _device_handles(devices: Sequence[str]) -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(tuple(devices)):
                found.append(int(name))
    return found


def _on_bus(devices: str) -> bool:
    """Whether one of NVIDIA's GPUs is plugged in, driver or not."""
    with contextlib.suppress(OSError):
        for name in os.listdir(devices):
            vendor, kind = (
                (durable.read(f"{devices}/{name}/{word}", 64) or b"").decode("ascii", "replace").strip()
                for word in ("vendor", "class")
            )
            if vendor == _NVIDIA and kind.startswith(_DISPLAY):
                return True
    return False


def _preload(library: str) -> None:
    """A library that no search path leads to. The binding asks for it by name and gets the one that is
    loaded."""
    if library:
        import ctypes

        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


def _become_anew(failures: int) -> NoReturn:
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    os.environ[_FAILURES] = str(failures)
    os.execv(sys.executable, words)


def load(path: str) -> dict[str, Any]:
    return settings.load(path, FIELDS)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="nodeagent sample", description=__doc__)
    parser.add_argument("--config", default="/etc/sideband/node/sample.json", metavar="FILE")
    parser.add_argument(
        "--once", action="store_true", help="one round, its text on the screen; 0 if NVML is up"
    )
    parser.add_argument("--check", nargs="?", const="", metavar="FILE", help="check the configuration only")
    options = parser.parse_args(arguments)
    try:
        config = load(options.check or options.config)
        if options.check is not None:
            return 0
        for handle in _device_handles(config["devices"]):  # of the process that this one was
            os.close(handle)
        nvml = binding.load()
        _preload(config["library"])
    except (ConfigError, binding.BindingError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sample = Sample(config, nvml)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    try:
        if options.once:
            sample.step()
            print((durable.read(config["output"], 1 << 24) or b"").decode(), end="")
            return 0 if sample.session.is_open else 1
        sample.run(stop)
        sample.end()
    except Restart as reason:
        print(f"starting anew: {reason}", file=sys.stderr, flush=True)
        sample.xids.close()
        _become_anew(sample.failures())
    return 0
