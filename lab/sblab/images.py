"""Root images: a small Debian per suite, and layers on it for the switch and the desk.

The built roots are cached as tarballs under .cache/images by the hash of what goes into them; the unpacked
images are the lab's own and go with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import sources
from .paths import CACHE, IMAGES
from .say import LabError, line, run

# What every host has: systemd and its bus, SSH, Python for Ansible, and the network's tools.
BASE = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iputils-ping",
    "kmod",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "systemd",
    "systemd-sysv",
)
# Nobody reads manuals in the lab, and they are a third of the root.
LEAN = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
)
RECIPE = 1
# Units of the base that would only wake up, or look for a network that is not there.
QUIET = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "fstrim.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "systemd-networkd-wait-online.service",
    "systemd-timesyncd.service",
    "systemd-binfmt.service",
    "console-getty.service",
    "getty@tty1.service",
)


def digest(suite: str) -> str:
    return hashlib.sha256(json.dumps([RECIPE, suite, BASE, LEAN]).encode()).hexdigest()[:12]


def tarball(suite: str) -> Path:
    return CACHE / "images" / f"{suite}-{digest(suite)}.tar"


def root(suite: str) -> Path:
    return IMAGES / suite


def _build(suite: str) -> None:
    target = tarball(suite)
    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    line(f"image {suite}: downloading and installing {len(BASE)} packages and what they need")
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEAN]
    # mmdebstrap reads nothing of the machine's apt configuration: hand over how it reaches its sources.
    for row in run(["apt-config", "dump", "--format", "%F %v%n", "Acquire"]).splitlines():
        name, _, value = row.partition(" ")
        if value and not name.endswith("::"):
            options.append(f'--aptopt={name} "{value}"')
    half = target.with_suffix(".half.tar")
    run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={','.join(BASE)}",
            *options,
            suite,
            half,
            "-",
        ],
        stdin="\n".join(sources.lines(suite)) + "\n",
        hint="see that this machine's own Debian source answers (apt-get update), then again",
    )
    half.rename(target)
    for old in target.parent.glob(f"{suite}-*.tar"):
        if old != target:
            old.unlink()


def _unpack(suite: str) -> None:
    directory, ready = root(suite), IMAGES / f"{suite}.ready"
    wanted = digest(suite) + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if ready.is_file() and ready.read_text() == wanted:
        return
    ready.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run(["tar", "-xf", tarball(suite), "-C", directory, "--numeric-owner", "--xattrs"])
    _normalise(directory)
    ready.write_text(wanted)


def _normalise(directory: Path) -> None:
    """Takes out what must differ from host to host, and what would look for the world outside."""
    etc = directory / "etc"
    # A host name in the image beats the one that the container is started with.
    (etc / "hostname").unlink(missing_ok=True)
    (etc / "machine-id").write_text("")
    for key in (etc / "ssh").glob("ssh_host_*"):
        key.unlink()
    for path in (
        etc / "apt/sources.list",
        *(etc / "apt/sources.list.d").glob("*"),
        etc / "apt/apt.conf.d/99mmdebstrap",
    ):
        path.unlink(missing_ok=True)
    for name in ("resolv.conf", "fstab"):
        (etc / name).unlink(missing_ok=True)
        (etc / name).write_text("")
    (etc / "default").mkdir(exist_ok=True)
    (etc / "default/locale").write_text("LANG=C.UTF-8\n")
    (etc / "apt/apt.conf.d/90lab").write_text(
        'Acquire::Languages "none";\nAPT::Install-Recommends "false";\n'
    )
    run(["systemctl", f"--root={directory}", "-q", "enable", "systemd-networkd.service", "ssh.service"])
    run(["systemctl", f"--root={directory}", "-q", "mask", *QUIET])
    for name in ("etc/.updated", "var/.updated"):
        # Younger than /usr: no host rebuilds its caches at its first start.
        (directory / name).touch()


def bases(suites: list[str]) -> None:
    for suite in suites:
        if not tarball(suite).is_file() and not shutil.which("mmdebstrap"):
            raise LabError("mmdebstrap is not installed", "lab/packages.sh")
    # One downloads while the other installs.
    with ThreadPoolExecutor() as pool:
        list(pool.map(_build, suites))
    for suite in suites:
        _unpack(suite)


def overlay(lower: str, upper: Path, work: Path, target: Path) -> None:
    for directory in (upper, work, target):
        directory.mkdir(parents=True, exist_ok=True)
    run(
        [
            "mount",
            "-t",
            "overlay",
            "sideband-lab",
            "-o",
            f"lowerdir={lower},upperdir={upper},workdir={work}",
            target,
        ]
    )


def layer(name: str, suite: str, packages: tuple[str, ...], mirror: Path) -> Path:
    """A directory to lay over the suite's root: the packages of an `extra`, installed from the mirror."""
    directory, ready = IMAGES / f"{name}.layer", IMAGES / f"{name}.ready"
    wanted = json.dumps(
        [(IMAGES / f"{suite}.ready").read_text(), packages, (mirror / "manifest.json").read_text()]
    )
    wanted = hashlib.sha256(wanted.encode()).hexdigest()
    if ready.is_file() and ready.read_text() == wanted:
        return directory
    ready.unlink(missing_ok=True)
    line(f"image {name}: {' '.join(packages)} on {suite}")
    work, merged = IMAGES / f"{name}.work", IMAGES / f"{name}.merged"
    for path in (directory, work, merged):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    # In a mount namespace of its own, so that an interrupted build leaves no mount behind.
    script = """
        set -eu
        mount -t overlay lab -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$MERGED"
        mount -t proc proc "$MERGED/proc"
        mount --bind /dev "$MERGED/dev"
        mkdir -p "$MERGED/run/mirror"
        mount --bind "$MIRROR" "$MERGED/run/mirror"
        printf '#!/bin/sh\\nexit 101\\n' >"$MERGED/usr/sbin/policy-rc.d"
        chmod 755 "$MERGED/usr/sbin/policy-rc.d"
        echo "deb [trusted=yes] file:/run/mirror/$SUITE ./" >"$MERGED/etc/apt/sources.list.d/build.list"
        export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
        apt="apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0"
        chroot "$MERGED" $apt update
        chroot "$MERGED" $apt install -y --no-install-recommends $PACKAGES
        rm -rf "$MERGED/usr/sbin/policy-rc.d" "$MERGED/etc/apt/sources.list.d/build.list" \
            "$MERGED"/var/lib/apt/lists/* "$MERGED"/var/cache/apt/*.bin
        umount "$MERGED/run/mirror"
        rmdir "$MERGED/run/mirror"
    """
    env = {
        **os.environ,
        "LOWER": str(root(suite)),
        "UPPER": str(directory),
        "WORK": str(work),
        "MERGED": str(merged),
        "MIRROR": str(mirror),
        "SUITE": suite,
        "PACKAGES": " ".join(packages),
    }
    run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        env=env,
        hint="lab/lab mirror, then again",
    )
    ready.write_text(wanted)
    return directory


def size(directory: Path) -> str:
    done = subprocess.run(["du", "-sh", directory], capture_output=True, text=True, check=False)
    return done.stdout.split()[0] if done.returncode == 0 else "?"
