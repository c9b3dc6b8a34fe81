"""Role policy: what each end is told (B5, cases 2, 4, 22)."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from control_kit import make_key

from filter_plugins import policy
from services import configuration
from services.level import accept, issue, send

MODEL: dict[str, Any] = {
    "site": "lab",
    "hosts": {
        "rack1": {
            "words": ["rack"],
            "rack": "rack1",
            "address": "jump.example",
            "interfaces": {
                "edge": {"kind": "telemetry", "ipv4": "10.21.0.21", "ipv6": ""},
                "management": {"kind": "management", "ipv4": "10.90.0.21", "ipv6": "fd00::21"},
            },
        },
        "rack2": {
            "words": ["rack"],
            "rack": "rack2",
            "address": "rack2",
            "interfaces": {"oob": {"kind": "management", "ipv4": "", "ipv6": "fd00::22"}},
        },
    },
    "racks": {
        "rack1": {"nodes": ["node1", "node2"], "receivers": ["rack1"]},
        "rack2": {"nodes": ["node3"], "receivers": ["rack2"]},
    },
    "ladder": {
        "order": ["full", "core"],
        "levels": {"full": {"intake_bytes_per_second": 9000}, "core": {"intake_bytes_per_second": 700}},
    },
}
HOSTVARS = {"rack1": {}, "rack2": {"ansible_port": 2222}}


@pytest.fixture
def public(tmp_path: Path) -> str:
    make_key(tmp_path / "key")
    return (tmp_path / "key.pub").read_text().strip()


def test_receivers_are_reached_over_management_at_the_port_of_their_ssh() -> None:
    one, two = policy.receivers(MODEL, HOSTVARS)
    assert (one["address"], one["port"], one["nodes"]) == ("10.90.0.21", 22, ["node1", "node2"])
    assert (two["address"], two["port"]) == ("fd00::22", 2222)


def test_both_programs_read_what_the_role_writes(tmp_path: Path) -> None:
    targets = policy.receivers(MODEL, HOSTVARS)
    path = tmp_path / "level.json"
    path.write_text(json.dumps(policy.origin(MODEL, targets, state="/s", configuration="/c")))
    config = issue.load(str(path))
    assert config.places() == {"rack1": ["node1", "node2"], "rack2": ["node3"]}
    assert issue.main(["--check", str(path)]) == 0
    value = policy.accept(MODEL, "rack1", state="/s", configuration="/c", admin_socket="/a")
    path.write_text(json.dumps(value))
    found = configuration.load(str(path), accept.parse)
    assert found.levels == {"full": 0, "core": 700}
    assert accept.main(["--check", str(path)]) == 0
    path.write_text("{}")
    assert accept.main(["--check", str(path)]) == 2
    assert issue.main(["--check", str(path)]) == 2


def test_known_hosts_is_whole_or_not_at_all(public: str, tmp_path: Path) -> None:
    targets = policy.receivers(MODEL, HOSTVARS)
    with pytest.raises(AnsibleFilterError, match="no host key of rack2"):
        policy.known_hosts(targets, {"rack1": public, "rack2": " "})
    with pytest.raises(AnsibleFilterError, match="no usable host key"):
        policy.known_hosts(targets, {"rack1": public, "rack2": "rubbish"})
    path = tmp_path / "known_hosts"
    path.write_text(policy.known_hosts(targets, {"rack1": public, "rack2": public}))
    for name in ("10.90.0.21", "[fd00::22]:2222"):
        assert (
            subprocess.run(["ssh-keygen", "-F", name, "-f", str(path)], capture_output=True).returncode == 0
        )


def test_a_receiver_on_the_origin_is_handed_documents_without_ssh(public: str, tmp_path: Path) -> None:
    model = copy.deepcopy(MODEL)
    model["hosts"]["rack1"]["words"] = ["rack", "policy"]
    targets = policy.receivers(model, HOSTVARS)
    assert [target["local"] for target in targets] == [True, False]
    # It needs no host key, and none of it is written down; the other one still does.
    assert policy.known_hosts(targets, {"rack2": public}).startswith("[fd00::22]:2222 ssh-ed25519 ")
    path = tmp_path / "level.json"
    path.write_text(json.dumps(policy.origin(model, targets, state="/s", configuration="/c")))
    here, there = issue.load(str(path)).racks
    words = send.command(here, "sideband-accept", "/s/key", "/c/known_hosts")
    assert words == ["runuser", "-u", "sideband-accept", "--", "/opt/sideband/accept.pyz"]
    assert send.command(there, "sideband-accept", "/s/key", "/c/known_hosts")[0] == "ssh"


def test_the_trusted_list_holds_the_origin_and_the_offline_key(public: str) -> None:
    text = policy.allowed_signers(public, [public + " offline"])
    assert text.count('sideband-policy namespaces="sideband-policy" ssh-ed25519 ') == 2
    assert policy.allowed_signers("", []).startswith("#")
    with pytest.raises(AnsibleFilterError, match="offline_key"):
        policy.allowed_signers(public, ["-----BEGIN OPENSSH PRIVATE KEY-----"])


def test_the_rack_key_opens_one_command(public: str) -> None:
    line = policy.authorized_key(public, "/opt/sideband/accept.pyz")
    assert line.startswith('restrict,command="/opt/sideband/accept.pyz" ssh-ed25519 ')
    assert policy.authorized_key("", "/x").startswith("#")


def test_a_receiver_without_a_rack_is_said() -> None:
    model = {**MODEL, "hosts": {"rack1": {**MODEL["hosts"]["rack1"], "rack": ""}}}
    with pytest.raises(AnsibleFilterError, match="sideband_rack"):
        policy.accept(model, "rack1", state="/s", configuration="/c", admin_socket="/a")
