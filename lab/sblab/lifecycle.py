"""up, down, status, clean: one lab per machine."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import cgroups, images, keeper, keys, mirror, nspawn, uml, wires
from .paths import CACHE, CHECKOUT, LAB, RUN, STATE
from .say import LabError, line, phase
from .takedown import remains, takedown, unmount
from .topology import Host, Topology, load, parse_host

FILE = RUN / "lab.json"
TOKEN = STATE / "token"
SPARES = RUN / "spares"
_LOCK = Path("/run/sideband-lab.lock")


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("the lab makes namespaces and mounts", "run as root")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One at a time on this machine, whatever the checkout."""
    require_root()
    with _LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            line("another lab command is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def state() -> dict[str, Any]:
    """What is recorded of the running lab; empty when none was ever completed."""
    with contextlib.suppress(OSError, ValueError):
        data: dict[str, Any] = json.loads(FILE.read_text())
        return data
    return {}


def identity() -> str:
    """Changes when a running lab is no longer what the files describe."""
    names = [
        LAB / "topology.yml",
        *(
            LAB / "sblab" / name
            for name in ("gpus.py", "images.py", "nspawn.py", "site.py", "uml.py", "wires.py")
        ),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()


def ours(running: dict[str, Any]) -> bool:
    """Built from this folder as it is now: a new clone in an old one's place has other keys and no disks."""
    try:
        token = TOKEN.read_text()
    except OSError:
        return False
    return running.get("checkout") == str(CHECKOUT) and running.get("token") == token


def spares() -> dict[str, Host]:
    found = {}
    for path in sorted(SPARES.glob("*.json")) if SPARES.is_dir() else []:
        found[path.stem] = parse_host(path.stem, json.loads(path.read_text()), {})
    return found


def everybody() -> Topology:
    """The topology, and the spare hosts that were added to the running lab."""
    topology = load()
    return Topology(
        {**topology.hosts, **spares()}, topology.controller4, topology.controller6, topology.extras
    )


def prepare(topology: Topology, seconds: dict[str, float]) -> None:
    with phase("images", seconds):
        images.bases(topology.suites)
    with phase("mirror", seconds):
        mirror.ensure()
    with phase("layers and keys", seconds):
        for host in topology.hosts.values():
            if host.extra:
                images.layer(host.extra, host.suite, topology.extras[host.extra], mirror.MIRROR)
        keys.ensure(topology.hosts.values())
        uml.build(topology.switch, topology)


def up() -> dict[str, float]:
    """Builds and starts the lab; on a running one, starts only hosts that died by themselves."""
    topology, seconds = load(), dict[str, float]()
    with locked():
        running = state()
        if ours(running) and running["identity"] == identity():
            dead = [
                h for h in topology.hosts.values() if not keeper.alive(h) and not keeper.marker(h).exists()
            ]
            # The lists may have changed since: the running lab sees a new mirror at once.
            mirror.ensure()
            if not dead:
                line(f"lab: up, {len(topology.hosts)} hosts; nothing to do")
                return seconds
            for host in dead:
                line(f"{host.name}: was off, starting it")
                start(host, topology)
            keeper.wait(dead)
            return seconds
        if remains():
            line(f"lab: taking over what runs here (of {running.get('checkout', 'an unfinished lab')})")
            _gone(takedown())
        prepare(topology, seconds)
        with phase("hosts", seconds):
            took = _boot(topology)
        TOKEN.write_text(uuid.uuid4().hex)
        record = {
            "checkout": str(CHECKOUT),
            "token": TOKEN.read_text(),
            "identity": identity(),
            "started": int(time.time()),
            "boot_seconds": took,
        }
        FILE.write_text(json.dumps(record) + "\n")
        slowest = max(took, key=lambda name: took[name])
        line(f"lab: up, {len(took)} hosts; the slowest was {slowest} with {took[slowest]:.1f} s")
    return seconds


def _boot(topology: Topology) -> dict[str, float]:
    shutil.rmtree(STATE / "hosts", ignore_errors=True)
    wires.build(topology)
    switch = topology.switch
    uml.prepare(switch)
    keeper.start(switch, topology)
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda host: nspawn.prepare(host, topology), topology.containers))
    for host in topology.containers:
        wires.connect(host)
        keeper.start(host, topology)
    return keeper.wait(list(topology.hosts.values()))


