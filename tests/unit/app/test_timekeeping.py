"""How far two clocks may be apart, and how long retries wait."""

from __future__ import annotations

import pytest

from gpuctl.adapters.clock import VirtualClock
from gpuctl.app.ports import WrongTime
from gpuctl.app.timekeeping import NO_REFERENCE, CheckedClock, retry_ms

NOON_MS = 1_596_024_000_000


def test_retries_wait_twice_as_long_each_time_and_five_minutes_at_most() -> None:
    waits = [retry_ms(failures) for failures in (1, 2, 3, 9, 10, 10_000)]
    assert waits == [1_000, 2_000, 4_000, 256_000, 300_000, 300_000]


@pytest.mark.parametrize("apart_ms", [60_000, -60_000, 0])
def test_clocks_that_agree_to_the_minute_give_the_machines_time(apart_ms: int) -> None:
    assert CheckedClock(VirtualClock(NOON_MS + apart_ms), VirtualClock(NOON_MS)).now_ms() == NOON_MS + apart_ms


@pytest.mark.parametrize("apart_ms", [60_001, -60_001])
def test_clocks_that_do_not_give_none(apart_ms: int) -> None:
    machine = VirtualClock(NOON_MS + apart_ms)
    with pytest.raises(WrongTime):
        CheckedClock(machine, VirtualClock(NOON_MS)).now_ms()
    assert CheckedClock(machine, NO_REFERENCE).now_ms() == NOON_MS + apart_ms
