from __future__ import annotations

import subprocess
import sys
import time
from threading import Event

import pytest

from gpuctl.adapters.background import ThreadBackground

PATIENCE_S = 60


def test_work_goes_on_beside_and_wakes_what_waits() -> None:
    woken, gate = Event(), Event()
    later = ThreadBackground(woken.set).start(lambda: gate.wait(PATIENCE_S) and "done")
    assert not later.done()
    assert not woken.is_set()
    gate.set()
    assert woken.wait(PATIENCE_S)
    assert later.done()
    assert later.result() == "done"


@pytest.mark.parametrize(("error", "raised"), [(RecursionError("deep"), RecursionError), (SystemExit(3), RuntimeError)])
def test_what_it_raises_is_raised_where_the_result_is_asked_for(error: BaseException, raised: type[Exception]) -> None:
    woken = Event()

    def work() -> None:
        raise error

    later = ThreadBackground(woken.set).start(work)
    assert woken.wait(PATIENCE_S)
    with pytest.raises(raised):
        later.result()


def test_nothing_is_woken_after_the_end_and_nothing_waits_for_it() -> None:
    woken, gate = Event(), Event()
    background = ThreadBackground(woken.set)
    later = background.start(lambda: gate.wait(PATIENCE_S))
    began = time.monotonic()
    background.close()
    assert time.monotonic() - began < PATIENCE_S / 2
    gate.set()
    until = time.monotonic() + PATIENCE_S
    while not later.done() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    assert later.done()
    assert not woken.is_set()


def test_a_process_ends_while_its_work_hangs() -> None:
    text = """
import time
from gpuctl.adapters.background import ThreadBackground
ThreadBackground(lambda: None).start(lambda: time.sleep(600))
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=PATIENCE_S)
