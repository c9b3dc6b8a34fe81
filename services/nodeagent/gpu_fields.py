"""What is read of each GPU, and under which of dcgm-exporter's names.

A call may serve several names (utilisation, memory). Types and units are dcgm-exporter's, with one
exception: the PCIe throughput that NVML gives is a rate over its last 20 ms, so it is a gauge here, which
dcgm-exporter's list calls a counter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# What NVML puts where it has no value: all bits set, in the widths that it uses.
_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)

Values = dict[str, float]


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    help: str
    # Whether the series carries job and tenant. A counter of the hardware's own faults does not: a new job
    # would start a new series, and the fault that it starts with would count as none.
    of_job: bool = True


METRICS = (
    Metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %)."),
    Metric("DCGM_FI_DEV_FB_TOTAL", "gauge", "Total framebuffer memory (in MiB)."),
    Metric("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    Metric("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    Metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    Metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ)."),
    Metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz)."),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz)."),
    Metric("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "gauge", "PCIe transmit rate over 20 ms (in KB/s)."),
    Metric("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "gauge", "PCIe receive rate over 20 ms (in KB/s)."),
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", False),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Single-bit volatile ECC errors.", False),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Double-bit volatile ECC errors.", False),
    Metric("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "Single-bit persistent ECC errors.", False),
    Metric("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Double-bit persistent ECC errors.", False),
    Metric("DCGM_FI_DEV_FAN_SPEED", "gauge", "Fan speed (in %)."),
)


@dataclass(frozen=True)
class Reader:
    """One call into NVML, and the values that it yields."""

    name: str
    read: Callable[[Any, Any], Values]


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or value in _NOT_AVAILABLE:
        return None
    return value


def _some(pairs: Mapping[str, Any]) -> Values:
    numbers = ((name, _number(value)) for name, value in pairs.items())
    return {name: number for name, number in numbers if number is not None}


def _utilisation(nvml: Any, handle: Any) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return _some({"DCGM_FI_DEV_GPU_UTIL": rates.gpu, "DCGM_FI_DEV_MEM_COPY_UTIL": rates.memory})


def _memory(nvml: Any, handle: Any) -> Values:
    """The second version takes what the driver reserves off `used`, as dcgm-exporter does; old drivers lack
    it."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    sizes = {"TOTAL": memory.total, "FREE": memory.free, "USED": memory.used}
    found = _some({f"DCGM_FI_DEV_FB_{name}": size for name, size in sizes.items()})
    return {name: int(size) // 2**20 for name, size in found.items()}


def _temperature(nvml: Any, handle: Any) -> Values:
    """The plain call is announced to go with CUDA 14; the one after it is missing in drivers of today."""
    try:
        value = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    except nvml.NVMLError_FunctionNotFound:
        value = nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU)
    return _some({"DCGM_FI_DEV_GPU_TEMP": value})


def _power(nvml: Any, handle: Any) -> Values:
    milliwatts = _number(nvml.nvmlDeviceGetPowerUsage(handle))
    return _some({"DCGM_FI_DEV_POWER_USAGE": None if milliwatts is None else milliwatts / 1000})


def _plain(name: str, function: str, *constants: str) -> Callable[[Any, Any], Values]:
    def read(nvml: Any, handle: Any) -> Values:
        return _some({name: getattr(nvml, function)(handle, *(getattr(nvml, one) for one in constants))})

    return read


def _ecc(name: str, *constants: str) -> Reader:
    read = _plain(f"DCGM_FI_DEV_ECC_{name}_TOTAL", "nvmlDeviceGetTotalEccErrors", *constants)
    return Reader(f"ecc_{name.lower()}", read)


def _one(name: str, metric: str, function: str, *constants: str) -> Reader:
    return Reader(name, _plain(f"DCGM_FI_DEV_{metric}", function, *constants))


READERS = (
    Reader("utilization", _utilisation),
    Reader("memory", _memory),
    Reader("temperature", _temperature),
    Reader("power", _power),
    _one("energy", "TOTAL_ENERGY_CONSUMPTION", "nvmlDeviceGetTotalEnergyConsumption"),
    _one("clock_sm", "SM_CLOCK", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    _one("clock_memory", "MEM_CLOCK", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    _one("pcie_tx", "PCIE_TX_THROUGHPUT", "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_TX_BYTES"),
    _one("pcie_rx", "PCIE_RX_THROUGHPUT", "nvmlDeviceGetPcieThroughput", "NVML_PCIE_UTIL_RX_BYTES"),
    _one("pcie_replay", "PCIE_REPLAY_COUNTER", "nvmlDeviceGetPcieReplayCounter"),
    _ecc("SBE_VOL", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
    _ecc("DBE_VOL", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
    _ecc("SBE_AGG", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC"),
    _ecc("DBE_AGG", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC"),
    _one("fan", "FAN_SPEED", "nvmlDeviceGetFanSpeed"),
)


def processes(nvml: Any, handle: Any) -> list[int]:
    """The PIDs that compute on a GPU, those that MPS serves too. NVML names them as this host does."""
    found = {one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    with contextlib.suppress(nvml.NVMLError):  # no MPS here
        found |= {one.pid for one in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
    return sorted(found)
