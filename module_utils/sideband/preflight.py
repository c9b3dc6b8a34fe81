"""The third ring of validation, the *world*: whether each host is one that sideband can be put on. Pure rules
over what was found; nothing was changed before, and nothing is where one of them says no."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import Error, got
from .software import System, lacking
from .systems import Release, find, parse_os_release, refusal

PYTHON_FLOOR = (3, 9)
NFT_FLOOR = (1, 0, 1)  # ip6 dscp set in netdev egress chains
KERNEL_EGRESS = (5, 16)  # netdev egress hook
DEVICE_LENGTH = 15
DISK_FLOOR_BYTES = 2**30

# The first look works without Python and without anything of ours: plain shell, one line per answer.
FIRST_LOOK = (
    "printf 'sideband-kernel %s\\n' \"$(uname -r)\"; "
    "for python in {interpreter} /usr/bin/python3 /usr/libexec/platform-python python3; do "
    'found=$(command -v "$python" 2>/dev/null) || continue; '
    "printf 'sideband-python %s %s\\n' \"$found\" "
    '"$("$found" -c \'import sys; print("%d.%d.%d" % sys.version_info[:3])\' 2>/dev/null)"; '
    "done; "
    "[ ! -d /var/lib/sideband/generations ] || echo sideband-here; "
    "sed 's/^/sideband-os /' /etc/os-release"
)


def parse_first_look(text: str) -> dict[str, Any]:
    """{"pythons": [(path, "3.11.2")…] in the order tried, "os_release": …, "kernel": …, "here": whether
    sideband came before}. Banners that a login shell prints do not disturb."""
    pythons: list[tuple[str, str]] = []
    lines: list[str] = []
    kernel, here = "", False
    for line in text.replace("\r", "").splitlines():
        word, _, rest = line.partition(" ")
        if word == "sideband-python":
            path, _, version = rest.partition(" ")
            if (path, version) not in pythons:
                pythons.append((path, version))
        elif word == "sideband-os":
            lines.append(rest)
        elif word == "sideband-kernel":
            kernel = rest.strip()
        elif word == "sideband-here":
            here = True
    os_release = parse_os_release("\n".join(lines))
    return {"pythons": pythons, "os_release": os_release, "kernel": kernel, "here": here}


def version_of(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `6.1.0-18-amd64` is (6, 1, 0)."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def _text(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def judge_first_look(host: str, answer: Mapping[str, Any] | None, releases: Iterable[Release]) -> list[Error]:
    """System and interpreter: what has to be right before a single module of ours can run (case 16)."""
    if answer is None:
        return [
            Error(
                host,
                "ansible_host",
                "cannot be reached",
                hint="ssh to it by hand with the inventory's address, port and user",
            )
        ]
    errors = []
    supported = list(releases)
    if find(supported, answer["os_release"]) is None:
        errors.append(Error(host, "system", refusal(supported, answer["os_release"])))
    errors += judge_interpreter(host, answer["pythons"])
    return errors


def judge_software(host: str, found: System, roles: Iterable[str], holds: Mapping[str, Any]) -> list[Error]:
    """`found` is software.system()'s answer, `holds` the mirror's manifest, {} where the site has none."""
    return [
        Error(
            host,
            "system",
            f"{found['name']} has no package of {word} that would do, and no mirror has an archive",
            hint="mirror it and name the list in sideband_mirror_manifest, or take a newer system",
        )
        for word in lacking(found, roles, holds)
    ]


def unread(host: str, said: str) -> Error:
    """The interpreter was well, and still the host could not be read."""
    return Error(
        host, "facts", "could not be read", got(said) if said else "", "the failed task above says more"
    )


def judge_interpreter(host: str, pythons: Sequence[tuple[str, str]]) -> list[Error]:
    """The first one is what Ansible will take."""
    wanted = f"{_text(PYTHON_FLOOR)} or newer is needed"
    path = "ansible_python_interpreter"
    if not pythons:
        return [Error(host, path, f"no Python 3 found, {wanted}", hint="install python3")]
    first, version = pythons[0]
    if version_of(version) >= PYTHON_FLOOR:
        return []
    better = next((place for place, each in pythons[1:] if version_of(each) >= PYTHON_FLOOR), "")
    hint = f"set it to {better}" if better else "install a newer python3 and name it here"
    found = f"{first} is Python {version}" if version else f"{first} does not run"
    return [Error(host, path, f"{found}, {wanted}", hint=hint)]


def judge_facts(host: str, facts: Mapping[str, Any], part: Mapping[str, Any]) -> list[Error]:
    """`facts` is node_facts' answer, `part` the host's part of the model."""
    return [
        *_kernel(host, facts, part),
        *_nft(host, facts),
        *_devices(host, facts, part),
        *_rivals(host, facts),
        *_disk(host, facts, part),
        *_service_manager(host, facts),
    ]


def _guarded(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [interface for interface in part.get("interfaces", {}).values() if interface["managed"]]


def _kernel(host: str, facts: Mapping[str, Any], part: Mapping[str, Any]) -> list[Error]:
    release = str(facts["kernel"])
    if not _guarded(part) or version_of(release)[:2] >= KERNEL_EGRESS:
        return []
    return [
        Error(
            host,
            "kernel",
            f"cannot mark packets on their way out, {_text(KERNEL_EGRESS)} is needed",
            got(release),
            "boot a newer kernel, or have the switch port set the DSCP",
        )
    ]


def _nft(host: str, facts: Mapping[str, Any]) -> list[Error]:
    """Absent is well: the role brings it. Too old is not."""
    version = str(facts.get("nft") or "")
    if not version or version_of(version) >= NFT_FLOOR:
        return []
    return [
        Error(
            host, "nft", f"{_text(NFT_FLOOR)} or newer is needed", got(version), "update the package nftables"
        )
    ]


def _devices(host: str, facts: Mapping[str, Any], part: Mapping[str, Any]) -> list[Error]:
    errors = []
    present = set(facts["interfaces"])
    for plane, interface in part.get("interfaces", {}).items():
        device, where = str(interface["device"]), f"zones: {plane}"
        if len(device) > DEVICE_LENGTH:
            # Linux refuses it or cuts it, and a cut VLAN number is another VLAN (case 28).
            errors.append(
                Error(
                    host,
                    where,
                    f"an interface's name has at most {DEVICE_LENGTH} characters",
                    got(device),
                    "choose a shorter one",
                )
            )
        elif device not in present:
            have = ", ".join(sorted(present - {"lo"})) or "none"
            errors.append(Error(host, where, "the host has no such interface", got(device), f"it has {have}"))
    return errors


def _rivals(host: str, facts: Mapping[str, Any]) -> list[Error]:
    """Two managers on one link undo each other at the next boot (case 29)."""
    return [
        Error(host, "planes", problem, hint="one owner per link: decide which, by hand")
        for problem in facts.get("rivals", ())
    ]


def _disk(host: str, facts: Mapping[str, Any], part: Mapping[str, Any]) -> list[Error]:
    if "fabric" in part["words"]:
        return []  # a switch gets two files
    free = int(facts["disk_free_bytes"])
    if free >= DISK_FLOOR_BYTES:
        return []
    return [Error(host, "/var/lib", "at least 1 GiB must be free", f"{free // 2**20} MiB", "make room")]


def _service_manager(host: str, facts: Mapping[str, Any]) -> list[Error]:
    manager = str(facts.get("service_manager") or "")
    if manager == "systemd":
        return []
    return [Error(host, "service manager", "systemd is needed", got(manager or "none found"))]
