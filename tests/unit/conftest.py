"""What several tests of the node's program share: the program as it is built, and a library below it."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvml_kit import library

from services import build


@pytest.fixture(scope="session")
def nodeagent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("build")
    build.build(directory)
    return directory / "nodeagent.pyz"


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("fake"))
