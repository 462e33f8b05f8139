"""A Git remote that takes the connection and says nothing: jobs end and start meanwhile, and a stop is a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from silence import SilentServer
from stage import BASE, Stage, job

from gpuctl.adapters.background import ThreadBackground
from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import GitSource
from gpuctl.adapters.gitrun import Limits
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.outside import Outside
from gpuctl.app.ports import SourceUnavailable
from gpuctl.app.report import Journal
from gpuctl.model.ids import JobId, ProjectName, Revision

CLUSTER = "c/cluster.yaml"
PATIENCE_S = 180
SOON_S = 20
"""A third of what a fetch is given."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Script:
    """Implements the port Stop in the machine's time: each step is done in the loop's own thread, once it may be."""

    def __init__(self, *steps: tuple[Callable[[], bool], Callable[[], object]]) -> None:
        self._steps = list(steps)
        self._rung = Event()
        self._until = time.monotonic() + PATIENCE_S
        self.ended = False

    def requested(self) -> bool:
        return self.ended

    def wake(self) -> None:
        self._rung.set()

    def wait(self, duration_ms: int) -> bool:
        self._rung.wait(duration_ms / 1000)
        self._rung.clear()
        assert time.monotonic() < self._until, [step[0] for step in self._steps]
        while self._steps and self._steps[0][0]():
            self._steps.pop(0)[1]()
        return self.ended

    def end(self) -> None:
        self.ended = True


class GoesSilent:
    """A repository that answers once, and is a silent server from then on."""

    def __init__(self, good: GitSource, silent: GitSource) -> None:
        self._sources = [good, silent]
        self.tree = good.tree
        self.follows = good.follows
        self.confirmations = good.confirmations
        self.verify, self.branch, self.commits = good.verify, good.branch, good.commits

    def head(self) -> Revision:
        source = self._sources[0]
        self._sources = self._sources[-1:]
        return source.head()


def test_a_job_ends_and_another_starts_while_git_is_silent(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.commit({**BASE, "c/projects/b/j3.yaml": job("j3", "b", 3)})  # one GPU too many
    clock = SystemClock()
    stage.cluster = cluster = EmbeddedCluster(clock)

    def is_running(*names: str) -> Callable[[], bool]:
        return lambda: {name for name, phase in stage.phases().items() if phase == "Running"} == set(names)

    with SilentServer() as server:
        script = Script(
            (is_running("a/j1", "b/j2"), lambda: None),
            (server.came.is_set, lambda: cluster.finish(JobId(ProjectName("a"), "j1"), 0)),
            (is_running("b/j2", "b/j3"), lambda: script.end()),  # noqa: PLW0108 - it is made just now
        )
        good = GitSource(str(stage.copy.folder), "c", "main", tmp_path / "work")
        with (
            closing(GitSource(server.url, "c", "main", tmp_path / "other")) as silent,
            closing(ThreadBackground(script.wake)) as background,
        ):
            source = GoesSilent(good, silent)
            outside = Outside(source=source, cluster=cluster, machines=cluster, clock=clock, background=background)
            assert run(LoopSettings(interval_ms=300, react_ms=50), outside, Journal(lambda _: None), script) == 0
            assert server.waits(), "Git has been answered, or given up"
            began = time.monotonic()
        assert time.monotonic() - began < SOON_S
        assert server.left_within(SOON_S), "git is still there"
    assert stage.phases()["a/j1"] == "Succeeded"


def test_a_signal_ends_the_process_and_git_with_it(tmp_path: Path) -> None:
    with SilentServer() as server:
        command = ["reconcile", "--repo", server.url, "--path", "c", "--embedded", "--workdir", str(tmp_path)]
        process = subprocess.Popen([sys.executable, "-m", "gpuctl", *command], stderr=subprocess.PIPE)
        assert server.came.wait(PATIENCE_S)
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert time.monotonic() - began < SOON_S
        assert server.left_within(SOON_S), "git is still there"
        assert process.stderr is not None
        with process.stderr:
            assert process.stderr.read() == b""


def test_a_process_that_begins_goes_on_with_what_was_good_before_long(tmp_path: Path) -> None:
    """Its clone is there: it does not wait for the whole time that a fetch may take."""
    stage = Stage(tmp_path)
    head = stage.commit(BASE)
    work = tmp_path / "work"
    good = GitSource(str(stage.copy.folder), "c", "main", work)
    assert good.head() == head
    (clone,) = work.iterdir()
    with SilentServer() as server:
        silent = GitSource(server.url, "c", "main", work, limits=Limits(first_ms=300))
        clone.rename(silent._clone)
        began = time.monotonic()
        with pytest.raises(SourceUnavailable) as caught:
            silent.head()
        assert caught.value.code == "GPU8001"
        assert time.monotonic() - began < SOON_S
        assert CLUSTER in silent.tree(Revision(head)).files
