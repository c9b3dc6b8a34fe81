"""The switch: a user-mode Linux with a kernel of its own, which has what the machine's may lack."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import images, keys, nspawn
from .mirror import MIRROR
from .paths import IMAGES, NETNS, RUN, SSH
from .say import LabError, line, run
from .topology import Host, Topology
from .wires import WIRES

KERNELS = Path("/usr/lib/uml/modules")
# Loading on demand is unreliable there.
MODULES = (
    "8021q",
    "bridge",
    "nf_tables",
    "sch_htb",
    "sch_ingress",
    "sch_fq_codel",
    "sch_netem",
    "sch_prio",
    "act_police",
    "act_gact",
    "cls_flower",
    "cls_matchall",
    "cls_u32",
)
SIZE = "1536M"
# With a journal: without one a power cut leaves inodes whose checksums are wrong (EBADMSG), and the next
# change of the switch fails for a reason that is the lab's alone.
FILE_SYSTEM = ("-t", "ext4", "-J", "size=8")
# Processes start slowly there, and nobody needs these on a switch.
IDLE = (
    "systemd-logind.service",
    "modprobe@configfs.service",
    "modprobe@efi_pstore.service",
    "modprobe@fuse.service",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
)
_WIRES_UNIT = """[Unit]
Description=The lab's management address, and the switch's ports up
DefaultDependencies=no
After=systemd-modules-load.service systemd-sysctl.service
Before=network-pre.target networking.service sysinit.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-wires

[Install]
WantedBy=sysinit.target
"""


def command(host: Host, topology: Topology) -> list[str]:
    """`noreboot`: a restart inside could not open the taps again, so the lab starts it anew."""
    link = host.links[0]
    vectors = [f"vec0:transport=tap,ifname=t-vec0,depth=128,gro=1,mac={link.mac}"]
    for port in topology.ports:
        number = int(port.removeprefix("vec"))
        vectors.append(
            f"{port}:transport=tap,ifname=t-{port},depth=128,gro=1,mac=02:5b:00:00:00:{number:02x}"
        )
    return [
        "nsenter",
        f"--net={NETNS / WIRES}",
        "env",
        "-i",
        "PATH=/usr/sbin:/usr/bin",
        f"HOME={RUN}",
        "linux.uml",
        f"mem={host.memory_mb}M",
        f"ubd0={nspawn.disk(host) / 'cow'},{image(host)}",
        "root=/dev/ubda",
        "rw",
        "noreboot",
        *vectors,
        "con=null",
        "con0=null,fd:1",
        f"umid={host.name}",
        f"uml_dir={RUN}/uml",
        "quiet",
    ]


def image(host: Host) -> Path:
    return IMAGES / f"{host.name}.ext4"


def wires_script(host: Host, topology: Topology) -> str:
    """Ports carry frames only: up, without IPv6, in no bridge (which one is the role `fabric`'s business)."""
    link = host.links[0]
    rows = ["#!/bin/sh", "set -e", "ip link set lo up", f"ip link set {link.device} up"]
    rows += [f"ip address replace {link.ipv4} dev {link.device}"]
    rows += [f"ip address replace {link.ipv6} dev {link.device} nodad"]
    for port in topology.ports:
        rows += [f"echo 1 >/proc/sys/net/ipv6/conf/{port}/disable_ipv6", f"ip link set {port} up"]
    return "\n".join(rows) + "\n"


def kernel() -> Path:
    found = sorted(KERNELS.glob("*")) if KERNELS.is_dir() else []
    if not found:
        raise LabError("user-mode-linux is not installed", "lab/packages.sh")
    return found[-1]


def _write(host: Host, topology: Topology, where: Path) -> None:
    nspawn.write_common(host, topology, where)
    (where / "etc/hostname").write_text(f"{host.name}\n")
    (where / "etc/modules-load.d/lab.conf").write_text("\n".join(MODULES) + "\n")
    (where / "etc/sysctl.d/90-lab.conf").write_text("kernel.panic = 1\n")
    interfaces = where / "etc/network"
    (interfaces / "interfaces.d").mkdir(parents=True, exist_ok=True)
    (interfaces / "interfaces").write_text(
        "# The management port is the lab's; the switch's bridge comes from interfaces.d.\n"
        "auto lo\niface lo inet loopback\n\nsource /etc/network/interfaces.d/*\n"
    )
    script = where / "usr/local/sbin/lab-wires"
    script.write_text(wires_script(host, topology))
    script.chmod(0o755)
    (where / "etc/systemd/system/lab-wires.service").write_text(_WIRES_UNIT)
    # There is no udev, and networkd would wait for it: the unit above does the little that is needed.
    run(
        [
            "systemctl",
            f"--root={where}",
            "-q",
            "disable",
            "systemd-networkd.service",
            "systemd-networkd.socket",
        ]
    )
    run(["systemctl", f"--root={where}", "-q", "enable", "lab-wires.service"])
    run(["systemctl", f"--root={where}", "-q", "mask", "systemd-networkd.service", *IDLE])
    modules = kernel()
    shutil.copytree(modules, where / "lib/modules" / modules.name, dirs_exist_ok=True, symlinks=True)
    run(["chroot", where, "depmod", modules.name])


def build(host: Host, topology: Topology) -> None:
    """The switch's disk, made anew when the layer, the keys, the kernel or the topology changed."""
    layer = images.layer(host.extra, host.suite, topology.extras[host.extra], MIRROR)
    inputs = [
        (IMAGES / f"{host.extra}.ready").read_text(),
        kernel().name,
        MODULES,
        IDLE,
        SIZE,
        FILE_SYSTEM,
        _WIRES_UNIT,
        wires_script(host, topology),
        nspawn.source(host, topology),
        (SSH / "id_ed25519.pub").read_text(),
        (SSH / "hosts" / f"{host.name}.pub").read_text(),
    ]
    wanted = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
    ready = IMAGES / f"{host.name}.ext4.ready"
    if ready.is_file() and image(host).is_file() and ready.read_text() == wanted:
        return
    line(f"image {host.name}: writing its disk")
    ready.unlink(missing_ok=True)
    image(host).unlink(missing_ok=True)
    # Mounted where taking down looks, in case this is interrupted.
    base, work = IMAGES / f"{host.name}.build", RUN / "build" / host.name
    shutil.rmtree(base, ignore_errors=True)
    try:
        images.overlay(f"{layer}:{images.root(host.suite)}", base / "upper", base / "work", work)
        _write(host, topology, work)
        env = {**os.environ, "MKE2FS_SYNC": "0"}
        run(["mke2fs", "-q", *FILE_SYSTEM, "-d", work, image(host), SIZE], env=env)
    finally:
        subprocess.run(["umount", "-l", work], capture_output=True, check=False)
        shutil.rmtree(base, ignore_errors=True)
    ready.write_text(wanted)


def prepare(host: Host) -> None:
    nspawn.disk(host).mkdir(parents=True, exist_ok=True)
    (RUN / "uml").mkdir(parents=True, exist_ok=True)


def client(host: Host) -> list[str]:
    return keys.client(host.address)
