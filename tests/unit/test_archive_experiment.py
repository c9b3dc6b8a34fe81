"""An experiment is an annotated tag that says which job ran it (X1, X3)."""

from __future__ import annotations

import pytest

from services.archiver.experiment import check_id, read
from services.archiver.problem import Problem


def tagged(message: str) -> object:
    return read("run-42", "alpha", "ssh://git/alpha.git", "c0ffee", message)


def test_a_tag_says_job_span_and_size() -> None:
    found = read(
        "run-42", "alpha", "ssh://git/alpha.git", "c0ffee",
        "the long one\n\nSideband-Job: slurm-77\nSideband-Start: 2026-07-01T12:00:00Z\n"
        "Sideband-End: 2026-07-01T16:00:00+02:00\nSideband-Parameters: 7e9\n",
    )  # fmt: skip
    assert (found.job, found.tenant, found.commit) == ("slurm-77", "alpha", "c0ffee")
    assert found.start is not None
    assert found.end is not None
    assert found.end - found.start == 2 * 3600
    assert found.flops_per_token == 6 * 7e9


def test_operations_of_a_token_may_be_said_as_they_are() -> None:
    message = "Sideband-Job: 77\nSideband-Parameters: 7e9\nSideband-Flops-Per-Token: 5e10"
    assert read("x", "alpha", "u", "c", message).flops_per_token == 5e10
    assert read("x", "alpha", "u", "c", "Sideband-Job: 77").flops_per_token is None


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("no word of a job", "Sideband-Job is missing"),
        ("Sideband-Job: a b", "Sideband-Job is no job's name (got 'a b')"),
        ("Sideband-Job: 1\nSideband-Job: 2", "Sideband-Job is there twice"),
        ("Sideband-Job: 1\nSideband-Jobs: 2", "Sideband-Jobs is not known"),
        ("Sideband-Job: 1\nSideband-Start: yesterday", "Sideband-Start is no time (got 'yesterday'"),
        # The night on which 02:30 comes twice: a time without a zone means two moments (case 82).
        ("Sideband-Job: 1\nSideband-Start: 2026-10-25T02:30:00", "Sideband-Start has no zone"),
        ("Sideband-Job: 1\nSideband-Parameters: lots", "Sideband-Parameters is no number above 0"),
        ("Sideband-Job: 1\nSideband-Parameters: nan", "Sideband-Parameters is no number above 0"),
        (
            "Sideband-Job: 1\nSideband-Start: 2026-07-02T00:00:00Z\nSideband-End: 2026-07-01T00:00:00Z",
            "Sideband-End is not after Sideband-Start",
        ),
    ],
)
def test_what_is_wrong_with_a_tag_is_said(message: str, problem: str) -> None:
    with pytest.raises(Problem) as said:
        tagged(message)
    assert problem in str(said.value)
    assert "; hint: git tag -f -a run-42" in str(said.value)


def test_all_problems_of_a_tag_come_at_once() -> None:
    with pytest.raises(
        Problem, match=r"Sideband-What is not known .*; Sideband-Job is missing; Sideband-End is"
    ):
        tagged("Sideband-What: 1\nSideband-End: never")


@pytest.mark.parametrize(
    "name", ["", "-x", "a b", "a/b", "a..b", "a.lock", "a.", "x" * 65, "../etc", "a\nb", "*"]
)
def test_what_is_no_name_never_reaches_git(name: str) -> None:
    with pytest.raises(Problem, match="experiment: no name"):
        check_id(name)


@pytest.mark.parametrize("name", ["run-42", "7B_lr3e-4.v2", "x" * 64])
def test_names_are_taken_as_they_are(name: str) -> None:
    assert check_id(name) == name
