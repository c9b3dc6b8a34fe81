"""Archives: whole or not at all, by checksum; a file of the host itself in a local run only (C9, O3)."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest
from sideband.state.archives import Archive, fetch
from sideband.state.system import StateError, System


@pytest.fixture
def packed(tmp_path: Path) -> tuple[str, str]:
    """(its address, its checksum)."""
    (tmp_path / "tool").write_text("x")
    with tarfile.open(tmp_path / "tool.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "tool", "tool")
    data = (tmp_path / "tool.tar.gz").read_bytes()
    return f"file://{tmp_path}/tool.tar.gz", hashlib.sha256(data).hexdigest()


def test_one_machine_unpacks_what_lies_on_it(tmp_path: Path, packed: tuple[str, str]) -> None:
    system = System(str(tmp_path / "host"), local=True)
    fetch(system, archive := Archive("/opt/sideband/tool", *packed, "tar"))
    assert (Path(system.at(archive.store)) / "tool").read_text() == "x"


def test_another_host_is_given_no_file_of_its_own(tmp_path: Path, packed: tuple[str, str]) -> None:
    with pytest.raises(StateError, match=r"comes with a local run only; name the site's mirror"):
        fetch(System(str(tmp_path / "host")), Archive("/opt/sideband/tool", *packed, "tar"))
    assert not (tmp_path / "host").exists()


def test_a_file_of_another_content_is_none(tmp_path: Path, packed: tuple[str, str]) -> None:
    with pytest.raises(StateError, match=r"sha256 is [0-9a-f]{64}, wanted 00"):
        fetch(System(str(tmp_path / "host"), local=True), Archive("/opt/x", packed[0], "00" * 32, "tar"))
