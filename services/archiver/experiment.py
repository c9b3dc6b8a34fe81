"""What an experiment is: an annotated tag of the code, named as the experiment, that says which job ran it.

    git tag -a run-42 -m 'Sideband-Job: slurm-77'
    git push origin run-42

The tag lasts as long as the code, binds the commit, and needs no register beside it. Lines of its message:

    Sideband-Job            the job's name, as series carry it; needed
    Sideband-Start, -End    RFC 3339; where they are missing, the job's own series say
    Sideband-Parameters     of the model; a token then costs six operations for each (forward and backward)
    Sideband-Flops-Per-Token  the same, where six times the parameters is not it

Whose experiment it is follows from the repository that holds the tag, which the contract gives to a tenant.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass

from services.archiver.problem import Problem

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_LINE = re.compile(r"^(Sideband-[A-Za-z-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_KNOWN = ("Sideband-Job", "Sideband-Start", "Sideband-End", "Sideband-Parameters", "Sideband-Flops-Per-Token")
# A multiply and an add for each weight forward, twice that backward (Kaplan et al., arXiv:2001.08361, 2.1).
FLOPS_PER_PARAMETER = 6.0


@dataclass(frozen=True)
class Experiment:
    name: str
    tenant: str
    repository: str
    commit: str  # that the tag stands on
    job: str
    start: float | None  # seconds since 1970, where the tag says so
    end: float | None
    flops_per_token: float | None


def check_id(name: str) -> str:
    # A branch is named after it: what git takes for something else is refused here, in our words.
    if not ID.fullmatch(name) or ".." in name or name.endswith((".", ".lock")):
        raise Problem(
            f"experiment: no name (got {name[:80]!r})",
            "letters, digits, '.', '_' and '-', at most 64, as the code's tag is called",
        )
    return name


def read(name: str, tenant: str, repository: str, commit: str, message: str) -> Experiment:
    """From a tag's message. Every problem of it is said at once."""
    said: dict[str, str] = {}
    problems = []
    for key, value in _LINE.findall(message):
        if key not in _KNOWN:
            problems.append(f"{key} is not known ({', '.join(_KNOWN)} are)")
        elif key in said and said[key] != value:
            problems.append(f"{key} is there twice")
        said[key] = value
    job = said.get("Sideband-Job", "")
    if not job:
        problems.append("Sideband-Job is missing")
    elif not _JOB.fullmatch(job):
        problems.append(f"Sideband-Job is no job's name (got {job[:80]!r})")
    times = {key: _moment(key, said.get(key), problems) for key in ("Sideband-Start", "Sideband-End")}
    start, end = times["Sideband-Start"], times["Sideband-End"]
    if start is not None and end is not None and end <= start:
        problems.append("Sideband-End is not after Sideband-Start")
    parameters = _number("Sideband-Parameters", said.get("Sideband-Parameters"), problems)
    flops = _number("Sideband-Flops-Per-Token", said.get("Sideband-Flops-Per-Token"), problems)
    if problems:
        raise Problem(
            f"{name}: its tag in {repository}: {'; '.join(problems)}",
            f"git tag -f -a {name} -m 'Sideband-Job: JOB' {name}^{{}} && git push -f origin {name}",
        )
    if flops is None and parameters is not None:
        flops = FLOPS_PER_PARAMETER * parameters
    return Experiment(name, tenant, repository, commit, job, start, end, flops)


def _moment(key: str, text: str | None, problems: list[str]) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        problems.append(f"{key} is no time (got {text[:40]!r}; 2026-07-01T12:00:00Z would do)")
        return None
    if moment.tzinfo is None:
        # At night, once a year, a local time means two moments.
        problems.append(f"{key} has no zone (got {text[:40]!r}; 2026-07-01T12:00:00Z would do)")
        return None
    return moment.timestamp()


def _number(key: str, text: str | None, problems: list[str]) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        problems.append(f"{key} is no number above 0 (got {text[:40]!r})")
        return None
    return number
