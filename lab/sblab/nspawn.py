"""Hosts as containers that boot systemd."""

from __future__ import annotations

import uuid
from pathlib import Path

from . import gpus, images, keys, site
from .mirror import MIRROR
from .paths import IMAGES, NETNS, ROOTS, STATE
from .topology import Host, Link, Topology

MIRROR_INSIDE = "/srv/sideband/mirror"


def root(host: Host) -> Path:
    return ROOTS / host.name


def disk(host: Host) -> Path:
    return STATE / "hosts" / host.name


def command(host: Host) -> list[str]:
    """Without nsenter /sys/class/net would be the machine's; without the variable sysctls are read-only."""
    namespace = NETNS / host.namespace
    argv = [
        "nsenter",
        f"--net={namespace}",
        "env",
        "-i",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network",
        "systemd-nspawn",
        "-q",
        "-D",
        str(root(host)),
        "--boot",
        "--register=no",
        "--keep-unit",
        f"--network-namespace-path={namespace}",
        f"--machine={host.name}",
        f"--hostname={host.name}",
        "--capability=CAP_NET_ADMIN",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
    ]
    if host.mirror:
        argv.append(f"--bind-ro={MIRROR}:{MIRROR_INSIDE}")
    return argv


def network_file(link: Link) -> str:
    """For systemd-networkd. Addresses stay when the cable is pulled, as a site's own would."""
    return (
        f"[Match]\nName={link.device}\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nAddress={link.ipv4}\n"
        f"Address={link.ipv6}\nIPv6AcceptRA=no\nLLMNR=no\nConfigureWithoutCarrier=yes\n"
    )


def source(host: Host, topology: Topology) -> str:
    """The only package source: the mirror over the management plane, or the files themselves on its host."""
    if host.mirror:
        return f"deb [trusted=yes] file:{MIRROR_INSIDE}/{host.suite} ./\n"
    server = next(x for x in topology.hosts.values() if x.mirror)
    return f"deb [trusted=yes] http://{server.address}:8080/{host.suite} ./\n"


def write_common(host: Host, topology: Topology, where: Path) -> None:
    etc = where / "etc"
    (etc / "hosts").write_text(
        f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n::1 localhost ip6-localhost ip6-loopback\n"
    )
    # Given, not empty: an empty one makes a "first boot", which enables every unit that it finds.
    (etc / "machine-id").write_text(uuid.uuid5(uuid.NAMESPACE_DNS, f"{host.name}.sideband-lab").hex + "\n")
    if host.address:
        (etc / "apt/sources.list.d/sideband.list").write_text(source(host, topology))
    keys.install(host, where)


def prepare(host: Host, topology: Topology) -> None:
    """A fresh writable layer over the suite's image, with what is the host's own."""
    lower = str(images.root(host.suite))
    if host.extra:
        lower = f"{IMAGES / host.extra}.layer:{lower}"
    where = root(host)
    images.overlay(lower, disk(host) / "upper", disk(host) / "work", where)
    write_common(host, topology, where)
    network = where / "etc/systemd/network"
    network.mkdir(parents=True, exist_ok=True)
    for link in host.links:
        if link.configured == "lab":
            (network / f"10-lab-{link.device}.network").write_text(network_file(link))
    if host.gpus:
        gpus.install(host, where)
    if host.mirror:
        (where / MIRROR_INSIDE.lstrip("/")).mkdir(parents=True, exist_ok=True)
    if host.extra == site.EXTRA:
        site.install(where)
