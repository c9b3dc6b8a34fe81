"""The dead man's switch without a host: who may confirm, and where an undo goes (case 20)."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from sideband.state import program, recovery
from sideband.state.system import StateError
from state_kit import FakeHost

SERVICE = "etc/systemd/system/sideband-guard-rack.service"


def fragment(text: str) -> dict[str, Any]:
    return {"files": [{"path": "/etc/x", "content": text}], "guarded": True, "guard_seconds": 25}


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host", systemd=True)


def confirmed(host: FakeHost) -> None:
    first, host.session = host.session, "10.90.0.1 1002 10.90.0.31 22"
    assert host.perform("confirmed")["changed"]
    host.session = first


def test_a_guarded_change_arms_before_it_writes_and_a_new_connection_disarms(host: FakeHost) -> None:
    answer = host.present(fragment("one"))
    assert answer["armed"]
    assert (host.base / SERVICE).exists()
    assert host.did(
        "systemd-run",
        "--on-active=25",
        "--timer-property=AccuracySec=1s",
        "--unit=sideband-guard-rack.service",
    )
    confirmed(host)
    assert not (host.base / SERVICE).exists()
    assert host.did("systemctl", "stop", "sideband-guard-rack.timer")
    assert not host.present(fragment("one"))["armed"]


def test_the_connection_that_made_the_change_cannot_confirm_it(host: FakeHost) -> None:
    host.present(fragment("one"))
    with pytest.raises(StateError, match="it proves nothing"):
        host.perform("confirmed")


def test_the_switch_brings_the_previous_generation_back_and_says_so_once(host: FakeHost) -> None:
    host.present(fragment("one"))
    confirmed(host)
    host.present(fragment("two"))
    recovery.fire(host, "rack")
    assert (host.base / "etc/x").read_text() == "one"
    assert not (host.base / SERVICE).exists()
    with pytest.raises(StateError, match="reverted by the dead man's switch"):
        host.perform("confirmed")
    answer = host.present(fragment("one"))
    assert "was not confirmed within 25 s" in answer["news"]
    assert not answer["changed"]
    assert host.present(fragment("one"))["news"] == ""


def test_the_first_generation_goes_back_to_nothing(host: FakeHost) -> None:
    (host.base / "etc/x").write_text("foreign")
    host.present(fragment("one"))
    recovery.fire(host, "rack")
    assert (host.base / "etc/x").read_text() == "foreign"


def test_an_interrupted_apply_goes_back_to_the_last_whole_generation(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.present(fragment("one"))
    confirmed(host)
    wanted = {**fragment("two"), "links": [{"path": "/etc/y", "target": "z"}]}
    with monkeypatch.context() as patch:
        patch.setattr(
            "sideband.state.paths.Link.write", lambda self, system: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            host.present(wanted)
    assert (host.base / "etc/x").read_text() == "two"
    recovery.fire(host, "rack")
    assert (host.base / "etc/x").read_text() == "one"


def test_the_next_run_reverts_an_unconfirmed_change_before_its_own(host: FakeHost) -> None:
    host.present(fragment("one"))
    confirmed(host)
    host.present(fragment("two"))
    answer = host.present(fragment("three"))
    assert answer["plan"][0].startswith("guard: an unconfirmed change of an earlier run was reverted now")
    recovery.fire(host, "rack")
    assert (host.base / "etc/x").read_text() == "one"


def test_after_a_reboot_no_job_is_waited_for(host: FakeHost) -> None:
    unit = {"units": [{"name": "a.service", "running": True}]}
    host.present({**fragment("one"), **unit})
    confirmed(host)
    host.present(fragment("two"))
    host.reboot("boot-2")
    host.calls.clear()
    recovery.fire(host, "rack")
    assert host.did("systemctl", "--no-block", "start", "a.service")
    assert "rebooted" in host.present({**fragment("one"), **unit})["news"]


def test_a_switch_that_fires_late_does_nothing(host: FakeHost) -> None:
    host.present(fragment("one"))
    confirmed(host)
    recovery.fire(host, "rack")
    assert (host.base / "etc/x").read_text() == "one"


def test_without_systemd_a_guarded_change_is_refused(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "bare")
    with pytest.raises(StateError, match="needs systemd"):
        host.present(fragment("one"))
    assert not (host.base / "etc/x").exists()


def test_the_recovery_program_is_the_same_bytes_each_time_and_holds_every_module() -> None:
    text = program.build()
    assert text == program.build()
    names = {Path(name).name for name in zipfile.ZipFile(BytesIO(text)).namelist()}
    modules = {path.name for path in Path(program.__file__).parent.glob("*.py")} - {"run.py", "program.py"}
    assert modules <= names


def test_a_local_run_confirms_at_once(host: FakeHost) -> None:
    host.session = ""
    host.present(fragment("one"))
    assert host.perform("confirmed")["changed"]
