"""Reports have one shape, are written whole, and cannot claim what their checks deny."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from sideband import report


def test_a_report_has_exactly_the_agreed_keys(tmp_path: Path) -> None:
    checks = [report.expect("rules", 3, 3)]
    path = report.write("verify", True, {"seconds": 1.5}, checks, {"nft": "1.0.9"}, str(tmp_path / "reports"))
    written = json.loads(Path(path).read_text())
    assert tuple(written) == report.KEYS
    assert written["checks"] == [{"name": "rules", "pass": True, "got": 3, "want": 3}]
    assert written["figures"] == {"seconds": 1.5}
    assert [one.name for one in Path(path).parent.iterdir()] == ["verify.json"]


def test_a_pass_that_a_check_denies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot pass"):
        report.write("verify", True, {}, [report.expect("rules", 2, 3)], {}, str(tmp_path))
    with pytest.raises(ValueError, match="cannot pass"):
        report.write("verify", True, {}, [], {}, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="exactly name, pass, got, want"):
        report.compose("verify", False, {}, [{"name": "x", "pass": False}], {}, "")


def test_no_checks_are_no_pass() -> None:
    assert not report.passes([])
    assert not report.passes([report.check("a", True, 1, 1), report.check("b", False, 1, 2)])


def test_the_commit_says_when_the_tree_was_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *words],
            check=True,
            capture_output=True,
        )

    assert report.commit(str(tmp_path)) == ""
    git("init", "-q")
    (tmp_path / "contract.yml").write_text("a: 1\n")
    git("add", ".")
    git("commit", "-qm", "one")
    clean = report.commit(str(tmp_path))
    assert len(clean) == 40
    (tmp_path / "contract.yml").write_text("a: 2\n")
    (tmp_path / "reports").mkdir()
    assert report.commit(str(tmp_path / "reports")) == clean + "+"
