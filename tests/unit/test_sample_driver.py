"""The sample process when the driver is in trouble: upgraded, lost, hanging (cases 40, 41)."""

from __future__ import annotations

import time

import pytest
from nvml_kit import TEMPERATURE, UP, Bed, names_of, stop, value


def test_after_a_drivers_upgrade_values_go_and_come_back(bed: Bed) -> None:
    """Case 41. The library that is in memory would answer like this for ever: another process takes over."""
    log = bed.directory / "calls"
    bed.script("gpu 0 temperature 41", f"log {log}")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    ends = time.time() + 2.5
    bed.script("gpu 0 temperature 55", f"log {log}", f"all LibRmVersionMismatch until {ends}")
    down = bed.until(lambda found: found.get(UP) == 0)
    assert not [name for name in down if name.startswith("DCGM")]
    assert time.time() < ends
    log.unlink()
    up = bed.until(lambda found: found.get(UP) == 1)
    assert value(up, TEMPERATURE) == 55
    tries = [float(line.split()[0]) for line in log.read_text().splitlines() if " init " in line]
    assert 1 <= len([moment for moment in tries if moment < ends]) <= 5  # and not one each 0.1 s
    said = stop(process)
    assert "LibRmVersionMismatch" in said
    assert "starting anew" in said


@pytest.mark.parametrize("error", ["DriverNotLoaded", "Uninitialized", "Unknown"])
def test_any_end_of_the_session_is_noticed_and_healed(bed: Bed, error: str) -> None:
    bed.script("gpu 0 temperature 41")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    bed.script("gpu 0 temperature 42", f"all {error}")
    down = bed.until(lambda found: found.get(UP) == 0)
    assert not [name for name in down if name.startswith("DCGM")]
    bed.script("gpu 0 temperature 42")
    up = bed.until(lambda found: found.get(UP) == 1)
    assert value(up, TEMPERATURE) == 42
    assert up["sideband_gpu_reopened_total"] >= 1
    stop(process)


def test_a_gpu_that_is_lost_takes_no_other_along_and_comes_back(bed: Bed) -> None:
    bed.script("gpu 0 temperature 40", "gpu 1 temperature 41")
    process = bed.start()
    bed.until(lambda found: value(found, TEMPERATURE, 1))
    bed.script("gpu 0 temperature 40", "gpu 1 any GpuIsLost")
    lost = bed.until(lambda found: value(found, TEMPERATURE, 1) is None and found.get(UP) == 1)
    assert value(lost, TEMPERATURE, 0) == 40
    assert not names_of(lost, 1)
    bed.script("gpu 0 temperature 40", "gpu 1 temperature 43")
    bed.until(lambda found: value(found, TEMPERATURE, 1) == 43)
    stop(process)


def test_a_call_that_hangs_is_named_and_the_others_go_on(bed: Bed) -> None:
    log = bed.directory / "calls"
    bed.script("gpu 0 temperature 40", "gpu 1 temperature 41", "gpu 1 power hang:4", f"log {log}")
    process = bed.start()
    hung = bed.until(lambda found: found.get("sideband_gpu_calls_hung") == 1)
    assert value(hung, TEMPERATURE, 0) == 40
    assert value(hung, TEMPERATURE, 1) == 41
    assert value(hung, "DCGM_FI_DEV_FAN_SPEED", 1) == 30  # a field after the one that hangs
    assert value(hung, "DCGM_FI_DEV_POWER_USAGE", 1) is None
    assert value(hung, "DCGM_FI_DEV_POWER_USAGE", 0) == 70
    assert value(hung, "sideband_gpu_call_hung", 1) == 1
    assert 'call="power"' in bed.text()
    bed.script("gpu 0 temperature 44", "gpu 1 temperature 45", "gpu 1 power 80000", f"log {log}")
    bed.until(lambda found: value(found, TEMPERATURE, 1) == 45, seconds=3)
    asked = [line for line in log.read_text().splitlines() if line.split()[1:] == ["power", "1"]]
    assert len(asked) == 1  # not piled up
    healed = bed.until(lambda found: value(found, "DCGM_FI_DEV_POWER_USAGE", 1) == 80)
    assert healed["sideband_gpu_calls_hung"] == 0
    stop(process)


def test_a_gpu_that_hangs_altogether_costs_two_waits_and_no_more(bed: Bed) -> None:
    bed.script("gpu 0 any hang:30", "gpu 1 temperature 41")
    process = bed.start()
    found = bed.until(lambda found: value(found, TEMPERATURE, 1) == 41)
    assert found["sideband_gpu_calls_hung"] == 2
    assert not names_of(found, 0)
    bed.script("gpu 0 any hang:30", "gpu 1 temperature 42")
    bed.until(lambda found: value(found, TEMPERATURE, 1) == 42, seconds=3)
    stop(process)  # a call that hangs does not keep the process


def test_a_driver_that_hangs_altogether_leaves_the_process_alive(bed: Bed) -> None:
    bed.script("gpu 0 temperature 40")
    process = bed.start()
    bed.until(lambda found: found.get(UP) == 1)
    bed.script("gpu 0 temperature 40", "all hang:2")
    down = bed.until(lambda found: found.get(UP) == 0)
    assert not [name for name in down if name.startswith("DCGM")]
    bed.script("gpu 0 temperature 47")
    bed.until(lambda found: value(found, TEMPERATURE) == 47)
    stop(process)
