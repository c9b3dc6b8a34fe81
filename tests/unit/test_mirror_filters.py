"""Archives come from the mirror's manifest with their checksum, and pins hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from filter_plugins import mirror

HOLDS: dict[str, Any] = {
    "trixie": {
        "victoria-metrics": {
            "version": "1.112.0+ds1-1",
            "file": "vm_1%3a1.112+ds1.deb",
            "sha256": "ab" * 32,
            "size": 9,
        }
    }
}


def test_an_archive_has_an_address_and_a_checksum() -> None:
    assert mirror.archive(
        HOLDS, "victoria-metrics", suite="trixie", url="http://[fd00::61]:8080/", path="/opt/sideband/x"
    ) == {
        "path": "/opt/sideband/x",
        "url": "http://[fd00::61]:8080/trixie/vm_1%253a1.112%2Bds1.deb",
        "sha256": "ab" * 32,
        "format": "deb",
    }


@pytest.mark.parametrize(
    ("pin", "version", "fits"),
    [
        ("newest", "2:9.9-1", True),
        ("1.112", "1.112.0+ds1-1", True),
        ("1.11", "1.112.0+ds1-1", False),
        ("1.112.0", "1.112.0+ds1-1", True),
        ("3.0", "1:3.0.11-1~deb13u1", True),
        ("3.0.1", "3.0.11-1", False),
    ],
)
def test_a_pin_admits_whole_numbers_only(pin: str, version: str, fits: bool) -> None:
    assert mirror.admits(pin, version) is fits


def test_what_the_mirror_lacks_or_a_pin_forbids_is_named() -> None:
    where = {"suite": "trixie", "url": "http://m", "path": "/p"}
    with pytest.raises(AnsibleFilterError, match="trixie holds no vmagent; hint"):
        mirror.archive(HOLDS, "vmagent", **where)
    with pytest.raises(AnsibleFilterError, match=r"got 1\.112\.0\+ds1-1, pinned 1\.80"):
        mirror.archive(HOLDS, "victoria-metrics", version="1.80", **where)


def test_a_missing_or_broken_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(AnsibleFilterError, match="missing; hint"):
        mirror.manifest(str(tmp_path / "manifest.json"))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(AnsibleFilterError, match="no JSON"):
        mirror.manifest(str(tmp_path / "manifest.json"))
    (tmp_path / "manifest.json").write_text(json.dumps(HOLDS))
    assert mirror.manifest(str(tmp_path / "manifest.json")) == HOLDS


def test_case_4_the_mirror_listens_on_bracketed_addresses_of_the_management_plane_only() -> None:
    interfaces = {
        "core": {"kind": "telemetry", "ipv4": "10.30.0.61"},
        "management": {"kind": "management", "ipv4": "10.90.0.61", "ipv6": "fd00:5b:90::61"},
    }
    self = {"name": "mgmt1", "interfaces": interfaces}
    assert mirror.listens(self, 8080) == ["10.90.0.61:8080", "[fd00:5b:90::61]:8080"]
    with pytest.raises(AnsibleFilterError, match="mgmt1: zones: no address on a management plane"):
        mirror.listens({"name": "mgmt1", "interfaces": {}}, 8080)
