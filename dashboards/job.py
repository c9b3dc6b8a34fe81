"""One training job: its curves, and what its GPUs do meanwhile."""

from __future__ import annotations

from .parts import Ask, Page, Variable, highest, mean

JOB = 'tenant=~"$tenant",job=~"$job"'


def _curve(quantity: str) -> str:
    # Every step as it was logged, by its own name and time.
    return f"max by (job) (sideband_train_{quantity}{{{JOB}}})"


def page() -> Page:
    made = Page(
        "sideband-job",
        "Job",
        "A training job: curves out of its log, and its GPUs. Tenants see their own.",
        [
            Variable("tenant", "sideband_job_info:1m_max", "tenant"),
            Variable("job", 'sideband_job_info:1m_max{tenant=~"$tenant"}', "job"),
        ],
    )
    made.number(
        "Processes",
        "Of the job, on all its nodes.",
        Ask(f"sum(max by (job, node) (sideband_job_processes:1m_max{{{JOB}}}))"),
    )
    made.number(
        "GPUs", "That it computes on.", Ask(f"sum(max by (job, node) (sideband_job_gpus:1m_max{{{JOB}}}))")
    )
    made.number(
        "Step", "The last that was logged.", Ask(f"max(last_over_time(sideband_train_step{{{JOB}}}[1h]))")
    )
    made.number(
        "Loss", "The last that was logged.", Ask(f"min(last_over_time(sideband_train_loss{{{JOB}}}[1h]))")
    )
    made.number(
        "GPU utilisation",
        "Mean of all its GPUs.",
        Ask("avg(" + mean("job:DCGM_FI_DEV_GPU_UTIL", "job", JOB) + ")"),
        unit="percent",
    )
    made.number(
        "NCCL events in an hour",
        "Warnings and time-outs in its logs.",
        Ask(
            f"sum(max_over_time(sideband_nccl_events_total{{{JOB}}}[1h])"
            f" - min_over_time(sideband_nccl_events_total{{{JOB}}}[1h])) or vector(0)"
        ),
        bad=1,
    )
    made.row("Curves")
    made.lines(
        "Loss",
        "By time; the step is on the next panel.",
        Ask(_curve("loss"), "{{job}}"),
        least=None,
        points=True,
        width=12,
        height=10,
    )
    made.lines(
        "Step",
        "A step back is a restart from a checkpoint.",
        Ask(_curve("step"), "{{job}}"),
        points=True,
        width=12,
        height=10,
    )
    made.lines(
        "Tokens a second",
        "As the framework says it.",
        Ask(_curve("tokens_per_second"), "{{job}}"),
        points=True,
    )
    made.lines(
        "Samples a second",
        "As the framework says it.",
        Ask(_curve("samples_per_second"), "{{job}}"),
        points=True,
    )
    made.lines(
        "Step time",
        "And the part of it that waits for data.",
        Ask(_curve("step_seconds"), "{{job}}"),
        Ask(_curve("data_seconds"), "{{job}} data"),
        unit="s",
        points=True,
    )
    made.lines("Learning rate", "", Ask(_curve("learning_rate"), "{{job}}"), points=True)
    made.lines(
        "Gradient norm",
        "A jump comes before a loss that jumps.",
        Ask(_curve("gradient_norm"), "{{job}}"),
        points=True,
    )
    made.lines(
        "Validation",
        "Scores, by name.",
        Ask(f"max by (job, name) (sideband_train_validation{{{JOB}}})", "{{job}} {{name}}"),
        least=None,
        points=True,
    )
    made.row("GPUs")
    made.lines(
        "Utilisation",
        "Mean of the job's GPUs, and the slowest and fastest of them.",
        Ask(mean("job:DCGM_FI_DEV_GPU_UTIL", "job", JOB), "{{job}} mean"),
        Ask(f"min by (job) (job:DCGM_FI_DEV_GPU_UTIL:1m_min{{{JOB}}})", "{{job}} lowest"),
        Ask(f"max by (job) (job:DCGM_FI_DEV_GPU_UTIL:1m_max{{{JOB}}})", "{{job}} highest"),
        unit="percent",
        most=100,
    )
    made.lines(
        "Utilisation by GPU",
        "One that lags holds up all the others.",
        Ask(mean("DCGM_FI_DEV_GPU_UTIL", "node, gpu", JOB), "{{node}} {{gpu}}"),
        unit="percent",
        most=100,
    )
    made.lines(
        "Memory by GPU",
        "The highest within the minute.",
        Ask(highest("DCGM_FI_DEV_FB_USED", "node, gpu", JOB), "{{node}} {{gpu}}"),
        unit="decmbytes",
    )
    made.lines(
        "Power",
        "Of all its GPUs.",
        Ask("sum by (job) (" + highest("DCGM_FI_DEV_POWER_USAGE", "job, node, gpu", JOB) + ")", "{{job}}"),
        unit="watt",
    )
    made.lines(
        "Temperature by GPU",
        "The highest within the minute.",
        Ask(highest("DCGM_FI_DEV_GPU_TEMP", "node, gpu", JOB), "{{node}} {{gpu}}"),
        unit="celsius",
    )
    made.lines(
        "Workers",
        "Its processes on GPUs; fewer than before: one is gone.",
        Ask(f"sum by (job) (max by (job, node) (sideband_job_workers:1m_max{{{JOB}}}))", "{{job}}"),
    )
    made.rows(
        "Who and what",
        "The job's user, program and start.",
        Ask(f"max by (tenant, job, user, name, kind, start) (sideband_job_info:1m_max{{{JOB}}})"),
        width=24,
        height=6,
    )
    return made
