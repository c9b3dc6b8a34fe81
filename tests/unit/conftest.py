"""What several tests of the node's program share: the program as it is built, and a library below it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_kit import Bed, library

from services import build


@pytest.fixture(scope="session")
def nodeagent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    build.build(directory)
    return directory / "nodeagent.pyz"


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def bed(tmp_path: Path, nodeagent: Path, fake_nvml: Path) -> Iterator[Bed]:
    """A node's directory for the sample process. Tests of another process make their own."""
    bed = Bed(tmp_path, nodeagent, fake_nvml)
    yield bed
    bed.end()
