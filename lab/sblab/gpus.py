"""Stand-ins for what a GPU's driver brings to a host: its library, its device files, and a kernel's log to
write Xid errors to (a container has none). Nothing of it is sideband's."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from .paths import LAB
from .say import run
from .topology import Host

LIBRARY = Path("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
# Read by the library. A test or a drill changes a GPU by putting another file in its place (lab/fake_nvml).
SCRIPT = Path("run/fake_nvml.conf")
AT_START = Path("usr/share/lab-gpus.conf")
KERNEL_LOG = Path("var/log/kernel.log")
UNIT = """[Unit]
Description=lab: stand-ins for GPUs
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '{devices}'
ExecStart=/bin/cp --no-clobber /{start} /{script}

[Install]
WantedBy=sysinit.target
"""


def build() -> Path:
    return Path(run([LAB / "fake_nvml" / "build"], hint="lab/packages.sh brings the compiler").strip())


def script(host: Host) -> str:
    """Each GPU has a name of its own in the whole lab, as real ones have in the world."""
    lines = ["driver 570.86", "device /dev/nvidia0"]
    for number in range(host.gpus):
        name = uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu{number}.{host.name}.sideband-lab")
        lines.append(f"gpu {number} uuid GPU-{name}")
    return "".join(f"{line}\n" for line in lines)


def install(host: Host, where: Path) -> None:
    (where / LIBRARY).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build(), where / LIBRARY)
    (where / AT_START).write_text(script(host))
    (where / KERNEL_LOG).write_text("")
    (where / KERNEL_LOG).chmod(0o644)
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(host.gpus))]
    devices = "; ".join(f"test -e /dev/{name} || mknod -m 666 /dev/{name} c 1 3" for name in names)
    unit = where / "etc/systemd/system/lab-gpus.service"
    unit.write_text(UNIT.format(devices=devices, start=AT_START, script=SCRIPT))
    run(["systemctl", f"--root={where}", "-q", "enable", unit.name])
