"""The site of a spare host: the lab's contract, valid, with the spare host in its model's place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench import check, spare_site
from bench.canary import RELEASES, Release, edited
from bench.remove import SPARES


@pytest.mark.parametrize("spare", [*SPARES, *check.SPARES], ids=lambda spare: spare.name)
def test_a_spare_host_takes_its_models_place_and_no_rack_is_renamed(
    spare: spare_site.Spare, tmp_path: Path
) -> None:
    made = spare_site.inventory(tmp_path / "site", [(spare, "10.90.0.201")])
    text = (made / "hosts.yml").read_text()
    assert f"{spare.name}:" in text
    variables = yaml.safe_load((made / f"host_vars/{spare.name}.yml").read_text())
    lab = yaml.safe_load((spare_site.LAB / f"host_vars/{spare.like}.yml").read_text())
    assert variables["ansible_host"] == variables["sideband_addresses"]["management"]["ipv4"] == "10.90.0.201"
    assert variables.get("sideband_rack") == lab.get("sideband_rack")
    assert not (made / f"host_vars/{spare.like}.yml").exists()
    ports = yaml.safe_load((made / "host_vars/tor1.yml").read_text())["sideband_fabric_ports"]
    assert spare.like not in {port["host"] for port in ports.values()}


def test_the_old_contract_differs(tmp_path: Path) -> None:
    made = spare_site.inventory(tmp_path / "site", [(SPARES[0], "10.90.0.201")])
    old = check.old_contract(made)
    for noun in ("ladder", "planes"):
        name = f"group_vars/all/{noun}.yml"
        assert (old / name).read_text() != (made / name).read_text()


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_every_release_of_the_drill_is_an_edit_of_this_tree(release: Release) -> None:
    assert any(file.startswith("roles/") for file, _, _ in release.edits)
    for file, now, then in release.edits:
        text = (spare_site.ROOT / file).read_text()
        assert now in text, file
        assert then in edited(text, now, then)
        assert edited(text, now, then) != text
