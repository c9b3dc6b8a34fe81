"""Is the telemetry itself well: senders, racks, losses."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, lowest, mean

RACK = 'rack=~"$rack"'


def page() -> Page:
    made = Page(
        "sideband-pipeline",
        "Pipeline health",
        "Whether the telemetry itself is well: who sends, what waits, what was lost and why.",
        [Variable("rack", "up:1m_max", "rack")],
    )
    made.number(
        "Senders", "Nodes that are heard.", Ask(f'count(max by (node) (up:1m_max{{job="policy",{RACK}}}))')
    )
    made.number(
        "Silent exporters",
        "Nodes that are heard and whose exporter is not.",
        Ask(f'count((max by (node) (up:1m_max{{job="node",{RACK}}})) == 0) or vector(0)'),
        bad=1,
    )
    made.number(
        "Lost in an hour",
        "Samples that a rack had to drop.",
        Ask("sum(sum_over_time(vmagent_remotewrite_samples_dropped_total:1m_increase[1h])) or vector(0)"),
        bad=1,
    )
    made.number(
        "Refused in an hour",
        "Requests at the racks' doors, for whatever reason.",
        Ask("sum(sum_over_time(sideband_rack_refused_total:1m_increase[1h])) or vector(0)"),
    )
    made.number(
        "Oldest policy",
        "Since a node last fetched the signed document.",
        Ask("max(" + highest("sideband_policy_last_fetch_age_seconds", "node", RACK) + ")"),
        unit="s",
        bad=120,
    )
    made.number(
        "Generations",
        "More than one: somebody obeys another document than the rest.",
        Ask(
            f'count(count_values("generation", max by (node) (sideband_policy_generation:1m_max{{{RACK}}})))'
        ),
        bad=2,
    )
    made.row("Nodes")
    made.lines(
        "Up",
        "Share of the minute in which each part answered, the worst node of each rack.",
        Ask("min by (rack, job) (" + mean("up", "rack, node, job", RACK) + ")", "{{rack}} {{job}}"),
        unit="percentunit",
        most=1,
    )
    made.lines(
        "Nodes by level",
        "How many sample at which level.",
        Ask(f"count by (level) (max by (node, level) (sideband_policy_level:1m_max{{{RACK}}}))", "{{level}}"),
        stacked=True,
    )
    made.lines(
        "Policy's age",
        "The oldest of each rack.",
        Ask(highest("sideband_policy_last_fetch_age_seconds", "rack", RACK), "{{rack}}"),
        unit="s",
    )
    made.lines(
        "GPU readers",
        "1 while NVML answers, the worst node of each rack.",
        Ask(lowest("sideband_gpu_exporter_up", "rack", RACK), "{{rack}}"),
        most=1,
    )
    made.lines(
        "Job readers",
        "1 while somebody looks for jobs, the worst node of each rack.",
        Ask(lowest("sideband_jobs_up", "rack", RACK), "{{rack}}"),
        most=1,
    )
    made.lines(
        "Unreadable figures",
        "Files of figures that the exporter could not read.",
        Ask(highest("node_textfile_scrape_error", "node", RACK), "{{node}}"),
    )
    made.row("Racks")
    made.lines(
        "Refused",
        "Requests a minute, by reason.",
        Ask(count_of("sideband_rack_refused_total", "node, reason"), "{{node}} {{reason}}"),
    )
    made.lines(
        "Waiting",
        "Bytes in the rack's buffer.",
        Ask(highest("vmagent_remotewrite_pending_data_bytes", "node"), "{{node}}"),
        unit="bytes",
    )
    made.lines(
        "Lost",
        "Samples a minute, and bytes of a buffer that was full.",
        Ask(count_of("vmagent_remotewrite_samples_dropped_total", "node"), "{{node}} samples"),
        Ask(count_of("vm_persistentqueue_bytes_dropped_total", "node"), "{{node}} bytes"),
    )
    made.lines(
        "Sent again",
        "Blocks a minute that the region did not take at once.",
        Ask(count_of("vmagent_remotewrite_retries_count_total", "node"), "{{node}}"),
    )
    made.lines(
        "Memory",
        "Of the rack's programs.",
        Ask(highest("process_resident_memory_bytes", "node, job"), "{{node}}"),
        unit="bytes",
    )
    made.lines(
        "Samples a minute",
        "That arrived and were put into the minute, by rack.",
        Ask(f'sum by (rack) ({{__name__=~".+:1m_count_samples",{RACK}}})', "{{rack}}"),
    )
    return made
