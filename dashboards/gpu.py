"""The GPUs of a node, one by one."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, mean

GPU = 'node=~"$node",gpu=~"$gpu"'
BY = "node, gpu"
LEGEND = "{{node}} {{gpu}}"


def page() -> Page:
    made = Page(
        "sideband-gpu",
        "GPU",
        "GPUs one by one, under dcgm-exporter's names.",
        [
            Variable("node", "DCGM_FI_DEV_GPU_UTIL:1m_max", "node"),
            Variable("gpu", 'DCGM_FI_DEV_GPU_UTIL:1m_max{node=~"$node"}', "gpu"),
        ],
    )
    made.row("Work")
    made.lines(
        "Utilisation",
        "Share of time that something computed; the mean of the minute.",
        Ask(mean("DCGM_FI_DEV_GPU_UTIL", BY, GPU), LEGEND),
        unit="percent",
        most=100,
    )
    made.lines(
        "Memory used",
        "The highest within the minute.",
        Ask(highest("DCGM_FI_DEV_FB_USED", BY, GPU), LEGEND),
        unit="decmbytes",
    )
    made.lines(
        "Memory traffic",
        "Share of time that memory was read or written.",
        Ask(mean("DCGM_FI_DEV_MEM_COPY_UTIL", BY, GPU), LEGEND),
        unit="percent",
        most=100,
    )
    made.lines(
        "SM clock",
        "The mean; under load a falling clock is heat or power.",
        Ask(mean("DCGM_FI_DEV_SM_CLOCK", BY, GPU), LEGEND),
        unit="rotmhz",
    )
    made.lines(
        "PCIe sent",
        "Kilobytes a second.",
        Ask(mean("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", BY, GPU), LEGEND),
        unit="deckbytes",
    )
    made.lines(
        "PCIe received",
        "Kilobytes a second.",
        Ask(mean("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", BY, GPU), LEGEND),
        unit="deckbytes",
    )
    made.row("Heat and power")
    made.lines(
        "Temperature",
        "The highest within the minute.",
        Ask(highest("DCGM_FI_DEV_GPU_TEMP", BY, GPU), LEGEND),
        unit="celsius",
    )
    made.lines(
        "Power", "The mean of the minute.", Ask(mean("DCGM_FI_DEV_POWER_USAGE", BY, GPU), LEGEND), unit="watt"
    )
    made.lines(
        "Energy",
        "What each minute cost.",
        Ask(count_of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", BY, GPU) + " / 1000", LEGEND),
        unit="joule",
    )
    made.row("Faults")
    made.lines(
        "Xid errors", "A minute, all numbers.", Ask(count_of("sideband_gpu_xid_any_total", BY, GPU), LEGEND)
    )
    made.lines(
        "ECC errors",
        "A minute, volatile; what could not be corrected ends the job.",
        Ask(count_of("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", BY, GPU), LEGEND + " corrected"),
        Ask(count_of("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", BY, GPU), LEGEND + " not corrected"),
    )
    made.lines(
        "PCIe replays",
        "Retries a minute: a bad contact or riser.",
        Ask(count_of("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", BY, GPU), LEGEND),
    )
    made.lines(
        "NVML",
        "1 while the driver's library answers.",
        Ask('min by (node) (sideband_gpu_exporter_up:1m_min{node=~"$node"})', "{{node}}"),
        most=1,
    )
    made.rows(
        "GPUs",
        "Who they are.",
        Ask("count by (node, gpu, modelName, UUID) (DCGM_FI_DEV_GPU_TEMP:1m_max{" + GPU + "})"),
    )
    return made
