"""`gpuctl plan` on each story: its text, its Markdown, its JSON, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from commands import AT_MS, ROOT, Run
from planpulls import PULLS, freeze
from planstories import STORIES, claim_of_team_d

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.git import WorkingCopy
from gpuctl.wiring import access

GOLDEN = ROOT / "tests" / "golden" / "plan"
FORMS = {"text": "txt", "markdown": "md", "json": "json"}
ALL = {**STORIES, **PULLS}
EXIT_CODES = {"nothing": 0, "file_renamed": 0, "gates": 3, "removed_project": 3, "frozen": 3}


@pytest.fixture
def run(run: Run) -> Run:
    """It is 05:20, in the freeze window of the stories that have one."""
    return partial(run, clock=VirtualClock(AT_MS))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache folder that is used for small clusters, too."""
    monkeypatch.delenv("GPUCTL_NO_CACHE", raising=False)
    monkeypatch.setattr(access, "LEAST_CACHED_FILES", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ALL)
def test_a_plan_is_told_in_exactly_these_words(
    name: str, run: Run, repository: WorkingCopy, golden: Callable[[Path, str], None], cache: Path
) -> None:
    """The first form with nothing known, the others from what earlier ones kept."""
    options = ALL[name](repository)
    command = ("plan", repository.folder / "clusters" / "tr4858", *options)
    for form, ending in FORMS.items():
        result = run(*command, "-o", form)
        assert result.exit_code == EXIT_CODES.get(name, 2), result.stderr
        golden(GOLDEN / f"{name}.{ending}", result.stdout)
    (kept,) = (cache / "gpuctl" / "rests").iterdir()
    assert kept.stat().st_size > 100


def test_a_freeze_window_has_the_same_confirm_line_before_the_commit(run: Run, repository: WorkingCopy) -> None:
    freeze(repository)
    repository.commit("a window", AT_MS + 1000)
    claim_of_team_d(repository)
    command = ("plan", repository.folder / "clusters" / "tr4858", "--base")
    before = re.findall("Gpuctl-Confirm: [0-9a-f]{12}", run(*command, "main").stdout)
    repository.commit("a claim", AT_MS + 2000)
    assert re.findall("Gpuctl-Confirm: [0-9a-f]{12}", run(*command, "main~1", "--head", "main").stdout) == before
    assert len(before) == 1


def test_the_same_input_gives_the_same_bytes(run: Run, repository: WorkingCopy) -> None:
    command = ("plan", repository.folder / "clusters" / "tr4858", *STORIES["settings"](repository), "-o", "markdown")
    first = run(*command).stdout
    assert run(*command).stdout == first
    assert not re.search(r"[^\x20-\x7e\n→…]", first)
