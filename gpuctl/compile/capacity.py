"""Whether what is declared can be: quotas against the declared GPUs, jobs against limits, quotas and nodes."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.compile.resolve import Resolved
from gpuctl.diag.diagnostic import Diagnostic


def check_capacity(resolved: Resolved) -> Iterator[Diagnostic]:
    yield from ()
