"""The session with NVML: opened, read within bounds, closed, opened again when the driver has changed."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from services.nodeagent import gpu_fields
from services.nodeagent.bounded import Bounded, Hung, Key
from services.nodeagent.gpu_fields import Values

_OPEN_PATIENCE = 20.0  # without persistence mode each GPU wakes up first
# A field that this GPU or this driver has not: missing, and nothing to report.
_ABSENT = ("NotSupported", "FunctionNotFound", "NotFound", "VgpuEccNotSupported")
# Not one GPU's trouble: there is no session to be had.
_BROKEN = ("Uninitialized", "DriverNotLoaded", "LibRmVersionMismatch")
_LOST = ("GpuIsLost", "ResetRequired")
_PCI = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})")


class Broken(Exception):
    """NVML cannot be used now; `error` is its own word for why."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    model: str
    pci: str

    @property
    def labels(self) -> dict[str, str]:
        # As dcgm-exporter has them, but Hostname, which a receiver knows better, and device, which repeats
        # gpu.
        return {"gpu": str(self.index), "UUID": self.uuid, "modelName": self.model}


@dataclass
class Reading:
    """One round: the values and processes of each GPU that answered, and what did not."""

    values: dict[str, Values] = field(default_factory=dict)
    processes: dict[str, list[int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)


def pci_address(text: str) -> str:
    """`PCI:0000:3b:00` and `00000000:3B:00.0` are one address; empty for what is none."""
    found = _PCI.search(text)
    if found is None:
        return ""
    domain, bus, device = (int(part, 16) for part in found.groups())
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"


def error_name(error: Exception) -> str:
    """NVML's own word. Not its text: asking for that would be one more call into a library that is in
    trouble."""
    return type(error).__name__.replace("NVMLError_", "")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Session:
    def __init__(self, nvml: Any, bounded: Bounded, patience: float) -> None:
        self._nvml = nvml
        self._bounded = bounded
        self._patience = patience
        self._handles: dict[str, Any] = {}
        self.gpus: dict[str, Gpu] = {}
        self.driver = ""
        self.incomplete = False
        self.is_open = False

    # -- opening and closing ------------------------------------------------------------------------------

    def open(self) -> None:
        """Raises Broken where NVML cannot be had."""
        wanted = [True]
        try:
            found = self._bounded.ask("open", lambda: self._open(wanted), _OPEN_PATIENCE)
        except Hung:
            wanted.clear()
            raise Broken("Hung") from None
        except self._nvml.NVMLError as error:
            raise Broken(error_name(error)) from None
        self._handles, self.gpus, self.driver, self.incomplete = found
        self.is_open = True

    def _open(self, wanted: list[bool]) -> tuple[dict[str, Any], dict[str, Gpu], str, bool]:
        nvml = self._nvml
        nvml.nvmlInit()
        handles: dict[str, Any] = {}
        gpus: dict[str, Gpu] = {}
        incomplete = False
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            for index in range(nvml.nvmlDeviceGetCount()):
                try:
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
                    model = _text(nvml.nvmlDeviceGetName(handle))
                    pci = pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
                except nvml.NVMLError as error:
                    if error_name(error) in _BROKEN:
                        raise
                    incomplete = True  # this one is lost, or somebody else's: the others are read
                    continue
                handles[uuid], gpus[uuid] = handle, Gpu(index, uuid, model, pci)
        except BaseException:
            nvml.nvmlShutdown()
            raise
        if not wanted:  # nobody waits any more: what was opened would stay open unseen
            nvml.nvmlShutdown()
        return handles, gpus, driver, incomplete

    def close(self) -> bool:
        """Let go of every device file. False if a call that hangs keeps them."""
        if not self.is_open:
            return not self._bounded.hung()
        self.is_open = False
        self._handles = {}
        try:
            self._bounded.ask("close", self._nvml.nvmlShutdown, self._patience)
        except Hung:
            return False
        except self._nvml.NVMLError:
            pass  # the driver has gone before us
        return not self._bounded.hung()

    # -- reading ------------------------------------------------------------------------------------------

    def read(self) -> Reading:
        """All fields of all GPUs. Raises Broken where no GPU answers any more."""
        calls: list[tuple[Key, Callable[[], Any]]] = []
        for uuid, handle in self._handles.items():
            for reader in gpu_fields.READERS:
                calls.append(((uuid, reader.name), _bound(reader.read, self._nvml, handle)))
            calls.append(((uuid, "processes"), _bound(gpu_fields.processes, self._nvml, handle)))
        results = self._bounded.run(calls, self._patience, self._skip)
        reading = Reading()
        for key, result in results.items():
            uuid, name = cast("tuple[str, str]", key)
            if isinstance(result, Exception):
                self._sort_out(uuid, result, reading)
            elif name == "processes":
                reading.processes[uuid] = result
            else:
                reading.values.setdefault(uuid, {}).update(result)
        for uuid in reading.lost:  # what answered before it went is not a picture of it
            reading.values.pop(uuid, None)
            reading.processes.pop(uuid, None)
        if self._handles and not reading.values and not reading.lost and not self._bounded.hung():
            raise Broken(reading.errors.most_common(1)[0][0] if reading.errors else "NoValue")
        return reading

    def _skip(self, hung: Key, other: Key) -> bool:
        """Two calls of one GPU that hang are the GPU: its other calls are not tried, each at the price of a
        wait."""
        if not isinstance(hung, tuple) or not isinstance(other, tuple) or hung[0] != other[0]:
            return False
        return sum(1 for key in self._bounded.hung() if isinstance(key, tuple) and key[0] == other[0]) > 1

    def _sort_out(self, uuid: str, error: Exception, reading: Reading) -> None:
        name = error_name(error)
        if name in _ABSENT:
            return
        reading.errors[name] += 1
        if name in _LOST:
            reading.lost.add(uuid)


def _bound(function: Callable[[Any, Any], Any], nvml: Any, handle: Any) -> Callable[[], Any]:
    return lambda: function(nvml, handle)
