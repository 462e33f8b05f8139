"""The transcript of docs/coming-from-runai.md is run as it stands there, on resources as a Run:ai cluster has them."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest
from transcripts import follow

KEPT = Path(__file__).resolve().parents[1] / "fuzz" / "corpus" / "import"


def test_the_transcript_is_what_is_printed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for name in ("projects.json", "workloads.json"):
        copy(KEPT / name, tmp_path)
    update = bool(request.config.getoption("--update-golden"))
    assert follow("coming-from-runai.md", "coming", tmp_path, update=update) == [0, 0, 0, 0, 0]
