"""What goes on beside the loop holds nothing up: fetching, reading and compiling, however long they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stage import BASE, ZERO_MS, Stage, Turns, job
from test_frozen import control

from gpuctl.adapters.git import GitSource
from gpuctl.app.following import AtOnce
from gpuctl.app.ports import R, SourceUnavailable, Underway
from gpuctl.app.reconciler import LONG_FOLLOWING_MS
from gpuctl.model.ids import JobId, ProjectName, Revision

RUNNING = {"a/j1": "Running", "b/j2": "Running"}


class Slow:
    """Implements the port Background: work that begins while it is `hung` is done when it is let go."""

    def __init__(self) -> None:
        self.hung = False
        self.begun: list[Later] = []

    def start(self, work: Callable[[], R]) -> Underway[R]:
        assert all(other.done() for other in self.begun), "two at a time"
        later = Later(work, hangs=self.hung)
        self.begun.append(later)
        return later

    def let_go(self) -> None:
        self.hung = False
        for later in self.begun:
            later.hangs = False


class Later:
    """Work that is done as it is asked for, once it hangs no more."""

    def __init__(self, work: Callable[[], Any], *, hangs: bool) -> None:
        self._work = work
        self._ended: Underway[Any] | None = None
        self.hangs = hangs

    def done(self) -> bool:
        if not self.hangs and self._ended is None:
            self._ended = AtOnce().start(self._work)
        return not self.hangs

    def result(self) -> Any:
        assert self._ended is not None
        return self._ended.result()


def begin(tmp_path: Path) -> tuple[Stage, Slow]:
    stage, slow = Stage(tmp_path), Slow()
    stage.background = slow
    stage.commit({**BASE, "c/projects/b/j3.yaml": job("j3", "b", 3)})  # one GPU too many
    return stage, slow


def end(stage: Stage, owner: str, name: str) -> None:
    stage.cluster.finish(JobId(ProjectName(owner), name), 0)


def test_what_runs_is_enforced_while_git_hangs(tmp_path: Path) -> None:
    stage, slow = begin(tmp_path)
    stage.at(20, lambda: setattr(slow, "hung", True))
    stage.at(40, lambda: end(stage, "a", "j1"))
    stage.play(3600)
    assert stage.phases() == {"a/j1": "Succeeded", "b/j2": "Running", "b/j3": "Running"}
    assert [line["started"] for line in stage.lines if "started" in line][1:] == [["b/j3"]]
    assert len([later for later in slow.begun if later.hangs]) == 1


def test_that_it_takes_long_is_told_and_that_it_is_over(tmp_path: Path) -> None:
    stage, slow = begin(tmp_path)
    stage.at(20, lambda: setattr(slow, "hung", True))
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": None}))
    stage.at(1000, slow.let_go)
    stage.play(1100)
    told = [line for line in stage.lines if line.get("code") == "GPU8016"]
    assert [line["event"] for line in told] == ["slow", "resolved"]
    assert told[0]["at"] > stage.lines[0]["at"]
    assert "b/j3" not in stage.phases()
    assert stage.fetches[-1] >= 1000 > LONG_FOLLOWING_MS // 1000


def test_a_process_that_begins_waits_for_the_first_answer_in_silence(tmp_path: Path) -> None:
    """That nothing is known yet is no fault, and its copy of the cluster is current by then."""
    stage, slow = begin(tmp_path)
    untouched = stage.version()
    seen: list[tuple[object, object]] = []
    slow.hung = True
    stage.at(99, lambda: seen.append((stage.lines[:], stage.version())))
    stage.at(100, slow.let_go)
    stage.play(120)
    assert seen == [([], untouched)]
    assert stage.phases() == RUNNING | {"b/j3": "Queued"}


def test_what_another_term_has_asked_for_is_thrown_away(tmp_path: Path) -> None:
    """It hangs from before leadership is lost to after it is won again, and then gives an old commit."""
    stage, slow = begin(tmp_path)
    stage.leadership = turns = Turns()
    at: list[str] = [stage.git("rev-parse", "HEAD")]
    source = Frozen(stage)
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b", 4)}))
    stage.at(20, lambda: setattr(slow, "hung", True))
    stage.at(40, turns.pass_on)
    stage.at(60, turns.pass_on)
    stage.at(70, lambda: at.append(stage.commit({"c/projects/b/j3.yaml": None})))
    stage.at(80, source.freeze)
    stage.at(80, slow.let_go)
    stage.play(120, source=source)
    assert [line["revision"] for line in stage.lines if line["event"] == "following"] == at
    assert stage.phases() == RUNNING


class Frozen:
    """The repository's branch, but that the next answer is the commit before the newest."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._source = GitSource(str(stage.copy.folder), "c", "main", stage.folder / "work")
        self._old = False
        self.tree = self._source.tree
        self.follows = self._source.follows
        self.confirmations = self._source.confirmations
        self.verify, self.branch = self._source.verify, self._source.branch
        self.commits = self._source.commits

    def freeze(self) -> None:
        self._old = True

    def head(self) -> Revision:
        newest = self._source.head()
        if self._old:
            self._old = False
            return Revision(self._stage.git("rev-parse", "HEAD~1"))
        return newest


class Failing:
    """A source that raises what no source may, until a time."""

    def __init__(self, stage: Stage, until: int) -> None:
        self._stage = stage
        self._until = until
        self.tries = 0

    def _fail(self, *_: object) -> Any:
        if self._stage.clock.now_ms() < ZERO_MS + self._until * 1000:
            self.tries += 1
            raise RecursionError("a bug")
        raise SourceUnavailable("GPU8001", "away")

    head = tree = follows = confirmations = verify = commits = _fail
    branch = "main"


def test_a_bug_beside_the_loop_is_told_and_tried_again_less_and_less_often(tmp_path: Path) -> None:
    stage, _ = begin(tmp_path)
    source = Failing(stage, 600)
    stage.play(900, source=source)
    assert stage.codes("bug") == ["GPU9001"]
    assert any("RecursionError: a bug (test_beside.py:" in line.get("message", "") for line in stage.lines)
    assert stage.codes("source") == ["GPU8001"]
    assert source.tries < 15


@pytest.mark.parametrize("hangs_from", [0, 20])
def test_a_stop_does_not_wait_for_it(tmp_path: Path, hangs_from: int) -> None:
    stage, slow = begin(tmp_path)
    stage.at(hangs_from, lambda: setattr(slow, "hung", True))
    slow.hung = hangs_from == 0
    assert stage.play(100) == 0
    assert slow.begun[-1].hangs


def test_git_asked_for_while_it_is_read_is_read_once_more(tmp_path: Path) -> None:
    """What is read may have begun before the commit that is meant; the next turn of the interval is seconds away."""
    stage, slow = begin(tmp_path)
    stage.at(20, lambda: setattr(slow, "hung", True))
    stage.at(40, lambda: control(stage, asked="now"))
    stage.at(42, slow.let_go)
    stage.play(60)
    first, second = [second for second in stage.fetches if second >= 40][:2]
    assert first == 42
    assert second - first <= 4
