"""Whatever stage has a bug, or meets an object that it can't bear: it is told, and the loop goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from stage import BASE, ZERO_MS, Stage, WithoutGit, job

from gpuctl.app.ports import WatchEvent
from gpuctl.k8s.kinds import Kind

RUNNING = {"a/j1": "Running", "b/j2": "Running"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = WithoutGit(tmp_path)
    made.commit(BASE)
    return made


class Broken:
    """Stands in for a part of the world: whatever is asked of it fails as no port may, between two times."""

    def __init__(self, stage: Stage, part: object, only: str = "", first: int = 0, last: int = 10_000) -> None:
        self._stage = stage
        self._part = part
        self._only = only
        self._when = range(first, last)
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._part, name)

        def fail(*args: Any, **named: Any) -> Any:
            second = (self._stage.clock.now_ms() - ZERO_MS) // 1000
            if second in self._when and self._only in {"", name}:
                self.failures += 1
                return int("9" * 5000)  # a ValueError: no more than 4,300 digits
            return whole(*args, **named)

        return fail if callable(whole) else whole


ASIDE: dict[str, Callable[[Stage], Broken]] = {
    "meters": lambda stage: Broken(stage, stage.meters),
    "recorder": lambda stage: Broken(stage, stage.recorder),
}


@pytest.mark.parametrize("name", ASIDE)
def test_what_only_measures_or_tells_holds_nothing_up(stage: Stage, name: str) -> None:
    broken = ASIDE[name](stage)
    setattr(stage, name, broken)
    stage.at(40, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(60)
    assert broken.failures > 0
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert set(stage.codes("bug")) == {"GPU9001"}
    assert {line["code"] for line in stage.lines if "code" in line} == {"GPU9001"}


class Closed(list[dict[str, Any]]):
    """A log whose reader is gone."""

    def append(self, line: dict[str, Any]) -> None:
        raise BrokenPipeError(line)


def test_a_log_that_is_closed_ends_nothing(stage: Stage) -> None:
    stage.lines = Closed()
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    assert stage.play(60) == 0
    assert stage.phases() == RUNNING | {"b/j3": "Running"}


@pytest.mark.parametrize("name", ["held", "term", "holder", "fault"])
def test_leadership_that_can_not_be_asked_for_is_asked_for_again(stage: Stage, name: str) -> None:
    broken = Broken(stage, stage.leadership, name, 5, 100)
    stage.leadership = broken
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(200)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    if broken.failures:
        assert stage.codes("bug") == ["GPU9001"]
        assert stage.events().count("resolved") == 1
        assert broken.failures < 30


class Cursed:
    """A cluster whose news can't be read, between two times: as an object with a number of 5,000 digits was."""

    def __init__(self, stage: Stage, first: int, last: int) -> None:
        self._stage = stage
        self._when = range(first, last)
        self.list = stage.cluster.list
        self.apply = stage.cluster.apply
        self.delete = stage.cluster.delete
        self.each = stage.cluster.each
        self.check = stage.cluster.check
        self.tries: list[int] = []

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        second = (self._stage.clock.now_ms() - ZERO_MS) // 1000
        if second in self._when:
            self.tries.append(second)
            int("9" * 5000)
        return self._stage.cluster.watch(kind, resource_version, timeout_ms)


def test_news_that_can_not_be_read_are_looked_at_less_and_less_often(stage: Stage) -> None:
    stage.through = cursed = Cursed(stage, 15, 1000)
    stage.at(20, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.play(1100)
    assert stage.phases() == RUNNING | {"b/j3": "Running"}
    assert set(stage.codes("bug")) == {"GPU9001"}
    assert "Exceeds the limit" in next(line["message"] for line in stage.lines if line["event"] == "bug")
    assert len(cursed.tries) < 300, "it spins"
    assert stage.lines[-1]["event"] != "bug"


@pytest.mark.parametrize("name", ["meters", "recorder", "leadership"])
def test_once_with_a_bug_fails_and_ends(stage: Stage, name: str) -> None:
    setattr(stage, name, Broken(stage, getattr(stage, name)))
    assert stage.play(600, once=True) == 1
