"""Policies."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.compile.declarations import Declarations
from gpuctl.diag.diagnostic import Diagnostic


def check_policies(declarations: Declarations) -> Iterator[Diagnostic]:
    yield from ()
