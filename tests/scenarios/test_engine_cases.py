"""Cases that were written down as decided wrongly, kept outside the project: those learned so far come true.

`GPUCTL_ENGINE_CASES` names the folder; by default it is `../shared/engine-cases` beside the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_scenarios import reported

CASES = Path(os.environ.get("GPUCTL_ENGINE_CASES", Path(__file__).parents[3] / "shared" / "engine-cases"))

OPEN: dict[str, str] = {}
"""What is still decided wrongly, and why. Strict: what comes true goes off this list."""


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")) or [None], ids=lambda path: path.stem if path else "none")
def test_what_was_decided_wrongly_comes_true(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"no cases in {CASES}: set GPUCTL_ENGINE_CASES to the folder that holds them")
    failed = reported(path, path.read_bytes()).failed
    assert bool(failed) == (path.stem in OPEN), failed or "it comes true now: take it off the list"
