"""A machine's clock that is wrong decides nothing: no job is ended for it, and it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusing import Refusing
from stage import BASE, CLUSTER, ZERO_MS, Stage, WithoutGit, job

DAY_MS = 86_400_000
LIMITED = {**BASE, "c/projects/a/j1.yaml": job("j1", "a", 1, ", maxDuration: 20m")}


class Skewed:
    """The machine's clock: so much ahead of the time that passes."""

    def __init__(self, stage: Stage, ahead_ms: int = 0) -> None:
        self._stage = stage
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._stage.clock.now_ms() + self.ahead_ms


class Server:
    """The clock of the cluster's server; `silent` until it has answered."""

    def __init__(self, stage: Stage, *, silent: bool = False) -> None:
        self._stage = stage
        self.silent = silent

    def now_ms(self) -> int | None:
        return None if self.silent else self._stage.clock.now_ms()


def begin(folder: Path, ahead_ms: int = 0) -> tuple[Stage, Skewed]:
    stage = WithoutGit(folder)
    stage.commit(LIMITED)
    stage.machine_clock = clock = Skewed(stage, ahead_ms)
    stage.reference = Server(stage)
    return stage, clock


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS, 61_000, -61_000])
def test_nothing_is_written_by_a_wrong_clock(tmp_path: Path, ahead_ms: int) -> None:
    stage, _ = begin(tmp_path, ahead_ms)
    untouched = stage.version()
    stage.play(120)
    assert stage.version() == untouched
    assert stage.phases() == {}
    assert stage.codes() == ["GPU7032"]
    (told,) = [line for line in stage.lines if line["event"] == "clock"]
    assert told["level"] == "error"
    assert "2020-07-29" in told["message"]  # the server's


@pytest.mark.parametrize("ahead_ms", [0, 59_000, -59_000])
def test_clocks_that_differ_by_seconds_are_the_same(tmp_path: Path, ahead_ms: int) -> None:
    stage, _ = begin(tmp_path, ahead_ms)
    stage.play(30)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}
    assert stage.codes() == []


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_clock_that_goes_wrong_and_is_put_right(tmp_path: Path, ahead_ms: int) -> None:
    """Nothing ends, and nothing is late afterwards: what was due in 30 days by the wrong clock is due at once."""
    stage, clock = begin(tmp_path)
    stage.at(60, lambda: setattr(clock, "ahead_ms", ahead_ms))
    stage.at(90, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.at(600, lambda: setattr(clock, "ahead_ms", 0))
    stage.play(960)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running", "b/j3": "Running"}
    told = [line for line in stage.lines if line.get("code") == "GPU7032"]
    assert [line["event"] for line in told] == ["clock", "resolved"]


def test_where_all_clocks_are_put_back_nothing_waits_for_the_time_that_was(tmp_path: Path) -> None:
    """As where the API server is on the same machine: a refused job was tried again a day later, and people saw the
    overview of the day before."""
    stage = WithoutGit(tmp_path)
    stage.commit(BASE)
    stage.machine_clock = clock = Skewed(stage, DAY_MS)
    stage.through = refusing = Refusing(stage.cluster, "j2")
    published: list[int] = []
    stage.publish = lambda _: published.append(stage.clock.now_ms())

    def put_back() -> None:
        assert stage.phases() == {"a/j1": "Running"}
        refusing.strict, clock.ahead_ms = False, 0

    stage.at(60, put_back)
    stage.play(140)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}
    assert any(at_ms > ZERO_MS + 60_000 for at_ms in published)
    assert stage.codes("bug") == []


def test_a_freeze_window_is_over_by_the_right_clock_alone(tmp_path: Path) -> None:
    """By a clock that was an hour ahead the window would have been over, and the commit taken up within it."""
    stage, clock = begin(tmp_path)
    night = "  freeze: [{cron: '20 5 * * *', duration: 10m, forbids: all}]\n"
    stage.commit({"c/cluster.yaml": CLUSTER + night})
    stage.at(60, lambda: setattr(clock, "ahead_ms", 3_600_000))
    stage.at(90, lambda: stage.commit({"c/projects/b/j3.yaml": job("j3", "b")}))
    stage.at(200, lambda: setattr(clock, "ahead_ms", 0))
    stage.play(590)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}
    assert stage.codes("held") == ["GPU6013"]


def test_a_job_ends_at_its_limit_all_the_same(tmp_path: Path) -> None:
    stage, clock = begin(tmp_path)
    stage.at(60, lambda: setattr(clock, "ahead_ms", 30 * DAY_MS))
    stage.at(600, lambda: setattr(clock, "ahead_ms", 0))
    stage.play(1300)
    assert stage.phases() == {"a/j1": "TimedOut", "b/j2": "Running"}


def test_once_by_a_wrong_clock_fails(tmp_path: Path) -> None:
    stage, _ = begin(tmp_path, 30 * DAY_MS)
    untouched = stage.version()
    assert stage.play(60, once=True) == 1
    assert stage.version() == untouched
    assert stage.codes() == ["GPU7032"]


def test_a_server_that_has_not_said_yet_is_not_waited_for(tmp_path: Path) -> None:
    stage, _ = begin(tmp_path)
    stage.reference = Server(stage, silent=True)
    stage.play(30)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}