def start(host: Host, topology: Topology) -> None:
    """Starts a host with the disk that it had; its links are new, so no kernel state survives."""
    keeper.stop(host)
    keeper.marker(host).unlink(missing_ok=True)
    rewire(host)
    keeper.start(host, topology)


def rewire(host: Host) -> None:
    """What a cold start means outside: fresh links, and no process fault is left (they are in /run)."""
    for path in wires.BROKEN.glob(f"process-{host.name}-*"):
        path.unlink()
    if host.system == "nspawn":
        wires.connect(host)


def _gone(left: list[str]) -> None:
    if left:
        raise LabError(
            "some of the lab would not go: " + ", ".join(left[:8]), "end what holds it, then again"
        )


def down() -> None:
    with locked():
        if not remains():
            line("lab: not up")
            shutil.rmtree(RUN, ignore_errors=True)
            return
        with phase("lab: taking down"):
            _gone(takedown())
            shutil.rmtree(STATE / "hosts", ignore_errors=True)


def clean(downloads: bool = False) -> None:
    """Removes the lab and its images; the download cache only if asked."""
    down()
    with locked():
        for path in (STATE, *([CACHE] if downloads else [])):
            shutil.rmtree(path, ignore_errors=True)
    _LOCK.unlink(missing_ok=True)
    line("lab: clean" + ("" if downloads or not CACHE.exists() else f"; downloads kept in {CACHE.name}/"))


def _word(host: Host) -> str:
    if keeper.marker(host).exists():
        return "broken"
    if not keeper.alive(host):
        return "off"
    return "answers" if keeper.answers(host) else "silent"


def status() -> dict[str, Any]:
    running = state()
    hosts = {}
    everyone = list(everybody().hosts.values())
    with ThreadPoolExecutor(max_workers=len(everyone)) as pool:
        words = list(pool.map(_word, everyone))
    for host, word in zip(everyone, words):
        broken = [link.device for link in host.links if wires.marker(link).exists()]
        processes = sorted(p.name.split("-", 2)[2] for p in wires.BROKEN.glob(f"process-{host.name}-*"))
        hosts[host.name] = {
            "system": host.system,
            "suite": host.suite,
            "address": host.address,
            "state": word,
            "broken_links": broken,
            "broken_processes": processes,
        }
    return {
        "up": bool(running),
        "checkout": running.get("checkout", ""),
        "ours": ours(running),
        "hosts": hosts,
        "boot_seconds": running.get("boot_seconds", {}),
    }


def spare_up(name: str, suite: str) -> None:
    """One more bare host, on the management bridge alone."""
    topology = load()
    with locked():
        if not state():
            raise LabError("the lab is not up", "lab/lab up")
        if name in everybody().hosts:
            raise LabError(f"{name} exists already", f"lab/lab spare down {name}")
        used = {host.address for host in spares().values()}
        number = next(n for n in range(201, 255) if f"10.90.0.{n}" not in used)
        spec = {
            "suite": suite,
            "system": "nspawn",
            "links": [
                {
                    "device": "mgmt0",
                    "plane": "management",
                    "ipv4": f"10.90.0.{number}/24",
                    "ipv6": f"fd00:5b:90::{number}/64",
                    "configured": "lab",
                }
            ],
        }
        host = parse_host(name, spec, {})
        if suite not in topology.suites:
            raise LabError(f"no image for {suite}", "one of: " + " ".join(topology.suites))
        SPARES.mkdir(parents=True, exist_ok=True)
        keys.ensure([*topology.hosts.values(), *spares().values(), host])
        nspawn.prepare(host, topology)
        (SPARES / f"{name}.json").write_text(json.dumps(spec))
        start(host, topology)
        keeper.wait([host])
        line(f"{name}: up, root@{host.address}")


def spare_down(name: str) -> None:
    with locked():
        if name not in spares():
            raise LabError(f"no spare host {name}", "one of: " + (" ".join(spares()) or "none"))
        host = spares()[name]
        remove_host(host)
        (SPARES / f"{name}.json").unlink()
        line(f"{name}: gone")


def remove_host(host: Host) -> None:
    keeper.stop(host)
    unmount(nspawn.root(host))
    wires.disconnect(host)
    cgroups.remove(host.name)
    shutil.rmtree(nspawn.disk(host), ignore_errors=True)
