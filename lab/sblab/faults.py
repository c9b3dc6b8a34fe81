"""break and heal: a link, a host, a process."""

from __future__ import annotations

import subprocess

from . import keeper, lifecycle, wires
from .say import LabError, line, run
from .topology import Host

_DROPIN = "50-lab-broken.conf"


def link(names: list[str], up: bool) -> None:
    found = lifecycle.everybody().find_link(names)
    with lifecycle.locked():
        _need_lab()
        wires.set_link(found, up)
    line(f"link {found.host} {found.device} ({found.port or 'management bridge'}): {'up' if up else 'cut'}")


def host(name: str, up: bool) -> None:
    """Breaking cuts the power: no shutdown, the disk stays as it is. Healing starts it again."""
    topology = lifecycle.everybody()
    found = topology.host(name)
    with lifecycle.locked():
        _need_lab()
        if up:
            if keeper.alive(found) and not keeper.marker(found).exists():
                line(f"host {name}: runs already")
                return
            lifecycle.start(found, topology)
            took = keeper.wait([found])
            if found.system == "uml":
                # SSH greets before the switch has its bridge back: healed means that it forwards.
                subprocess.run(
                    keeper.inside(found, ["systemctl", "is-system-running", "--wait"]),
                    capture_output=True,
                    check=False,
                )
            line(f"host {name}: answers after {took[name]:.1f} s")
            return
        keeper.marker(found).parent.mkdir(parents=True, exist_ok=True)
        keeper.marker(found).touch()
        keeper.stop(found)
        if found.system == "nspawn":
            # The cable goes dark with the host.
            wires.disconnect(found)
    line(f"host {name}: power cut")


def unit_of(name: str) -> str:
    return name if "." in name else f"{name}.service"


def break_script(unit: str) -> str:
    """Killed, and kept from coming back by a condition that is never true.

    A mask would do for a vendor's unit but not for one in /etc, which is stronger than /run.
    """
    directory = f"/run/systemd/system/{unit}.d"
    return (
        f"set -e; systemctl cat {unit} >/dev/null; mkdir -p {directory}\n"
        f"printf '[Unit]\\nConditionPathExists=/run/lab/healed\\n' >{directory}/{_DROPIN}\n"
        f"systemctl daemon-reload; systemctl kill -s KILL {unit}; sleep 0.2\n"
        f"systemctl stop {unit}"
    )


def heal_script(unit: str) -> str:
    directory = f"/run/systemd/system/{unit}.d"
    return (
        f"set -e; rm -f {directory}/{_DROPIN}; rmdir {directory} 2>/dev/null || :\n"
        f"systemctl daemon-reload; systemctl kill -s CONT {unit} 2>/dev/null || :\n"
        f"systemctl reset-failed {unit} 2>/dev/null || :\nsystemctl start {unit}"
    )


def process(name: str, unit: str, up: bool, hang: bool = False) -> None:
    """Kills a unit's processes and keeps them dead, or (`hang`) stops them where they stand."""
    found, unit = lifecycle.everybody().host(name), unit_of(unit)
    if found.system == "uml" and unit == "ssh.service":
        raise LabError(f"{name} is driven over SSH: nothing could heal it", f"lab/lab break link {name} vec0")
    with lifecycle.locked():
        _need_lab()
        marker = wires.BROKEN / f"process-{name}-{unit}"
        marker.parent.mkdir(parents=True, exist_ok=True)
        if up:
            _shell(found, heal_script(unit))
            marker.unlink(missing_ok=True)
        else:
            _shell(found, f"systemctl kill -s STOP {unit}" if hang else break_script(unit))
            marker.touch()
    line(f"process {name} {unit}: {'runs' if up else 'hangs' if hang else 'killed'}")


def _shell(host: Host, script: str) -> None:
    run(keeper.inside(host, ["sh", "-c", script]), hint=f"lab/lab exec {host.name} systemctl --failed")


def _need_lab() -> None:
    if not lifecycle.state():
        raise LabError("the lab is not up", "lab/lab up")


def execute(name: str, argv: list[str]) -> int:
    """Runs a command in a host with the caller's input and output; returns its code."""
    found = lifecycle.everybody().host(name)
    return subprocess.run(keeper.inside(found, argv or ["bash", "-l"]), check=False).returncode
