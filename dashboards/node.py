"""One node: processor, memory, disks, network, pressure."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, lowest, mean, rate

NODE = 'node=~"$node"'
REAL = 'device!~"lo|veth.*|docker.*|br-.*"'


def page() -> Page:
    made = Page(
        "sideband-node",
        "Node",
        "What a node itself does. Its GPUs are on the page GPU.",
        [Variable("node", "up:1m_max", "node")],
    )
    made.row("Processor and memory")
    made.lines(
        "CPU",
        "Processors busy, by what they do; idle is left out.",
        Ask(rate("node_cpu_seconds_total", "node, mode", NODE, 'mode!="idle"'), "{{node}} {{mode}}"),
        stacked=True,
    )
    made.lines(
        "Load",
        "Processes that run or wait, over a minute.",
        Ask(highest("node_load1", "node", NODE), "{{node}}"),
    )
    made.lines(
        "Memory left",
        "What programs could still get; the lowest within the minute.",
        Ask(lowest("node_memory_MemAvailable_bytes", "node", NODE), "{{node}}"),
        unit="bytes",
    )
    made.lines(
        "Pressure",
        "Share of time that something waited for CPU, memory or disk.",
        Ask(rate("node_pressure_cpu_waiting_seconds_total", "node", NODE), "{{node}} CPU"),
        Ask(rate("node_pressure_memory_waiting_seconds_total", "node", NODE), "{{node}} memory"),
        Ask(rate("node_pressure_io_waiting_seconds_total", "node", NODE), "{{node}} disk"),
        unit="percentunit",
    )
    made.lines(
        "Killed for memory",
        "Processes that the kernel ended, a minute.",
        Ask(
            f"max by (node) (node_vmstat_oom_kill:1m_max{{{NODE}}}) "
            f"- min by (node) (node_vmstat_oom_kill:1m_min{{{NODE}}})",
            "{{node}}",
        ),
    )
    made.lines(
        "Context switches", "A second.", Ask(rate("node_context_switches_total", "node", NODE), "{{node}}")
    )
    made.row("Disks and network")
    made.lines(
        "Disk reads",
        "Bytes a second.",
        Ask(rate("node_disk_read_bytes_total", "node, device", NODE), "{{node}} {{device}}"),
        unit="Bps",
    )
    made.lines(
        "Disk writes",
        "Bytes a second.",
        Ask(rate("node_disk_written_bytes_total", "node, device", NODE), "{{node}} {{device}}"),
        unit="Bps",
    )
    made.lines(
        "Space left",
        "By filesystem, the lowest within the minute.",
        Ask(lowest("node_filesystem_avail_bytes", "node, mountpoint", NODE), "{{node}} {{mountpoint}}"),
        unit="bytes",
    )
    made.lines(
        "Received",
        "Bytes a second, by interface.",
        Ask(rate("node_network_receive_bytes_total", "node, device", NODE, REAL), "{{node}} {{device}}"),
        unit="Bps",
    )
    made.lines(
        "Sent",
        "Bytes a second, by interface.",
        Ask(rate("node_network_transmit_bytes_total", "node, device", NODE, REAL), "{{node}} {{device}}"),
        unit="Bps",
    )
    made.lines(
        "Dropped and failed",
        "Packets a minute, received.",
        Ask(
            count_of("node_network_receive_drop_total", "node, device", NODE, REAL),
            "{{node}} {{device}} dropped",
        ),
        Ask(
            count_of("node_network_receive_errs_total", "node, device", NODE, REAL),
            "{{node}} {{device}} failed",
        ),
    )
    made.row("Telemetry's own")
    made.lines(
        "Level",
        "Which level the node samples at; 0 is full.",
        Ask(highest("sideband_policy_level", "node, level", NODE), "{{node}} {{level}}"),
    )
    made.lines(
        "Up",
        "Share of the minute in which each part answered.",
        Ask(mean("up", "node, job", NODE), "{{node}} {{job}}"),
        unit="percentunit",
        most=1,
    )
    return made
