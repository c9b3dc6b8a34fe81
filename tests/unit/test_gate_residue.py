"""The comparison of a host before and after removal, and what it may overlook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import check, remove

ROOT = Path(__file__).resolve().parents[2]


def test_every_difference_is_residue_unless_it_is_listed() -> None:
    before = {"files": {"/etc/a": "1", "/etc/b": "1", "/var/log/x": "1"}, "users": {"root": "r"}}
    after = {
        "files": {"/etc/a": "2", "/etc/c": "1", "/var/log/x": "2"},
        "users": {"root": "r", "sideband": "s"},
    }
    assert remove.residue(before, after, ["/var/log*"]) == [
        "files: /etc/a differs: 1 -> 2",
        "files: /etc/b is gone: 1 -> ",
        "files: /etc/c appeared:  -> 1",
        "users: sideband appeared:  -> s",
    ]
    assert remove.residue(before, before, []) == []


def test_the_list_has_at_most_ten_entries_with_reasons_and_hides_no_room_of_ours() -> None:
    patterns = remove.ignored()
    assert 0 < len(patterns) <= 10
    for path in (
        "/etc/passwd",
        "/etc/sideband/a",
        "/etc/sideband/a-",
        "/etc/systemd/system/sideband-agent.service",
        "/etc/apt/sources.list.d/sideband.list",
        "/opt/sideband",
        "/usr/local/bin/sideband-level",
        "/var/lib/sideband",
    ):
        assert remove.residue({"files": {}}, {"files": {path: "x"}}, patterns), path


def test_a_list_without_reasons_or_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ignore.yml"
    monkeypatch.setattr(remove, "IGNORE", file)
    file.write_text("- path: /x\n")
    with pytest.raises(remove.BenchError, match="each with its reason"):
        remove.ignored()
    file.write_text("".join(f"- path: /x{number}\n  reason: y\n" for number in range(11)))
    with pytest.raises(remove.BenchError, match="at most 10"):
        remove.ignored()


def test_a_snapshot_needs_nothing_but_python() -> None:
    """It is sent to hosts through a pipe; here it runs in isolated mode over a small tree."""
    text = (ROOT / "bench/snapshot.py").read_text().replace("files()", "files('/etc/default')")
    done = subprocess.run([sys.executable, "-I", "-"], input=text, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == {
        "files",
        "units",
        "users",
        "groups",
        "rules",
        "queues",
        "settings",
        "addresses",
        "packages",
    }
    assert found["users"]["root"].startswith("root:")
    assert found["packages"]


def test_a_plan_is_compared_by_what_changes_not_by_its_reasons() -> None:
    told = [
        "file /etc/x: create (0644 root:root)",
        "unit a.service: restart (changed: /etc/x)",
        "guard: something",
    ]
    assert check.changes(told) == {"file /etc/x: create", "unit a.service: restart"}
    assert check.announced(told, "file", "directory") == {"/etc/x"}
    assert check.announced(told, "unit") == {"a.service"}
    noted = ["file /etc/x: cannot be checked before /opt/x is installed"]
    assert check.changes(noted) == set()


def test_what_was_announced_has_to_come() -> None:
    """A directory that two owners need is announced by both and made once."""
    told = {"directory /x: create", "directory /y: create", "file /z: create"}
    before, after = {"files": {}}, {"files": {"/x": "directory"}}
    assert check.broken_promises(before, after, told, {"file /z: create"}) == ["directory /y: create"]


def test_the_links_that_enable_an_announced_unit_are_announced_with_it() -> None:
    place = "/etc/systemd/system/multi-user.target.wants"
    after = {"files": {f"{place}/a.service": "link", f"{place}/b.service": "link"}}
    lines = ["unit a.service: enable"]
    found = check.unannounced({"files": {}}, after, lines, set())
    assert len(found) == 1
    assert "b.service" in found[0]


def test_a_file_that_changed_without_a_word_is_found() -> None:
    before = {"files": {"/etc/x": "1", "/etc/y": "1", "/opt/sideband/z": "1"}, "packages": {}}
    after = {"files": {"/etc/x": "2", "/etc/y": "2", "/opt/sideband/z": "1", "/usr/q": "1"}, "packages": {}}
    found = check.unannounced(before, after, ["file /etc/x: change (content)"], {"/usr/q"})
    assert [line.split(":")[1].split()[0] for line in found] == ["/etc/y"]
