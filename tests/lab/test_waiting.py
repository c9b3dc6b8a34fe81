"""Installation waits for what is not free yet (case 17, O5), on a bare host of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bench import spare_site

pytestmark = pytest.mark.lab

HOLD_SECONDS = 45


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
        spare_site.play(inventory, "site", *spare_site.alone(inventory, spare.name))
        assert time.monotonic() - began > HOLD_SECONDS
        holder.join()
        assert "haproxy" in spare_site.snapshot(spare.name)["packages"]
