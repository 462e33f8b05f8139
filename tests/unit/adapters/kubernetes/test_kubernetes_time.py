from __future__ import annotations

import time

import pytest

from gpuctl.adapters.kubernetes.servertime import ServerTime

DATE, AT_MS = "Fri, 31 Jul 2026 12:00:00 GMT", 1_785_499_200_000


def test_it_goes_on_from_what_was_heard_last() -> None:
    server = ServerTime()
    assert server.now_ms() is None
    server.hear(DATE)
    first = server.now_ms()
    assert first is not None
    assert AT_MS <= first < AT_MS + 10_000
    time.sleep(0.02)
    later = server.now_ms()
    assert later is not None
    assert later >= first + 20
    server.hear("Fri, 31 Jul 2026 11:00:00 GMT")
    back = server.now_ms()
    assert back is not None
    assert back < AT_MS


@pytest.mark.parametrize("date", [
    "", "yesterday", "0", DATE.replace("2026", "9" * 5000), "Fri, 99 Jul 2026 12:00:00 GMT", "x" * 100_000,
    "Fri, 31 Jul 2026 99:00:00 GMT", "Fri, 31 Jul 2026 12:00:00 +9999999999",
    "\0",
])  # fmt: skip
def test_what_is_no_date_is_as_none(date: str) -> None:
    server = ServerTime()
    server.hear(date)
    assert server.now_ms() is None
    server.hear(DATE)
    server.hear(date)
    assert server.now_ms() is not None
