"""A job's series from the gateway into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.archiver import findings
from services.archiver.config import Config
from services.archiver.experiment import Experiment
from services.archiver.gateway import Gateway, selector
from services.archiver.problem import Problem
from services.archiver.span import Span, tier_for
from services.archiver.table import FORMAT, Writer


def write(
    gateway: Gateway, config: Config, wanted: Experiment, ran: Span, directory: Path, target: Path, now: float
) -> dict[str, Any]:
    """The file at `target`; what it says of itself comes back (and is in its metadata)."""
    tier = tier_for(config.tiers, ran.start, now)
    own = {"job": wanted.job, "tenant": wanted.tenant}
    # What is made of a minute carries the minute's end.
    last = ran.end + 2 * tier.resolution_seconds
    writer = Writer(directory, config.memory_bytes)
    try:
        for metric in sorted(gateway.names(selector(**own), ran.start, last, tier.name)):
            for labels, samples in gateway.samples(
                selector(__name__=metric, **own), ran.start, last, tier.name
            ):
                writer.add(labels, samples)
        if not writer.rows:
            raise Problem(
                f"{wanted.name}: tier {tier.name} has no sample of job {wanted.job} of tenant "
                f"{wanted.tenant} from {findings.utc(ran.start)} to {findings.utc(ran.end)}",
                "are the tag's job and times right, and does the tier still keep them?",
            )
        writer.load(wanted.name)
        nodes = sorted({labels["node"] for _, labels in writer.series if labels.get("node")})
        about: dict[str, Any] = {
            "format": FORMAT,
            "experiment": wanted.name,
            "tenant": wanted.tenant,
            "job": wanted.job,
            "repository": wanted.repository,
            "commit": wanted.commit,
            "start": findings.utc(ran.start),
            "end": findings.utc(ran.end),
            "tier": tier.name,
            "resolution_seconds": tier.resolution_seconds,
            "nodes": nodes,
            "series": len(writer.series),
            "rows": writer.count(),
            "gpus": findings.gpus(writer.connection),
            "gpu_seconds": findings.gpu_seconds(writer.connection, ran, tier.resolution_seconds),
            "flops_per_token": wanted.flops_per_token,
            "steps": findings.steps(writer.connection),
            "levels": findings.levels(gateway, nodes, ran, tier),
            "gaps": findings.gaps(writer.connection, ran, tier.resolution_seconds),
        }
        writer.write(target, about)
    finally:
        writer.close()
    return about
