"""How a program that is written in Go runs beside tests: with less processor time than by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FOR_GO = {"GOGC": "400", "GOMAXPROCS": "1"}
"""How much garbage Go lets come together, in per cent: a tenth less of processor time, an eighth of a GiB more.
One processor each, as other control planes are there at the same time: a twelfth less."""
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
"""Becomes the program that follows, which is killed once the thread ends that has started it."""
_TIMER_SLACK = Path("/proc/self/timerslack_ns")
_LATEST_NS = "10000000"
"""How late Linux may wake a server by a timer; data wakes it at once, as ever. While it works, Go's runtime sets itself
a timer of 20 microseconds again and again. Tests of jobs' lives take a tenth less of processor time with their control
plane (32.8 s for 36.5), a control plane at rest four tenths (1.2 % of a core for 2.1)."""
_USUAL = "0"


def begun(line: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A server in the folder of its log; `env`: variables besides this process's own. Linux ends it with this process,
    however that ends."""
    with log.open("wb") as told, _late_timers():
        return subprocess.Popen(
            [*_ENDS_WITH_US, *line],
            stdout=told,
            stderr=told,
            cwd=log.parent,
            env={**os.environ, **FOR_GO, **(env or {})},
        )


@contextmanager
def _late_timers() -> Iterator[None]:
    """Processes that begin meanwhile may be woken late; where Linux does not let it be said, they are not."""
    _set_slack(_LATEST_NS)
    try:
        yield
    finally:
        _set_slack(_USUAL)


def _set_slack(nanoseconds: str) -> None:
    with suppress(OSError):
        _TIMER_SLACK.write_text(nanoseconds)
