"""host_state on units, masks and packages (C9; cases 11, 19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sideband.state import units
from sideband.state.system import StateError
from state_kit import FakeHost, tree

UNIT = "sideband-rack.service"


def fragment(config: str = "one\n", map_text: str = "m\n", unit: str = "[Service]\n") -> dict[str, Any]:
    return {
        "files": [
            {"path": "/etc/sideband/rack.cfg", "content": config},
            {"path": "/etc/sideband/rack.map", "content": map_text},
            {"path": f"/etc/systemd/system/{UNIT}", "content": unit},
        ],
        "units": [
            {
                "name": UNIT,
                "enabled": True,
                "running": True,
                "restart_on": ["/etc/sideband/rack.cfg"],
                "reload_on": ["/etc/sideband/rack.map"],
            }
        ],
    }


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = units.settle
    monkeypatch.setattr(units, "settle", lambda system, names: real(system, names, 0))


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host", systemd=True)


def verbs(host: FakeHost) -> list[str]:
    return [
        call[1]
        for call in host.calls
        if call[0] == "systemctl"
        and UNIT in call
        and call[1] in ("start", "stop", "restart", "reload", "enable", "disable")
    ]


def test_a_unit_is_enabled_and_started_once(host: FakeHost) -> None:
    host.present(fragment())
    assert verbs(host) == ["enable", "start"]
    assert host.did("systemctl", "daemon-reload")
    host.calls.clear()
    assert not host.present(fragment())["changed"]
    assert verbs(host) == []


@pytest.mark.parametrize(
    ("wanted", "verb"),
    [
        (fragment(config="two\n"), "restart"),
        (fragment(unit="[Service]\nNice=1\n"), "restart"),
        (fragment(map_text="n\n"), "reload"),
        (fragment(config="two\n", map_text="n\n"), "restart"),
    ],
)
def test_it_restarts_or_reloads_only_for_its_own_inputs(
    host: FakeHost, wanted: dict[str, Any], verb: str
) -> None:
    host.present(fragment())
    host.calls.clear()
    announced = host.present(wanted, check=True)["plan"]
    assert any(f"unit {UNIT}: {verb}" in line for line in announced)
    host.present(wanted)
    assert verbs(host) == [verb]
    assert not host.present(wanted)["changed"]


def test_a_foreign_input_counts_by_what_is_on_disk(host: FakeHost) -> None:
    wanted = fragment()
    wanted["units"][0]["restart_on"].append("/etc/passwd")
    host.present(wanted)
    host.add_user("late")
    assert any("restart (changed: /etc/passwd)" in line for line in host.present(wanted)["plan"])


@pytest.mark.parametrize(
    ("path", "verb"),
    [
        ("etc/sideband/rack.cfg", "restart"),
        (f"etc/systemd/system/{UNIT}", "restart"),
        ("etc/sideband/rack.map", "reload"),
    ],
)
def test_an_input_changed_by_hand_may_be_running_case_11(host: FakeHost, path: str, verb: str) -> None:
    """Someone edits a file and restarts the unit: putting the file right is not enough."""
    host.present(fragment())
    (host.base / path).write_text("by hand\n")
    host.calls.clear()
    host.present(fragment())
    assert verbs(host) == [verb]
    assert not host.present(fragment())["changed"]


def test_a_failure_after_the_file_changed_still_restarts_on_the_rerun_case_11(host: FakeHost) -> None:
    host.present(fragment())
    other = {**fragment(config="two\n")}
    other["units"] = [{"name": "sideband-other.service", "running": True}, *other["units"]]
    host.dies.add("sideband-other.service")
    with pytest.raises(StateError):
        host.present(other)
    assert (host.base / "etc/sideband/rack.cfg").read_text() == "two\n"
    host.dies.clear()
    host.calls.clear()
    host.present(other)
    assert verbs(host) == ["restart"]


def test_a_unit_that_fails_names_itself_its_journal_and_the_next_step(host: FakeHost) -> None:
    host.dies.add(UNIT)
    with pytest.raises(StateError) as caught:
        host.present(fragment())
    for part in (UNIT, "the last words of the daemon", f"systemctl status {UNIT}", "run the same play again"):
        assert part in str(caught.value)


def test_a_unit_wanted_no_more_is_stopped_disabled_and_gone_case_19(host: FakeHost) -> None:
    host.present(fragment())
    wants = host.base / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / UNIT).symlink_to(f"/etc/systemd/system/{UNIT}")
    host.calls.clear()
    host.present({"files": fragment()["files"][:1]})
    assert verbs(host) == ["disable", "stop"]
    assert not (host.base / "etc/systemd/system" / UNIT).exists()
    assert not (wants / UNIT).is_symlink()


def test_a_foreign_unit_goes_back_to_how_it_was(host: FakeHost) -> None:
    host.active.add("systemd-networkd.service")
    wanted = {"units": [{"name": "systemd-networkd.service", "enabled": True, "running": True}]}
    host.present(wanted)
    assert host.enabled == {"systemd-networkd.service"}
    assert not host.did("systemctl", "restart")
    host.perform("absent")
    assert (host.active, host.enabled) == ({"systemd-networkd.service"}, set())


def test_what_enables_a_vendors_unit_is_not_taken_away(host: FakeHost) -> None:
    """Its file is the package's, below /usr/lib: a host without its network manager would not come back."""
    unit = "systemd-networkd.service"
    host.active.add(unit)
    host.enabled.add(unit)
    link = host.base / "etc/systemd/system/multi-user.target.wants" / unit
    link.parent.mkdir()
    link.symlink_to(f"/usr/lib/systemd/system/{unit}")
    host.present({"units": [{"name": unit, "enabled": True, "running": True}]})
    host.perform("absent")
    assert link.is_symlink()
    assert unit in host.enabled & host.active


