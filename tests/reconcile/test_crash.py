"""kill -9 at every write of the demo's story, then a restart: the same end, nothing started or made twice.

After one write is before the next: the file is the same. So the places to die are before each write and after the last.
A process that goes on leaves its file at each of them as a kill would, and one test kills to prove it: to play a step
up to each of its writes takes as long again as all restarts.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from theatre import STEP_MS, ZERO_MS, Files, Outcome, Place, keep_in, kill_at, left_at, objects_made, play, story

from gpuctl.adapters.embedded.sqlite import read
from gpuctl.model.workload_kind import WorkloadKind

RESTARTED_AFTER_MS = 20_000
MOVES = 14
"""A step in which jobs are paused for another."""
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
    live, kept, began_ms = folder / "live.db", folder / str(number), ZERO_MS + number * STEP_MS
    kept.mkdir()
    wanted, writes = play(live, files, number, began_ms, keep_in(kept, live), declared)
    made = objects_made(live)
    for write in range(1, writes + 1):
        database = left_at(kept, (write, False))
        found, _ = play(database, files, number, began_ms + RESTARTED_AFTER_MS, declared=declared)
        assert found.but_for_places() == wanted.but_for_places(), f"killed at write {write} of step {number}"
        assert not makes_alike or objects_made(database) == made, f"killed at write {write} of step {number}"
    return wanted


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the story without a crash: the file before it, those that a kill at each write would leave, what it
    came to, how many writes it took, how many objects were ever made."""

    before: Path
    kept: Path
    outcome: Outcome
    writes: int
    made: int

    def places_to_die(self) -> Sequence[Place]:
        return [*((write, False) for write in range(1, self.writes + 1)), (self.writes, True)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """The story without a crash."""
    folder = tmp_path_factory.mktemp("story")
    live = folder / "live.db"
    steps = []
    for number in range(len(TOLD)):
        before, kept = folder / f"{number}.db", folder / str(number)
        kept.mkdir()
        if live.exists():
            shutil.copy(live, before)
        outcome, writes = play(live, TOLD, number, ZERO_MS + number * STEP_MS, keep_in(kept, live))
        steps.append(Step(before, kept, outcome, writes, objects_made(live)))
    return steps


@pytest.mark.parametrize("number", range(len(TOLD)))
def test_killed_at_every_write_it_comes_to_the_same_end(told: list[Step], number: int) -> None:
    step = told[number]
    undisturbed = told[number - 1].outcome.pods.items() & step.outcome.pods.items() if number else set()
    for doom in step.places_to_die():
        database = left_at(step.kept, doom)
        found, _ = play(database, TOLD, number, ZERO_MS + number * STEP_MS + RESTARTED_AFTER_MS)
        assert found.but_for_places() == step.outcome.but_for_places(), f"killed at {doom}"
        assert objects_made(database) == step.made, f"killed at {doom}"
        assert undisturbed <= found.pods.items(), f"killed at {doom}"


def test_a_killed_process_leaves_what_is_kept_of_one_that_lives_on(told: list[Step], tmp_path: Path) -> None:
    number, kept, lives = MOVES, tmp_path / "kept", tmp_path / "lives.db"
    step, began_ms = told[number], ZERO_MS + number * STEP_MS
    kept.mkdir()
    shutil.copy(step.before, lives)
    play(lives, TOLD, number, began_ms, keep_in(kept, lives))
    left = [read(str(left_at(kept, doom))) for doom in step.places_to_die()]
    assert all(one != after for one, after in pairwise(left))
    for doom, wanted in zip(step.places_to_die(), left, strict=True):
        dies = tmp_path / f"{doom}.db"
        shutil.copy(step.before, dies)
        killed(lambda: play(dies, TOLD, number, began_ms, kill_at(doom)))  # noqa: B023 - it ends in this turn
        assert read(str(dies)) == wanted, f"killed at {doom}"


def test_the_story_has_enough_places_to_die(told: list[Step]) -> None:
    assert sum(step.writes for step in told) >= 100


def test_the_story_ends_as_the_report_does(told: list[Step]) -> None:
    end = told[-1].outcome
    starts = {job: run[2] for job, run in end.runs.items()}
    assert {job for job, count in starts.items() if count == 2} == {"team-b/b-4-gg", "team-c/c-4-gg"}
    assert {job for job, count in starts.items() if count == 0} == {"team-b/b-5-gg", "team-c/c-6-gg"}
    assert end.lines == ()
