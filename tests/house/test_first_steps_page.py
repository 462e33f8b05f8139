"""The transcript of docs/first-steps.md is run as it stands there; `--update-golden` writes what is printed anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from transcripts import follow


def test_the_transcript_is_what_is_printed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    update = bool(request.config.getoption("--update-golden"))
    assert follow("first-steps.md", "first-steps", tmp_path, update=update) == [0, 0, 0, 0, 0, 2]
