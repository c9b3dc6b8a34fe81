"""What a rollback and a restore left, and what was counted on the way (D7, D8, D9, acceptance 4)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from login import login

ROOT = Path(os.environ.get("MOLECULE_PROJECT_DIRECTORY", Path(__file__).parents[3]))
EVIDENCE = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "evidence"
NODES = {"node1": "rack1", "node2": "rack1", "node3": "rack2"}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def held(rack: str) -> tuple[str, list[dict[str, Any]]]:
    intake, bundle = (EVIDENCE / f"{rack}.core").read_text().splitlines()
    return intake, [json.loads(one["document"]) for one in json.loads(bundle)["documents"]]


def test_nobody_connected_to_a_training_node() -> None:
    counted = read(EVIDENCE / "counters.json")
    assert set(counted["packets"]) == set(NODES)
    assert counted["connections_to_training_nodes"] == 0, counted


def test_the_rollback_was_seen_in_the_lake() -> None:
    report = read(ROOT / "reports" / "rollback.json")
    assert report["pass"] is True, report["checks"]
    assert report["figures"]["level"] == "core"
    assert report["figures"]["nodes"] == len(NODES)
    assert report["figures"]["seconds_to_clamp"] > 0


@pytest.mark.parametrize("rack", sorted(set(NODES.values())))
def test_every_rack_clamped_and_served_the_document(rack: str) -> None:
    intake, documents = held(rack)
    generation = read(ROOT / "reports" / "rollback.json")["figures"]["generation"]
    assert int(intake.split()[1]) > 0
    assert [one["level"] for one in documents if one["generation"] == generation] == ["core"]


def test_one_rack_was_restored_first_and_then_all() -> None:
    small = read(EVIDENCE / "restore-rack1.json")
    assert (small["pass"], small["figures"]["scope"], small["figures"]["nodes"]) == (True, "rack:rack1", 2)
    all_ = read(ROOT / "reports" / "restore.json")
    assert (all_["pass"], all_["figures"]["scope"], all_["figures"]["level"]) == (True, "all", "full")
    assert all_["figures"]["generation"] > small["figures"]["generation"]


@pytest.mark.parametrize("node", sorted(NODES))
def test_the_node_obeys_the_last_document_and_keeps_it(node: str) -> None:
    host = login(node)
    stored = json.loads(host.check_output("cat /var/lib/sideband/policy/obeyed.json"))
    document = json.loads(stored["document"])
    journal = host.run("journalctl -u sideband-policy.service -n 20 --no-pager").stdout
    assert document["level"] == "full", journal
    assert document["generation"] == read(ROOT / "reports" / "restore.json")["figures"]["generation"], journal
    same = host.run("cmp /etc/sideband/node/levels/full.yml /var/lib/sideband/policy/scrape.yml")
    assert same.rc == 0, journal


def test_the_signing_key_never_left() -> None:
    origin = login("mgmt1")
    key = origin.file("/var/lib/sideband/policy/signing_key")
    assert (key.user, key.mode) == ("root", 0o600)
    for name in [*NODES, *NODES.values()]:
        found = login(name).check_output("find /etc /opt /var /root /home -name signing_key")
        assert found == "", name