def test_masks_come_before_packages_and_go_with_the_last_owner(host: FakeHost) -> None:
    wanted = {"packages": ["haproxy"], "masked": ["haproxy.service"]}
    mask = host.base / "etc/systemd/system/haproxy.service"
    answer = host.present(wanted)
    assert answer["missing"]["packages"] == ["haproxy"]
    assert mask.is_symlink()
    host.packages.add("haproxy")
    host.present(wanted)
    host.present(wanted, owner="gateway")
    host.perform("absent")
    assert mask.is_symlink()
    host.perform("absent", owner="gateway")
    assert not mask.is_symlink()


@pytest.mark.parametrize("place", ["usr/lib/systemd/system", "etc/systemd/system"])
def test_a_service_that_was_here_before_us_is_not_masked(host: FakeHost, place: str) -> None:
    theirs = host.base / place / "haproxy.service"
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("[Service]\nExecStart=/usr/sbin/haproxy\n")
    wanted = {"packages": ["haproxy"], "masked": ["haproxy.service"]}
    host.packages.add("haproxy")
    answer = host.present(wanted)
    assert "unit haproxy.service: was here before us, so it is left as it is" in answer["plan"]
    mask = host.base / "etc/systemd/system/haproxy.service"
    assert not mask.is_symlink()
    assert theirs.read_text().startswith("[Service]")


def account(host: FakeHost, name: str) -> None:
    """A package's own system user, as its postinst makes it."""
    for table, rest in (("passwd", "101::/:/usr/sbin/nologin"), ("group", "")):
        with (host.base / f"etc/{table}").open("a") as file:
            file.write(f"{name}:x:101:{rest}\n")


def forget(host: FakeHost, name: str) -> None:
    for table in ("passwd", "group"):
        path = host.base / f"etc/{table}"
        path.write_text("".join(x for x in path.read_text().splitlines(True) if not x.startswith(f"{name}:")))


def bring(host: FakeHost, owner: str, **wanted: Any) -> None:
    missing = host.present(wanted, owner=owner)["missing"]
    for name in missing["packages"]:
        host.packages.add(name)
        account(host, f"_{name}")
    for user in missing["users"]:
        host.add_user(user["name"])
    host.present(wanted, owner=owner)


