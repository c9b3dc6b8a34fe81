"""All nodes at a glance: what is up, how busy the GPUs are, what runs, what is wrong."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, mean

RACK = 'rack=~"$rack"'


def page() -> Page:
    made = Page(
        "sideband-fleet",
        "Fleet",
        "All nodes at a glance. Choose racks above; a node's own page is Node.",
        [Variable("rack", "up:1m_max", "rack")],
    )
    made.number(
        "Nodes that report",
        "Nodes whose policy process is heard, at whatever level.",
        Ask(f'count(max by (node) (up:1m_max{{job="policy",{RACK}}}))'),
    )
    made.number(
        "Below full",
        "Nodes that sample less than they could, by order or by their own fuse.",
        Ask(f"count(max by (node) (sideband_policy_level:1m_max{{{RACK}}}) > 0) or vector(0)"),
        bad=1,
    )
    made.number(
        "GPUs",
        "GPUs that answer.",
        Ask(f"count(count by (node, gpu) (DCGM_FI_DEV_GPU_UTIL:1m_max{{{RACK}}}))"),
    )
    made.number(
        "GPU utilisation",
        "Mean of all GPUs over the last minute.",
        Ask("avg(" + mean("DCGM_FI_DEV_GPU_UTIL", "node, gpu", RACK) + ")"),
        unit="percent",
    )
    made.number(
        "Jobs",
        "Jobs that run now.",
        Ask(f"count(max by (tenant, job) (sideband_job_processes:1m_max{{{RACK}}}) > 0) or vector(0)"),
    )
    made.number(
        "Xid errors in an hour",
        "Of all GPUs; each is in its kernel's log.",
        Ask(f"sum(sum_over_time(sideband_gpu_xid_any_total:1m_increase{{{RACK}}}[1h]))"),
        bad=1,
    )
    made.row("GPUs")
    made.lines(
        "Utilisation by rack",
        "Mean of a rack's GPUs.",
        Ask(mean("DCGM_FI_DEV_GPU_UTIL", "rack", RACK), "{{rack}}"),
        unit="percent",
        most=100,
    )
    made.lines(
        "Power by rack",
        "Sum of each GPU's highest draw within the minute.",
        Ask(
            "sum by (rack) (" + highest("DCGM_FI_DEV_POWER_USAGE", "rack, node, gpu", RACK) + ")", "{{rack}}"
        ),
        unit="watt",
    )
    made.lines(
        "Hottest GPUs",
        "The ten with the highest temperature.",
        Ask("topk(10, " + highest("DCGM_FI_DEV_GPU_TEMP", "node, gpu", RACK) + ")", "{{node}} {{gpu}}"),
        unit="celsius",
    )
    made.lines(
        "Idle GPUs",
        "GPUs under 5 % for the whole minute, by rack.",
        Ask(
            "count by (rack) ("
            + highest("DCGM_FI_DEV_GPU_UTIL", "rack, node, gpu", RACK)
            + f" < 5) or 0 * count by (rack) (up:1m_max{{{RACK}}})",
            "{{rack}}",
        ),
    )
    made.lines(
        "ECC errors",
        "Errors that could not be corrected, a minute. Any is a reason to look.",
        Ask(count_of("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "node, gpu", RACK), "{{node}} {{gpu}}"),
    )
    made.lines(
        "Xid errors",
        "A minute.",
        Ask(count_of("sideband_gpu_xid_any_total", "node, gpu", RACK), "{{node}} {{gpu}}"),
    )
    made.row("Nodes and jobs")
    made.lines(
        "Jobs by tenant",
        "Jobs with a process.",
        Ask(
            f"count by (tenant) (max by (tenant, job) (sideband_job_processes:1m_max{{{RACK}}}) > 0)",
            "{{tenant}}",
        ),
        stacked=True,
    )
    made.lines(
        "GPUs by tenant",
        "GPUs that somebody's job computes on.",
        Ask(
            f"sum by (tenant) (max by (tenant, job, node) (sideband_job_gpus:1m_max{{{RACK}}}))", "{{tenant}}"
        ),
        stacked=True,
    )
    made.lines("Load", "The highest of each rack.", Ask(highest("node_load1", "rack", RACK), "{{rack}}"))
    made.rows(
        "Least memory left",
        "The ten nodes with the least available memory.",
        Ask("bottomk(10, min by (node) (node_memory_MemAvailable_bytes:1m_min" + "{" + RACK + "}))"),
        unit="bytes",
    )
    made.rows(
        "Fullest filesystems",
        "Space left, the ten smallest.",
        Ask(f"bottomk(10, min by (node, mountpoint) (node_filesystem_avail_bytes:1m_min{{{RACK}}}))"),
        unit="bytes",
    )
    return made
