"""Runs a program that is written in Go beside tests, with less processor time than by default."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FOR_GO = {"GOGC": "400", "GOMAXPROCS": "1"}
"""GOGC, how much garbage Go lets accumulate, in per cent: saves a tenth of processor time for an eighth of a GiB.
GOMAXPROCS, one processor for each program, because other control planes run at the same time: saves a twelfth."""
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
"""The prefix of a command line: setpriv becomes the program, which is killed once the thread that started it ends."""
_TIMER_SLACK = Path("/proc/self/timerslack_ns")
_LATEST_NS = "10000000"
"""How late Linux may wake a server by a timer; data still wakes it at once. While it works, Go's runtime sets itself a
timer of 20 microseconds again and again. Tests of jobs' lives take a tenth less processor time with their control plane
(32.8 s instead of 36.5), a control plane at rest four tenths less (1.2 % of a core instead of 2.1)."""
_USUAL = "0"


def begun(line: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a server in the folder of its log. `env`: variables in addition to those of this process. Linux ends the
    server with this process, however that ends."""
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
    """Processes started inside may be woken late, if Linux allows setting that."""
    _set_slack(_LATEST_NS)
    try:
        yield
    finally:
        _set_slack(_USUAL)


def _set_slack(nanoseconds: str) -> None:
    with suppress(OSError):
        _TIMER_SLACK.write_text(nanoseconds)
