"""`gpuctl plan` on each story: its text, its Markdown, its JSON, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import AT_MS, ROOT, Run
from planpulls import PULLS
from planstories import STORIES

from gpuctl import wiring
from gpuctl.adapters.git import WorkingCopy

GOLDEN = ROOT / "tests" / "golden" / "plan"
FORMS = {"text": "txt", "markdown": "md", "json": "json"}
ALL = {**STORIES, **PULLS}
EXIT_CODES = {"nothing": 0, "file_renamed": 0, "gates": 3, "removed_project": 3, "frozen": 3}


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 05:20, in the freeze window of the stories that have one."""
    monkeypatch.setattr(wiring, "now_ms", lambda: AT_MS)


@pytest.mark.parametrize("name", ALL)
def test_a_plan_is_told_in_exactly_these_words(
    name: str, run: Run, repository: WorkingCopy, golden: Callable[[Path, str], None]
) -> None:
    options = ALL[name](repository)
    command = ("plan", repository.folder / "clusters" / "tr4858", *options)
    for form, ending in FORMS.items():
        result = run(*command, "-o", form)
        assert result.exit_code == EXIT_CODES.get(name, 2), result.stderr
        golden(GOLDEN / f"{name}.{ending}", result.stdout)


def test_the_same_input_gives_the_same_bytes(run: Run, repository: WorkingCopy) -> None:
    command = ("plan", repository.folder / "clusters" / "tr4858", *STORIES["settings"](repository), "-o", "markdown")
    first = run(*command).stdout
    assert run(*command).stdout == first
    assert not re.search(r"[^\x20-\x7e\n→…]", first)
