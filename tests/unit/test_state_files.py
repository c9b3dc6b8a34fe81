"""host_state on files: plan, apply, prune, undo, remove (C9, B2; cases 1, 7, 19)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sideband.state import paths
from sideband.state.system import StateError
from state_kit import FakeHost, tree

FRAGMENT: dict[str, Any] = {
    "directories": [{"path": "/etc/sideband/rack", "mode": "0750"}],
    "files": [
        {"path": "/etc/sideband/rack/haproxy.cfg", "content": "one\n"},
        {"path": "/etc/sideband/rack/extra.cfg", "content": "two\n", "mode": "0640"},
    ],
    "links": [{"path": "/usr/local/bin/tool", "target": "/opt/sideband/tool"}],
}
SECRET = [{"path": "/etc/sideband/rack/host.key", "content": "MARKED-SECRET"}]


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host")


def changed_first(host: FakeHost) -> dict[str, Any]:
    return {**FRAGMENT, "files": [{"path": "/etc/sideband/rack/haproxy.cfg", "content": "other\n"}]}


def test_check_on_a_bare_host_plans_all_and_writes_nothing_case_1(host: FakeHost) -> None:
    before = tree(host.base)
    fragment = {
        **FRAGMENT,
        "packages": ["haproxy"],
        "users": [{"name": "sideband"}],
        "groups": ["extra"],
        "units": [{"name": "sideband-rack.service", "enabled": True, "running": True}],
    }
    fragment["directories"] = [{"path": "/etc/sideband/rack", "owner": "sideband"}]
    answer = host.present(fragment, secrets=SECRET, check=True)
    assert tree(host.base) == before
    assert answer["changed"]
    text = "\n".join(answer["plan"])
    for line in (
        "package haproxy: install",
        "user sideband: create",
        "group extra: create",
        "directory /etc/sideband/rack",
        "file /etc/sideband/rack/haproxy.cfg: create",
        "secret /etc/sideband/rack/host.key: create",
        "unit sideband-rack.service: enable",
        "unit sideband-rack.service: start",
    ):
        assert line in text


def test_what_was_announced_is_what_is_done(host: FakeHost) -> None:
    announced = host.present(FRAGMENT, check=True)["plan"]
    assert host.present(FRAGMENT)["plan"] == announced


def test_second_run_changes_nothing(host: FakeHost) -> None:
    host.present(FRAGMENT, secrets=SECRET)
    before = tree(host.base)
    answer = host.present(FRAGMENT, secrets=SECRET)
    assert (answer["changed"], answer["plan"]) == (False, [])
    assert tree(host.base) == before


def test_drift_in_content_mode_and_link_is_repaired(host: FakeHost) -> None:
    host.present(FRAGMENT)
    config = host.base / "etc/sideband/rack/haproxy.cfg"
    config.write_text("by hand\n")
    (host.base / "etc/sideband/rack/extra.cfg").chmod(0o777)
    link = host.base / "usr/local/bin/tool"
    link.unlink()
    link.symlink_to("/elsewhere")
    assert len(host.present(FRAGMENT)["plan"]) == 3
    assert config.read_text() == "one\n"
    assert (host.base / "etc/sideband/rack/extra.cfg").stat().st_mode & 0o7777 == 0o640
    assert os.readlink(link) == "/opt/sideband/tool"


def test_a_secret_is_in_no_answer_but_in_its_file_with_a_closed_mode(host: FakeHost) -> None:
    first = host.present(FRAGMENT, secrets=SECRET)
    second = host.present(FRAGMENT, secrets=[{**SECRET[0], "content": "MARKED-SECRET-2"}])
    third = host.perform("absent")
    for answer in (first, second, third):
        assert "MARKED-SECRET" not in repr(answer)
    assert second["plan"] == ["secret /etc/sideband/rack/host.key: change"]


def test_records_are_for_root_alone(host: FakeHost) -> None:
    host.present(FRAGMENT, secrets=SECRET)
    assert (host.base / "etc/sideband/rack/host.key").stat().st_mode & 0o7777 == 0o600
    generations = host.base / "var/lib/sideband/generations"
    assert generations.stat().st_mode & 0o7777 == 0o700
    assert (generations / "rack/record.json").stat().st_mode & 0o7777 == 0o600


def test_what_is_wanted_no_more_goes_and_foreign_files_stay_case_19(host: FakeHost) -> None:
    host.present(FRAGMENT)
    foreign = host.base / "etc/sideband/rack/site.cfg"
    foreign.write_text("the site's\n")
    answer = host.present({**FRAGMENT, "files": FRAGMENT["files"][:1], "links": []})
    assert not (host.base / "etc/sideband/rack/extra.cfg").exists()
    assert not (host.base / "usr/local").exists()
    assert foreign.read_text() == "the site's\n"
    assert "file /etc/sideband/rack/extra.cfg: remove" in answer["plan"]
    assert not host.present({**FRAGMENT, "files": FRAGMENT["files"][:1], "links": []})["changed"]


def test_a_foreign_file_at_our_path_comes_back(host: FakeHost) -> None:
    place = host.base / "etc/sideband/rack/haproxy.cfg"
    place.parent.mkdir(parents=True)
    place.parent.chmod(0o711)
    place.write_text("theirs\n")
    place.chmod(0o604)
    link = host.base / "etc/sideband/rack/extra.cfg"
    link.symlink_to("their-target")
    before = tree(host.base)
    host.present(FRAGMENT, secrets=SECRET)
    assert place.read_text() == "one\n"
    host.perform("absent")
    assert tree(host.base) == before


def test_reverted_goes_back_byte_for_byte_and_only_once(host: FakeHost) -> None:
    host.present(FRAGMENT, secrets=SECRET)
    files = tree(host.base / "etc")
    host.present(changed_first(host), secrets=[{**SECRET[0], "content": "new"}])
    assert tree(host.base / "etc") != files
    assert host.perform("reverted")["changed"]
    assert tree(host.base / "etc") == files
    answer = host.perform("reverted")
    assert not answer["changed"]
    assert "no earlier generation" in answer["plan"][0]


def test_revert_of_the_first_generation_leaves_the_host_as_it_was(host: FakeHost) -> None:
    files = tree(host.base / "etc")
    host.present(FRAGMENT)
    host.perform("reverted")
    assert tree(host.base / "etc") == files


def test_absent_removes_everything_and_is_repeatable(host: FakeHost) -> None:
    before = tree(host.base)
    host.present(FRAGMENT, secrets=SECRET)
    assert host.perform("absent", check=True)["changed"]
    host.perform("absent")
    assert tree(host.base) == before
    assert not host.perform("absent")["changed"]
    host.present(FRAGMENT, secrets=SECRET)
    host.perform("absent")
    assert tree(host.base) == before


def test_absent_keeps_what_programs_wrote_unless_told_to_purge(host: FakeHost) -> None:
    before = tree(host.base)
    fragment = {"directories": [{"path": "/var/lib/sideband/rack"}, {"path": "/srv/data"}]}
    host.present(fragment)
    (host.base / "var/lib/sideband/rack/queue").write_text("data")
    answer = host.perform("absent")
    assert answer["left"] == ["/var/lib/sideband/rack"]
    assert (host.base / "var/lib/sideband/rack/queue").exists()
    assert not (host.base / "srv").exists()
    (host.base / "var/lib/sideband/rack/queue").unlink()
    (host.base / "var/lib/sideband/rack").rmdir()
    host.present(fragment)
    (host.base / "var/lib/sideband/rack/queue").write_text("data")
    host.perform("absent", purge=True)
    assert tree(host.base) == before


def test_purge_takes_no_directory_outside_our_own_trees(host: FakeHost) -> None:
    host.present({"directories": [{"path": "/srv/data"}]})
    (host.base / "srv/data/x").write_text("a person's")
    host.perform("absent", purge=True)
    assert (host.base / "srv/data/x").exists()


def test_two_owners_share_a_directory(host: FakeHost) -> None:
    before = tree(host.base)
    one = {"directories": [{"path": "/opt/sideband"}], "files": [{"path": "/opt/sideband/a", "content": "a"}]}
    two = {"directories": [{"path": "/opt/sideband"}], "files": [{"path": "/opt/sideband/b", "content": "b"}]}
    host.present(one, owner="node")
    host.present(two, owner="rack")
    host.perform("absent", owner="node")
    assert not (host.base / "opt/sideband/a").exists()
    assert (host.base / "opt/sideband/b").exists()
    host.perform("absent", owner="rack")
    assert tree(host.base) == before


def test_two_owners_may_not_want_one_file_differently(host: FakeHost) -> None:
    host.present({"files": [{"path": "/etc/x", "content": "a"}]}, owner="node")
    with pytest.raises(StateError, match="/etc/x: owner node wants it differently"):
        host.present({"files": [{"path": "/etc/x", "content": "b"}]}, owner="rack")


def test_create_writes_once_and_never_compares(host: FakeHost) -> None:
    fragment = {"files": [{"path": "/var/lib/sideband/rack/intake.map", "content": "0\n", "create": True}]}
    host.present(fragment)
    place = host.base / "var/lib/sideband/rack/intake.map"
    place.write_text("4096\n")
    assert not host.present(fragment)["changed"]
    assert place.read_text() == "4096\n"
    host.perform("absent")
    assert not place.exists()


def test_an_interrupted_run_is_finished_by_the_next_or_removed(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(host.base)
    real = paths.Link.write

    def killed(self: paths.Link, system: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(paths.Link, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        host.present(FRAGMENT)
    monkeypatch.setattr(paths.Link, "write", real)
    assert (host.base / "etc/sideband/rack/haproxy.cfg").exists()
    assert host.present(FRAGMENT)["changed"]
    assert not host.present(FRAGMENT)["changed"]
    monkeypatch.setattr(paths.Link, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        host.present({**changed_first(host), "links": [{"path": "/usr/local/bin/other", "target": "/x"}]})
    monkeypatch.setattr(paths.Link, "write", real)
    host.perform("reverted")
    assert (host.base / "etc/sideband/rack/haproxy.cfg").read_text() == "one\n"
    assert not host.present(FRAGMENT)["changed"]
    host.perform("absent")
    assert tree(host.base) == before


def test_a_stale_temporary_file_does_not_stop_a_run(host: FakeHost) -> None:
    host.present(FRAGMENT)
    (host.base / "etc/sideband/rack/.haproxy.cfg.sideband").write_text("half")
    host.present(changed_first(host))
    assert not (host.base / "etc/sideband/rack/.haproxy.cfg.sideband").exists()


def test_a_directory_where_a_file_is_wanted_is_not_removed(host: FakeHost) -> None:
    (host.base / "etc/x").mkdir()
    with pytest.raises(StateError, match="a file is wanted here"):
        host.present({"files": [{"path": "/etc/x", "content": ""}]})
