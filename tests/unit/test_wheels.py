"""Python packages for programs on hosts: one tree of locked wheels for several Pythons (Q2, O8)."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from services import wheels

ROOT = Path(__file__).resolve().parents[2]


def wheel(path: Path, files: Mapping[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_wheels_for_several_pythons_make_one_tree(tmp_path: Path) -> None:
    one = wheel(tmp_path / "a-1-cp311.whl", {"a/m.py": "x", "a/m.cpython-311.so": "eleven"})
    two = wheel(tmp_path / "a-1-cp313.whl", {"a/m.py": "x", "a/m.cpython-313.so": "thirteen"})
    assert wheels.tree([one, two]) == {
        "a/m.py": b"x", "a/m.cpython-311.so": b"eleven", "a/m.cpython-313.so": b"thirteen",
    }  # fmt: skip
    other = wheel(tmp_path / "b-1.whl", {"a/m.py": "y"})
    with pytest.raises(wheels.WheelError, match=r"b-1.whl: a/m.py differs from that of another wheel"):
        wheels.tree([one, other])


@pytest.mark.parametrize(
    ("name", "taken"),
    [("a/b.py", True), ("a-1.dist-info/METADATA", True), ("a-1.dist-info/licenses/LICENSE.txt", True),
     ("a-1.dist-info/RECORD", False), ("a-1.data/scripts/a", False), ("/etc/x", False), ("a/../../x", False),
     ("a/", False)],
)  # fmt: skip
def test_what_of_a_wheel_reaches_a_host(name: str, taken: bool) -> None:
    assert wheels.wanted(name) is taken


def test_the_locked_packages_of_hosts_are_those_of_the_whole_lock() -> None:
    """querygate is tested here with what it runs on there."""
    whole = {
        re.sub("[-_.]+", "-", line.lower()) for line in (ROOT / "requirements.lock").read_text().splitlines()
    }
    for component in wheels.COMPONENTS:
        lines = component.requirements.read_text().splitlines()
        pins = {re.sub("[-_.]+", "-", line.split(" ")[0]) for line in lines if "==" in line}
        assert len(pins) > 5
        assert pins <= whole


def test_a_change_of_the_lock_or_of_the_pythons_is_another_archive() -> None:
    (one,) = wheels.COMPONENTS[:1]
    other = dataclasses.replace(one, pythons=(*one.pythons, "3.14"))
    assert one.digest() == one.digest() != other.digest()


def test_without_an_index_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(wheels.WheelError, match=r"no wheels for Python 3.11 .*hint: see that pip"):
        wheels.ensure(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_the_closure_follows_what_is_installed_here() -> None:
    component = next(one for one in wheels.COMPONENTS if one.name == "archiver_packages")
    pins = [pin.partition("==")[0] for pin in wheels.closure(component, "3.13")]
    assert {"duckdb", "dvc", "dvc-s3", "botocore", "s3fs", "aiobotocore"} <= set(pins)
    assert not set(component.without) & set(pins)


def test_an_unknown_component_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wheels.main([str(tmp_path), "archiver"]) == 2
    assert "archiver is none of querygate_packages, archiver_packages" in capsys.readouterr().err
