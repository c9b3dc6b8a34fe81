"""What a login on each host sees after site.yml (C7, C9, B7). On failure the unit's journal is printed."""

from __future__ import annotations

import pytest
from login import login
from testinfra.host import Host

NODES = ["node1", "node2", "node3"]
RACKS = ["rack1", "rack2"]
SERVERS = [*RACKS, "region1", "lake1", "gateway1"]
# Vendor units that start on every interface as shipped: masked wherever their package is installed.
VENDOR = {
    "rack1": ["haproxy.service"],
    "region1": ["haproxy.service"],
    "lake1": ["haproxy.service", "prometheus.service", "victoria-metrics.service"],
    "gateway1": ["haproxy.service"],
    "mgmt1": ["nginx.service"],
}


def ours(host: Host) -> list[str]:
    listed = host.check_output("systemctl list-unit-files --no-legend 'sideband-*.service'")
    enabled = [line.split() for line in listed.splitlines()]
    return [unit for unit, state, *_ in enabled if state == "enabled"]


@pytest.mark.parametrize("name", [*NODES, *SERVERS, "mgmt1"])
def test_every_enabled_unit_of_ours_runs_or_has_done_its_work(name: str) -> None:
    host = login(name)
    units = ours(host)
    assert units, f"{name} has no enabled sideband unit"
    for unit in units:
        state = host.check_output("systemctl show -p ActiveState,Result --value %s | paste -sd' '", unit)
        journal = host.run("journalctl -u %s -n 20 --no-pager", unit).stdout
        assert "success" in state.split(), f"{name} {unit}: {state}\n{journal}"
        assert "active" in state.split(), f"{name} {unit}: {state}\n{journal}"


@pytest.mark.parametrize("name", [*NODES, *SERVERS, "mgmt1"])
def test_nothing_failed(name: str) -> None:
    failed = login(name).check_output("systemctl list-units --failed --no-legend --plain 'sideband-*'")
    assert failed == ""


@pytest.mark.parametrize(("name", "unit"), [(name, unit) for name, units in VENDOR.items() for unit in units])
def test_vendor_units_that_we_do_not_run_are_masked(name: str, unit: str) -> None:
    host = login(name)
    assert host.run("systemctl is-enabled %s", unit).stdout.strip() == "masked"
    assert host.run("systemctl is-active %s", unit).stdout.strip() == "inactive"


@pytest.mark.parametrize("name", NODES)
def test_no_socket_of_ours_listens_on_any_plane_of_a_training_node(name: str) -> None:
    listening = login(name).check_output("ss -Hltunp")
    outside = [
        line
        for line in listening.splitlines()
        if not line.split()[4].startswith(("127.0.0.1:", "[::1]:"))
        and "sshd" not in line
        and "systemd" not in line
    ]
    assert outside == []


@pytest.mark.parametrize("name", NODES)
def test_nothing_of_ours_is_a_package_on_a_training_node(name: str) -> None:
    packages = login(name).check_output("dpkg-query -W -f '${Package}\\n'").splitlines()
    assert not {"prometheus-node-exporter", "victoria-metrics", "vmagent", "haproxy"} & set(packages)


@pytest.mark.parametrize("name", NODES)
def test_the_training_interface_has_no_hook_and_no_queue_of_ours(name: str) -> None:
    host = login(name)
    assert "train0" not in host.check_output("nft list ruleset")
    assert "htb" not in host.check_output("tc qdisc show dev train0")


@pytest.mark.parametrize("name", [*NODES, *SERVERS])
def test_private_keys_are_readable_by_their_service_alone(name: str) -> None:
    loose = login(name).check_output(r"find /etc/sideband \( -name '*.key' -o -name '*.pem' \) -perm /o+rwx")
    assert loose == ""
