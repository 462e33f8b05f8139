"""kill -9 at every write of the demo's story, then a restart: the same end, nothing started or made twice.

After one write is before the next: the file is the same. So the places to die are before each write and after the last.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from theatre import STEP_MS, ZERO_MS, Files, Outcome, objects_made, play, story

from gpuctl.model.workload_kind import WorkloadKind

RESTARTED_AFTER_MS = 20_000
TOLD = story()


def killed(work: Callable[[], object]) -> None:
    """Do it in a process of its own, which must not live to its end."""
    child = os.fork()
    if child == 0:  # pragma: no cover - ends by SIGKILL
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def outcome_whenever_killed(
    folder: Path,
    files: Sequence[Files],
    number: int,
    *,
    makes_alike: bool = True,
    declared: Sequence[WorkloadKind] = (),
) -> Outcome:
    """What one step of a story comes to on a folder's file: the same where it is killed at any write and goes on.

    `makes_alike`: as many objects are made, too. `declared`: as in `play`.
    """
    live, before, began_ms = folder / "live.db", folder / f"{number}.db", ZERO_MS + number * STEP_MS
    if live.exists():
        shutil.copy(live, before)
    wanted, writes = play(live, files, number, began_ms, declared=declared)
    made = objects_made(live)
    for write in range(1, writes + 1):
        database = folder / f"{number}-{write}.db"
        if before.exists():
            shutil.copy(before, database)
        killed(lambda: play(database, files, number, began_ms, (write, False), declared))  # noqa: B023 - it ends in this turn
        found, _ = play(database, files, number, began_ms + RESTARTED_AFTER_MS, declared=declared)
        assert found.but_for_places() == wanted.but_for_places(), f"killed at write {write} of step {number}"
        assert not makes_alike or objects_made(database) == made, f"killed at write {write} of step {number}"
    return wanted


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Outcome, int, int]]:
    """The story without a crash: for each commit the file before it, the outcome, the writes, the objects made."""
    folder = tmp_path_factory.mktemp("story")
    live = folder / "live.db"
    steps = []
    for number in range(len(TOLD)):
        before = folder / f"{number}.db"
        if live.exists():
            shutil.copy(live, before)
        outcome, writes = play(live, TOLD, number, ZERO_MS + number * STEP_MS)
        steps.append((before, outcome, writes, objects_made(live)))
    return steps


@pytest.mark.parametrize("number", range(len(TOLD)))
def test_killed_at_every_write_it_comes_to_the_same_end(
    told: list[tuple[Path, Outcome, int, int]], number: int, tmp_path: Path
) -> None:
    before, wanted, writes, made = told[number]
    undisturbed = told[number - 1][1].pods.items() & wanted.pods.items() if number else set()
    began_ms = ZERO_MS + number * STEP_MS
    for doom in [*((write, False) for write in range(1, writes + 1)), (writes, True)]:
        database = tmp_path / f"{doom}.db"
        if before.exists():
            shutil.copy(before, database)
        killed(lambda: play(database, TOLD, number, began_ms, doom))  # noqa: B023 - it ends in this turn
        found, _ = play(database, TOLD, number, began_ms + RESTARTED_AFTER_MS)
        assert found.but_for_places() == wanted.but_for_places(), f"killed at {doom}"
        assert objects_made(database) == made, f"killed at {doom}"
        assert undisturbed <= found.pods.items(), f"killed at {doom}"


def test_the_story_has_enough_places_to_die(told: list[tuple[Path, Outcome, int, int]]) -> None:
    assert sum(writes for _, _, writes, _ in told) >= 100


def test_the_story_ends_as_the_report_does(told: list[tuple[Path, Outcome, int, int]]) -> None:
    end = told[-1][1]
    starts = {job: run[2] for job, run in end.runs.items()}
    assert {job for job, count in starts.items() if count == 2} == {"team-b/b-4-gg", "team-c/c-4-gg"}
    assert {job for job, count in starts.items() if count == 0} == {"team-b/b-5-gg", "team-c/c-6-gg"}
    assert end.lines == ()
