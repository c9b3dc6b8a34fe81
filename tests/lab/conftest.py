"""What shares the lab's hosts runs one after the other; what has a spare host of its own runs beside it."""

from __future__ import annotations

import pytest

OWN_HOST = ("test_single", "test_systems_lab", "test_waiting")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        own = item.path.stem in OWN_HOST
        item.add_marker(pytest.mark.xdist_group("own host" if own else "the lab"))
