"""What the lab would run and write, without running it: command lines, sources, mirror, taking down."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from sideband import software

from lab import desk
from lab.sblab import (
    archives,
    built,
    cgroups,
    faults,
    keeper,
    keys,
    mirror,
    nspawn,
    sources,
    takedown,
    topology,
    uml,
)
from lab.sblab.say import LabError, run
from services import wheels

LAB = topology.load()
NODE, SWITCH, MGMT, USER = (LAB.hosts[name] for name in ("node1", "tor1", "mgmt1", "user1"))

DEB822 = """Types: deb
# a remark
URIs: https://packages.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://packages.invalid/security
Suites: bookworm-security
Components: main contrib

Types: deb-src
URIs: https://packages.invalid/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: https://disabled.invalid/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://third.invalid/node
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/third.gpg
"""
ONE_LINE = """# deb http://commented.invalid/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/third.gpg] http://third.invalid/x bookworm main
deb http://packages.invalid/debian bookworm main contrib
deb http://vendor.invalid/docker bookworm stable
"""


def test_sources_are_the_machines_own_with_the_suite_replaced(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (tmp_path / "sources.list").write_text(ONE_LINE)
    found = sources.lines("trixie", tmp_path, own="bookworm")
    places = [line.split("] ")[1] for line in found]
    assert places == [
        "http://packages.invalid/debian trixie main",
        "https://packages.invalid/debian trixie main",
        "https://packages.invalid/debian trixie-updates main",
        "https://packages.invalid/security trixie-security main",
    ]
    assert all("signed-by=" in line for line in found)


def test_a_machine_without_debian_sources_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no Debian source"):
        sources.lines("trixie", tmp_path, own="bookworm")


def test_a_container_gets_its_namespace_and_writable_network_settings() -> None:
    command = nspawn.command(NODE)
    assert command[:2] == ["nsenter", "--net=/run/netns/sbl-node1"]
    assert "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network" in command
    assert "--network-namespace-path=/run/netns/sbl-node1" in command
    assert "--capability=CAP_NET_ADMIN" in command
    # It would move the machine's clock.
    assert not any("CAP_SYS_TIME" in part or part.startswith("--bind") for part in command)


def test_only_the_mirrors_host_sees_the_mirror_and_read_only() -> None:
    assert nspawn.command(MGMT)[-1].startswith("--bind-ro=")
    assert nspawn.source(MGMT, LAB) == "deb [trusted=yes] file:/srv/sideband/mirror/trixie ./\n"
    node3 = LAB.hosts["node3"]
    assert nspawn.source(node3, LAB) == "deb [trusted=yes] http://10.90.0.61:8080/bookworm ./\n"


def test_the_switch_has_a_vector_per_port_and_never_hears_its_own_frames() -> None:
    command = uml.command(SWITCH, LAB)
    vectors = [part for part in command if part.startswith("vec")]
    assert len(vectors) == len(LAB.ports) + 1
    assert all("transport=tap" in part for part in vectors)
    assert "noreboot" in command
    assert f"mem={SWITCH.memory_mb}M" in command
    assert 128 <= SWITCH.memory_mb <= 160


def test_the_switchs_ports_come_up_in_no_bridge() -> None:
    script = uml.wires_script(SWITCH, LAB)
    assert "ip link set vec15 up" in script
    assert "master" not in script
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_network_file_has_no_route_and_no_router_advertisement() -> None:
    text = nspawn.network_file(NODE.link("train0"))
    assert "Gateway" not in text
    assert "IPv6AcceptRA=no" in text
    assert "Address=10.10.0.11/24" in text


def test_every_extra_is_in_the_mirror() -> None:
    lists = mirror.wanted()
    for host in LAB.hosts.values():
        assert set(LAB.extras.get(host.extra, ())) <= set(lists[host.suite]), host.name
    assert set(lists) == set(LAB.suites)


def test_a_changed_list_is_another_mirror() -> None:
    assert mirror.digest("trixie", ["a"]) != mirror.digest("trixie", ["a", "b"])
    assert mirror.digest("trixie", ["a"]) != mirror.digest("bookworm", ["a"])


def test_the_manifest_comes_from_the_index() -> None:
    index = (
        "Package: b\nVersion: 1:2-3\nFilename: ./b_1%3a2-3_amd64.deb\nSize: 7\nSHA256: ff\n"
        "Description: x\n Size: 9\n\nPackage: a\nVersion: 1\nFilename: ./a.deb\nSize: 1\nSHA256: 00\n"
    )
    found = mirror.parse_index(index)
    assert list(found) == ["a", "b"]
    assert found["b"] == {"version": "1:2-3", "file": "b_1%3a2-3_amd64.deb", "sha256": "ff", "size": 7}


@pytest.mark.parametrize("name", ["node1", "tor1"])
def test_a_keepers_script_is_sound_and_stops_on_its_marker(name: str, tmp_path: Path) -> None:
    host = LAB.hosts[name]
    text = keeper.script(host, ["true", "two words"], [tmp_path / "group"], tmp_path / "log")
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert str(keeper.marker(host)) in text
    assert "'two words'" in text
    assert ("133" in text) == (host.system == "nspawn")


def test_cgroups_of_both_versions_are_found() -> None:
    mounts = (
        "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
        "cgroup2 /somewhere/else cgroup2 rw 0 0\nproc /proc proc rw 0 0\n"
    )
    assert cgroups.hierarchies(mounts) == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/unified")]


def test_taking_down_unmounts_the_deepest_first_and_only_the_labs() -> None:
    text = (
        "x /run/sideband-lab/roots/node1 overlay rw 0 0\nx /run/sideband-lab/roots/node1/proc proc rw 0 0\n"
        "x /run/sideband-lab-other overlay rw 0 0\nx /home overlay rw 0 0\n"
        "x /run/sideband-lab/roots/a\\040b overlay rw 0 0\n"
    )
    assert takedown.mounts(text) == [
        "/run/sideband-lab/roots/node1/proc",
        "/run/sideband-lab/roots/node1",
        "/run/sideband-lab/roots/a b",
    ]


def test_only_ssh_connections_to_lab_hosts_are_ended() -> None:
    text = (
        'ESTAB 0 0 10.90.0.1:50000 10.90.0.11:22 users:(("ssh",pid=11,fd=3))\n'
        'ESTAB 0 0 10.90.0.1:50001 10.90.0.61:8080 users:(("curl",pid=12,fd=3))\n'
        'ESTAB 0 0 192.0.2.1:50000 192.0.2.9:22 users:(("ssh",pid=13,fd=3))\n'
        'ESTAB 0 0 10.90.0.1:22 10.90.0.11:40000 users:(("sshd",pid=14,fd=3))\n'
    )
    assert takedown.ssh_masters(text) == {11}


@pytest.mark.parametrize("script", [faults.break_script("x.service"), faults.heal_script("x.service")])
def test_fault_scripts_are_sound(script: str) -> None:
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_unit_may_be_named_short() -> None:
    assert faults.unit_of("haproxy") == "haproxy.service"
    assert faults.unit_of("apt-daily.timer") == "apt-daily.timer"


def test_keys_and_known_hosts_are_as_the_inventory_wants_them(tmp_path: Path) -> None:
    keys.ensure([NODE, USER], tmp_path)
    known = (tmp_path / "known_hosts").read_text()
    assert known.startswith("node1,10.90.0.11 ssh-ed25519 ")
    assert "user1" not in known
    assert (tmp_path / "id_ed25519").stat().st_mode & 0o077 == 0
    keys.ensure([NODE, USER], tmp_path)
    assert (tmp_path / "known_hosts").read_text() == known
    connection = yaml.safe_load(
        (Path(__file__).resolve().parents[2] / "inventories/lab/group_vars/lab/connection.yml").read_text()
    )
    assert connection["ansible_ssh_private_key_file"].endswith("/.lab/ssh/id_ed25519")
    assert "/.lab/ssh/known_hosts" in connection["ansible_ssh_common_args"]


def test_a_failed_program_says_why_and_what_next() -> None:
    with pytest.raises(LabError) as error:
        run(["sh", "-c", "echo the reason >&2; exit 3"], hint="the next step")
    assert "the reason" in error.value.problem
    assert error.value.hint == "the next step"
    with pytest.raises(LabError, match="not installed"):
        run(["no-such-program-at-all"])


def test_the_desk_asks_with_peoples_certificates_alone(tmp_path: Path) -> None:
    script = desk.ask_script("10.40.0.51")
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    with pytest.raises(LabError, match="no certificates of people"):
        desk.files(tmp_path)
    for name in ("tenant-alpha.key", "tenant-alpha.crt", "administrator-ops.key", "administrator-ops.crt",
                 "ca.crt", "ca.key", "node-node1.key"):  # fmt: skip
        (tmp_path / name).write_text(name)
    packed = desk.pack(desk.files(tmp_path), {"usr/local/bin/ask": script.encode()})
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        modes = {entry.name: entry.mode for entry in archive}
    assert modes == {
        "root/people/tenant-alpha.key": 0o600,
        "root/people/tenant-alpha.crt": 0o600,
        "root/people/administrator-ops.key": 0o600,
        "root/people/administrator-ops.crt": 0o600,
        "root/people/ca.crt": 0o600,
        "usr/local/bin/ask": 0o755,
    }


def test_no_servers_name_is_in_the_labs_files() -> None:
    """Package sources are the machine's own; a name in the project would be somebody else's."""
    lab = Path(__file__).resolve().parents[2] / "lab"
    for path in sorted(lab.rglob("*")):
        if path.suffix in (".py", ".sh", ".yml", ".txt") or path.name == "lab":
            text = path.read_text() if path.is_file() else ""
            for word in ("deb.debian.org", "https://"):
                hits = [x for x in text.splitlines() if word in x and "https://$host" not in x]
                assert not hits, f"{path.name}: {hits}"


def test_an_archive_is_the_same_bytes_whoever_packs_it_and_when() -> None:
    files = {"vmagent": b"agent", "victoria-metrics": b"store"}
    packed = wheels.pack(files, 0o755)
    assert packed == wheels.pack(dict(reversed(files.items())), 0o755)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [(each.name, each.mode, each.uid, each.mtime) for each in tar] == [
            ("victoria-metrics", 0o755, 0, 0),
            ("vmagent", 0o755, 0, 0),
        ]


def test_the_mirror_packs_every_component_that_can_come_as_an_archive_from_packages_that_it_holds() -> None:
    spec = archives.wanted()
    # promtool comes with prometheus
    held = {*mirror.wanted()[spec["suite"]], "promtool", built.NAME}
    python = {component.name for component in wheels.COMPONENTS}
    # Debian's Alertmanager needs files at its own places; the vendor's archive needs none.
    assert {*spec["components"], *spec["trees"], *python, "alertmanager"} == set(software.ARCHIVED)
    for name, component in spec["components"].items():
        assert set(component) <= held
        programs = {file for paths in component.values() for file in paths.values()}
        assert programs == set(software.ARCHIVED[name].values())


def no_apt(suite: str) -> list[Any]:
    raise AssertionError(suite)


def test_an_archive_of_other_packages_is_packed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {
        "suite": "trixie",
        "components": {"node_exporter": {"ne": {"usr/bin/x": "node_exporter"}}},
        "trees": {},
    }
    monkeypatch.setattr(archives, "wanted", lambda: spec)
    monkeypatch.setattr(wheels, "COMPONENTS", ())
    monkeypatch.setattr(
        archives, "_programs", lambda package, paths: {"node_exporter": package.name.encode()}
    )
    held = {"ne": {"version": "1:1.9.0-1+b4", "file": "ne_1.deb", "sha256": "a", "size": 1}}
    manifest = {"trixie": held}
    assert archives.ensure(tmp_path, manifest, no_apt) is True
    first = dict(manifest["archives"]["node_exporter"])
    assert first["file"] == "node_exporter-1.9.0.tar.gz"
    assert archives.ensure(tmp_path, manifest, no_apt) is False
    held["ne"] = {"version": "1.9.1-1", "file": "ne_2.deb", "sha256": "b", "size": 1}
    assert archives.ensure(tmp_path, manifest, no_apt) is True
    assert manifest["archives"]["node_exporter"]["sha256"] != first["sha256"]
    assert [path.name for path in (tmp_path / "archives").iterdir()] == ["node_exporter-1.9.1.tar.gz"]
    del held["ne"]
    with pytest.raises(LabError, match="trixie has no package ne for node_exporter"):
        archives.ensure(tmp_path, manifest, no_apt)