def test_what_two_owners_share_goes_with_the_last_whoever_brought_it(host: FakeHost) -> None:
    wanted = {"packages": ["haproxy"], "users": [{"name": "sideband"}]}
    bring(host, "lake", **wanted)
    bring(host, "rack", **wanted)
    first = host.perform("absent", owner="lake")
    assert not any(first["orphaned"].values())
    last = host.perform("absent", owner="rack")["orphaned"]
    assert last == {
        "users": ["sideband", "_haproxy"],
        "groups": ["sideband", "_haproxy"],
        "packages": ["haproxy"],
    }


def test_a_packages_own_user_goes_with_it_and_no_sooner(host: FakeHost) -> None:
    bring(host, "lake", packages=["haproxy", "prometheus"])
    kept = host.present({"packages": ["haproxy"]}, owner="lake")["orphaned"]
    assert kept == {"users": [], "groups": [], "packages": ["prometheus"]}
    host.packages.remove("prometheus")
    gone = host.perform("absent", owner="lake")["orphaned"]
    assert gone["users"] == ["_haproxy", "_prometheus"]
    host.packages.remove("haproxy")
    for name in gone["users"]:
        forget(host, name)
    assert not any(host.perform("absent", owner="lake")["orphaned"].values())


def test_a_user_that_appeared_without_a_package_of_ours_stays(host: FakeHost) -> None:
    wanted = {"users": [{"name": "sideband"}]}
    host.present(wanted)
    host.packages.add("theirs")
    account(host, "_theirs")
    host.add_user("sideband")
    host.present(wanted)
    assert host.perform("absent")["orphaned"]["users"] == ["sideband"]


def test_nothing_but_masks_is_done_while_something_is_missing(host: FakeHost) -> None:
    answer = host.present({**fragment(), "packages": ["haproxy"]})
    assert answer["changed"]
    assert not (host.base / "etc/sideband").exists()


def test_removal_takes_exactly_the_packages_and_users_that_came(host: FakeHost) -> None:
    before = tree(host.base)
    host.needs = {"haproxy": {"liblua", "libssl"}, "ssh": {"libssl"}}
    host.packages |= {"ssh", "libssl"}
    wanted = {"packages": ["haproxy", "ssh"], "users": [{"name": "sideband"}]}
    assert host.present(wanted)["missing"]["packages"] == ["haproxy"]
    assert host.present(wanted)["missing"]["users"][0]["name"] == "sideband"
    names = [(host.base / path).read_text() for path in ("etc/passwd", "etc/group")]
    host.packages |= {"haproxy", "liblua"}
    host.add_user("sideband")
    assert not host.present(wanted)["changed"]
    answer = host.perform("absent")
    assert answer["orphaned"] == {
        "packages": ["haproxy", "liblua"],
        "users": ["sideband"],
        "groups": ["sideband"],
    }
    host.packages -= {"haproxy", "liblua"}
    for path, text in zip(("etc/passwd", "etc/group"), names):
        (host.base / path).write_text(text)
    assert host.perform("absent")["orphaned"] == {"packages": [], "users": [], "groups": []}
    assert tree(host.base) == before


def test_a_package_that_something_foreign_needs_now_stays(host: FakeHost) -> None:
    host.present({"packages": ["nginx"]})
    host.packages.add("nginx")
    host.present({"packages": ["nginx"]})
    host.packages.add("theirs")
    host.needs["theirs"] = {"nginx"}
    assert host.perform("absent")["orphaned"]["packages"] == []


def test_a_package_that_another_owner_wants_stays(host: FakeHost) -> None:
    host.present({"packages": ["haproxy"]})
    host.packages.add("haproxy")
    host.present({"packages": ["haproxy"]})
    host.present({"packages": ["haproxy"]}, owner="gateway")
    assert host.perform("absent")["orphaned"]["packages"] == []
