"""The sample process's series, made from one round."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.nodeagent.bounded import Key
from services.nodeagent.exposition import Family
from services.nodeagent.gpu_fields import METRICS
from services.nodeagent.gpus import Gpu, Reading
from services.nodeagent.kernel_log import Xid


@dataclass
class Round:
    """What one round saw. `gpus` are all that were ever seen: an Xid often tells of one that has just
    gone."""

    up: bool
    maintenance: bool
    reading: Reading
    gpus: Mapping[str, Gpu]
    jobs: Mapping[str, Mapping[str, str]]
    xids: Mapping[Xid, int]
    kernel_log_up: bool
    kernel_log_lost: int
    hung: list[Key]
    driver: str
    reopened: int
    open_handles: int
    errors: collections.Counter[str] = field(default_factory=collections.Counter)


def families(seen: Round) -> list[Family]:
    return [*_values(seen), *_xids(seen), *_own(seen)]


def _values(seen: Round) -> list[Family]:
    found = {metric.name: Family(metric.name, metric.kind, metric.help) for metric in METRICS}
    for uuid, values in seen.reading.values.items():
        plain = seen.gpus[uuid].labels
        of_job = {**plain, **seen.jobs.get(uuid, {})}
        for metric in METRICS:
            if metric.name in values:
                found[metric.name].add(values[metric.name], **(of_job if metric.of_job else plain))
    return list(found.values())


def _xids(seen: Round) -> list[Family]:
    """By number, and all together for each GPU: that series is there from the start, at 0, so that the
    first error is an increase; a series that begins at 1 is none to Prometheus."""
    by_number = Family("sideband_gpu_xid_errors_total", "counter", "Xid errors in the kernel log, by number.")
    together = Family("sideband_gpu_xid_any_total", "counter", "Xid errors in the kernel log, all numbers.")
    known = {gpu.pci: gpu for gpu in seen.gpus.values()}
    sums: dict[str, int] = dict.fromkeys(known, 0)
    for (pci, number), count in sorted(seen.xids.items()):
        by_number.add(count, **_placed(pci, known), xid=number)
        sums[pci] = sums.get(pci, 0) + count
    for pci, count in sorted(sums.items()):
        together.add(count, **_placed(pci, known))
    return [by_number, together]


def _placed(pci: str, known: Mapping[str, Gpu]) -> dict[str, str]:
    return {**(known[pci].labels if pci in known else {}), "pci_bus_id": pci}


def _own(seen: Round) -> list[Family]:
    found: list[Family] = []

    def one(name: str, kind: str, text: str, value: float) -> None:
        found.append(Family(f"sideband_gpu_{name}", kind, text, [({}, value)]))

    one("exporter_up", "gauge", "1 if NVML answered in this round.", int(seen.up))
    one("maintenance", "gauge", "1 while NVML is let go of for maintenance.", int(seen.maintenance))
    one("count", "gauge", "GPUs that answered in this round.", len(seen.reading.values))
    one("open_handles", "gauge", "Device files of the driver that this process holds.", seen.open_handles)
    one("reopened_total", "counter", "Times that NVML was opened anew after an error.", seen.reopened)
    one("kernel_log_up", "gauge", "1 if the kernel log could be read.", int(seen.kernel_log_up))
    one("kernel_log_lost_total", "counter", "Gaps in the kernel log.", seen.kernel_log_lost)
    one("calls_hung", "gauge", "Calls into the driver that have not returned.", len(seen.hung))
    hung = Family("sideband_gpu_call_hung", "gauge", "1 for each call of a GPU that has not returned.")
    for key in sorted(key for key in seen.hung if isinstance(key, tuple)):
        if key[0] in seen.gpus:
            hung.add(1, **seen.gpus[key[0]].labels, call=key[1])
    lost = Family("sideband_gpu_lost", "gauge", "1 for each GPU that the driver calls lost.")
    for uuid in sorted(seen.reading.lost):
        lost.add(1, **seen.gpus[uuid].labels)
    errors = Family("sideband_gpu_call_errors_total", "counter", "Calls that failed, by NVML's word for it.")
    for name, count in sorted(seen.errors.items()):
        errors.add(count, error=name)
    driver = Family("sideband_gpu_driver_info", "gauge", "The driver's version.")
    if seen.driver:
        driver.add(1, version=seen.driver)
    return [*found, hung, lost, errors, driver]
