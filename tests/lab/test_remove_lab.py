"""Removal leaves nothing (C9, acceptance 4), and installation waits for what is not free yet (case 17)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path

import pytest

from bench import remove, spare_site

pytestmark = [pytest.mark.lab, pytest.mark.drill]

ROOT = Path(__file__).resolve().parents[2]
HOLD_SECONDS = 45


@pytest.mark.parametrize("spare", [*(spare.name for spare in remove.SPARES), remove.SINGLE])
def test_what_was_brought_is_gone_and_comes_again(spare: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bench/remove.py", spare, "--reports", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "remove.json").read_text())
    assert [check for check in report["checks"] if not check["pass"]] == [], done.stderr
    assert report["figures"]["residue"] == 0


def test_case_17_a_held_package_lock_is_waited_for(tmp_path: Path) -> None:
    """The first boot's own upgrade holds the lock; and there is no setfacl on the host."""
    spare = spare_site.Spare("rmlock", "trixie", "rack1")
    with spare_site.spare_site(tmp_path / "site", [spare]) as inventory:
        hold = (
            "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); "
            f"fcntl.lockf(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep({HOLD_SECONDS})"
        )
        holder = threading.Thread(target=spare_site.inside, args=(spare.name, "python3", "-c", hold))
        began = time.monotonic()
        holder.start()
        time.sleep(2)
        options = ("--limit", spare.name, "-e", f"sideband_pki_directory={inventory}/pki")
        spare_site.play(inventory, "site", *options)
        assert time.monotonic() - began > HOLD_SECONDS
        holder.join()
        assert "haproxy" in spare_site.snapshot(spare.name)["packages"]
