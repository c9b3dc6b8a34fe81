"""What there is and how much of it is used, over weeks."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, lowest, mean

RACK = 'rack=~"$rack"'


def page() -> Page:
    made = Page(
        "sideband-capacity",
        "Capacity",
        "What there is and how much of it is used, over weeks.",
        [Variable("rack", "up:1m_max", "rack")],
        hours=24 * 14,
    )
    made.number("Nodes", "", Ask(f'count(max by (node) (up:1m_max{{job="policy",{RACK}}}))'))
    made.number("Processors", "", Ask("sum(" + highest("node_cpu_count", "node", RACK) + ")"))
    made.number(
        "Memory", "", Ask("sum(" + highest("node_memory_MemTotal_bytes", "node", RACK) + ")"), unit="bytes"
    )
    made.number("GPUs", "", Ask(f"count(count by (node, gpu) (DCGM_FI_DEV_GPU_UTIL:1m_max{{{RACK}}}))"))
    made.number(
        "GPU memory",
        "",
        Ask("sum(" + highest("DCGM_FI_DEV_FB_TOTAL", "node, gpu", RACK) + ")"),
        unit="decmbytes",
    )
    made.number(
        "Disk",
        "Of all filesystems that nodes report.",
        Ask("sum(" + highest("node_filesystem_size_bytes", "node, mountpoint", 'job="policy"', RACK) + ")"),
        unit="bytes",
    )
    made.row("Use")
    made.lines(
        "GPU utilisation",
        "Mean of all.",
        Ask("avg(" + mean("DCGM_FI_DEV_GPU_UTIL", "node, gpu", RACK) + ")"),
        unit="percent",
        most=100,
    )
    made.lines(
        "GPUs with a job",
        "Of those that there are.",
        Ask(
            f"sum(max by (tenant, job, node) (sideband_job_gpus:1m_max{{{RACK}}})) "
            f"/ count(count by (node, gpu) (DCGM_FI_DEV_GPU_UTIL:1m_max{{{RACK}}}))",
            "in use",
        ),
        unit="percentunit",
        most=1,
    )
    made.lines(
        "GPU-hours by tenant",
        "Within the last day.",
        Ask(f"sum by (tenant) (sum_over_time(sideband_job_gpus:1m_max{{{RACK}}}[1d])) / 60", "{{tenant}}"),
        stacked=True,
        unit="h",
    )
    made.lines(
        "Processors busy",
        "Of all nodes.",
        Ask(f'sum(node_cpu_seconds_total:1m_increase{{mode!="idle",{RACK}}}) / 60', "busy"),
    )
    made.lines(
        "Memory left",
        "Of all nodes, the lowest within the minute.",
        Ask("sum(" + lowest("node_memory_MemAvailable_bytes", "node", RACK) + ")", "left"),
        unit="bytes",
    )
    made.lines(
        "Power",
        "Of all GPUs.",
        Ask("sum(" + mean("DCGM_FI_DEV_POWER_USAGE", "node, gpu", RACK) + ")", "GPUs"),
        unit="watt",
    )
    made.row("What runs out")
    made.rows(
        "Disk in a week",
        "Filesystems by the space that the last day's trend leaves in a week.",
        Ask(
            "bottomk(10, min by (node, mountpoint) (predict_linear("
            f"node_filesystem_avail_bytes:1m_min{{{RACK}}}[1d], 604800)))"
        ),
        unit="bytes",
    )
    made.lines(
        "Energy by rack",
        "What each minute's work cost.",
        Ask(count_of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "rack", RACK) + " / 1000", "{{rack}}"),
        unit="joule",
        width=12,
    )
    return made
