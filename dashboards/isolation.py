"""Does telemetry cost training anything? What would show it first (V1, V3)."""

from __future__ import annotations

from .parts import Ask, Page, Variable, count_of, highest, rate

NODE = 'rack=~"$rack"'
TRAINING = 'device=~"$training"'


def page() -> Page:
    made = Page(
        "sideband-isolation",
        "Isolation",
        "What would show first that telemetry disturbs training. Choose the training interfaces above.",
        [
            Variable("rack", "up:1m_max", "rack"),
            Variable(
                "training",
                "node_network_receive_bytes_total:1m_increase",
                "device",
                title="training interfaces",
            ),
        ],
    )
    made.row("The job's own signals")
    made.lines(
        "Step time",
        "Of every job: a rise without a reason in the job is one to look into.",
        Ask(f"max by (tenant, job) (sideband_train_step_seconds{{{NODE}}})", "{{tenant}} {{job}}"),
        unit="s",
        points=True,
        width=12,
    )
    made.lines(
        "NCCL events",
        "Warnings and time-outs within five minutes.",
        Ask(
            f"sum by (job, kind) (max_over_time(sideband_nccl_events_total{{{NODE}}}[5m])"
            f" - min_over_time(sideband_nccl_events_total{{{NODE}}}[5m]))",
            "{{job}} {{kind}}",
        ),
        points=True,
        width=12,
    )
    made.row("Training interfaces")
    made.lines(
        "Received",
        "Bytes a second.",
        Ask(rate("node_network_receive_bytes_total", "node, device", NODE, TRAINING), "{{node}} {{device}}"),
        unit="Bps",
    )
    made.lines(
        "Dropped",
        "Packets a minute, both ways. Telemetry puts nothing there; any drop is the fabric's.",
        Ask(
            count_of("node_network_receive_drop_total", "node, device", NODE, TRAINING),
            "{{node}} {{device}} in",
        ),
        Ask(
            count_of("node_network_transmit_drop_total", "node, device", NODE, TRAINING),
            "{{node}} {{device}} out",
        ),
    )
    made.lines(
        "TCP sent again",
        "Segments a second, of the whole node.",
        Ask(
            f"max by (node) (node_netstat_Tcp_RetransSegs:1m_max{{{NODE}}}) "
            f"- min by (node) (node_netstat_Tcp_RetransSegs:1m_min{{{NODE}}})",
            "{{node}}",
        ),
    )
    made.row("The nodes")
    made.lines(
        "CPU pressure",
        "Share of time that something waited for a processor.",
        Ask(rate("node_pressure_cpu_waiting_seconds_total", "node", NODE), "{{node}}"),
        unit="percentunit",
    )
    made.lines(
        "Memory pressure",
        "Share of time that something waited for memory.",
        Ask(rate("node_pressure_memory_waiting_seconds_total", "node", NODE), "{{node}}"),
        unit="percentunit",
    )
    made.lines(
        "Level",
        "A node that lowered itself felt its own budget or a pressure: 0 is full.",
        Ask(highest("sideband_policy_level", "node", NODE), "{{node}}"),
    )
    made.row("The way behind them")
    made.lines(
        "Refused at the rack",
        "Requests a minute, by reason.",
        Ask(count_of("sideband_rack_refused_total", "node, reason"), "{{node}} {{reason}}"),
    )
    made.lines(
        "Waiting at the rack",
        "Bytes in its buffer: a backlog that grows is a way that is too narrow.",
        Ask(highest("vmagent_remotewrite_pending_data_bytes", "node"), "{{node}}"),
        unit="bytes",
    )
    made.lines(
        "Series of each node",
        "A jump is a flood of new labels.",
        Ask(f'count by (node) ({{__name__=~".+:1m_(max|increase)",{NODE}}})', "{{node}}"),
    )
    return made
