"""Job, owner and tenant follow from cgroup and uid; what a user can name counts for nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from services.configuration import ConfigError
from services.nodeagent import identity
from services.nodeagent.identity import Membership, membership, owner, paths, roots, tenants

HEX = "0123456789abcdef" * 4
POD = "11111111-2222-3333-4444-555555555555"
UNDER = POD.replace("-", "_")
STATIC = "0123456789abcdef" * 2

PLACED = {
    "/slurm/uid_1001/job_77/step_0/task_0": ("slurm-77", 1001),
    "/slurm_node7/uid_1001/job_77": ("slurm-77", 1001),
    "/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0": ("slurm-77", None),
    "/system.slice/node7_slurmstepd.scope/job_8/step_extern": ("slurm-8", None),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{HEX}.scope":
        (f"pod-{POD}", None),
    f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{HEX}.scope": (f"pod-{POD}", None),
    f"/kubepods/besteffort/pod{POD}/{HEX}": (f"pod-{POD}", None),
    f"/kubepods/pod{POD}/{HEX}": (f"pod-{POD}", None),
    f"/kubepods/burstable/pod{STATIC}/{HEX}": (f"pod-{STATIC}", None),
    f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{UNDER}.slice/cri-containerd-{HEX}.scope": (f"pod-{POD}", None),
    f"/docker/{HEX}": (f"container-{HEX[:12]}", None),
    f"/system.slice/docker-{HEX}.scope": (f"container-{HEX[:12]}", None),
    f"/machine.slice/libpod-{HEX}.scope/container": (f"container-{HEX[:12]}", None),
    f"/machine.slice/machine-libpod_pod_{HEX}.slice/libpod-{HEX}.scope": (f"container-{HEX[:12]}", None),
    f"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-{HEX}.scope/container":
        (f"container-{HEX[:12]}", 1001),
    "/user.slice/user-1001.slice/session-3.scope": ("", None),
    "/system.slice/ssh.service": ("", None),
    "/init.scope": ("", None),
    "/": ("", None),
}  # fmt: skip


@pytest.mark.parametrize("path", PLACED)
def test_schedulers_and_engines_are_known_by_their_cgroups(path: str) -> None:
    found = membership([path])
    assert (found.job, found.uid) == PLACED[path]


# Names that a user may give to cgroups below the user's own slice, or a service's below its own.
FORGED = (
    "/system.slice/slurmstepd.scope/job_77",
    "/slurm/uid_1002/job_77",
    f"/kubepods.slice/kubepods-pod{UNDER}.slice",
    f"/kubepods/pod{POD}",
    f"/docker/{HEX}",
    f"/system.slice/docker-{HEX}.scope",
    f"/machine.slice/libpod-{HEX}.scope",
)
OWN = (
    "/user.slice/user-1001.slice/user@1001.service",
    "/user.slice/user-1001.slice",
    "/system.slice/x.service",
)


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("forged", FORGED)
def test_a_cgroup_that_a_user_can_make_makes_no_other_job(own: str, forged: str) -> None:
    found = membership([own + forged])
    # A container in the user's own slice is the user's own, whatever its name.
    assert found.kind == "" or (found.kind == "container" and found.uid == 1001)


def test_a_pod_inside_a_pod_is_the_outer_one() -> None:
    outer = f"/kubepods/burstable/pod{POD}/{HEX}"
    inner = outer + f"/kubepods/pod{'9' * 8}-{POD[9:]}"
    assert membership([inner]).id == POD
    assert membership([outer + "/system.slice/slurmstepd.scope/job_5"]).kind == "pod"


def test_a_rootless_container_in_anothers_service_manager_is_no_container() -> None:
    path = f"/user.slice/user-1001.slice/user@1002.service/libpod-{HEX}.scope"
    assert membership([path]) == Membership(slice_uid=1001)


def test_hierarchies_begin_where_this_systems_do() -> None:
    """In a container of systemd's, and in both versions of cgroups."""
    init = "9:name=systemd:/\n4:memory:/lab/node1/init.scope\n0::/lab/node1/init.scope\n"
    mine = "9:name=systemd:/slurm/uid_5/job_6\n4:memory:/lab/node1/slurm/uid_5/job_6/step_0\n0::/lab/node1\n"
    found = paths(mine, roots(init))
    assert found == ["/slurm/uid_5/job_6", "/slurm/uid_5/job_6/step_0", "/"]
    assert membership(found) == Membership("slurm", "6", 5)
    # A neighbour whose name begins alike is not below us.
    assert paths("0::/lab/node10/x", roots(init)) == ["/lab/node10/x"]


@given(some.text())
def test_no_text_upsets_it(text: str) -> None:
    membership(paths(text, roots(text)))
    membership([text])


@pytest.mark.parametrize(
    ("member", "uid", "mapped", "expected"),
    [
        (Membership("slurm", "7", 1001), 0, False, 1001),  # the step's own helper
        (Membership(slice_uid=1001), 1001, False, 1001),
        (Membership(slice_uid=1001), 0, False, 1001),  # sudo
        (Membership(slice_uid=1001), 100999, True, 1001),  # a uid of the user's own name space
        (Membership(slice_uid=1001), 1002, False, 1002),  # su to another
        (Membership(slice_uid=0), 1002, False, 1002),  # runuser, by root
        (Membership(), 0, False, 0),
        (Membership(), 100999, True, 100999),
    ],
)
def test_owners(member: Membership, uid: int, mapped: bool, expected: int) -> None:
    assert owner(member, uid, mapped) == expected


DICTIONARY = {
    "uids": {"1001": "alpha", "1000-1999": "beta", "1500-1599": "gamma"},
    "slurm_accounts": {"physics": "delta"},
    "namespaces": {"team-a": "epsilon"},
}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (("process", 1001), "alpha"),
        (("process", 1002), "beta"),
        (("process", 1555), "gamma"),  # the narrowest range
        (("process", 0), None),
        (("process", 2000), None),
        (("slurm", 1002, "physics"), "delta"),
        (("slurm", 1002, "chemistry"), "beta"),
        (("slurm", 1002, ""), "beta"),
        (("pod", 1001, "", "team-a"), "epsilon"),
        (("pod", 1001, "", "other"), None),  # uids inside pods are anybody's
        (("container", 1001), "alpha"),
        (("process", 1002, "physics", "team-a"), "beta"),
    ],
)
def test_the_dictionary(question: tuple[Any, ...], expected: str | None) -> None:
    assert tenants(DICTIONARY).find(*question) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "an object"),
        ({"users": {}}, "uids, slurm_accounts, namespaces"),
        ({"uids": {"alice": "alpha"}}, "got 'alice'"),
        ({"uids": {"9-1": "alpha"}}, "got '9-1'"),
        ({"uids": {"1": 'a"b'}}, "tenants.uids"),
        ({"namespaces": {"x": 1}}, "tenants.namespaces"),
    ],
)
def test_a_bad_dictionary_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        identity.tenants(value)
