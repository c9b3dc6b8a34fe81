"""Files that are whole or absent, and reads that wait for nobody."""

from __future__ import annotations

import os
from pathlib import Path

from services import durable


def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    os.mkfifo(path)
    assert not durable.read(str(path), 100)


def test_what_is_longer_than_it_can_be_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    durable.write(str(path), b"12345", 0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert durable.read(str(path), 5) == b"12345"
    assert durable.read(str(path), 4) is None
    assert durable.read(str(tmp_path), 4) is None
    assert list(tmp_path.iterdir()) == [path]
