"""The command itself as a process: ended by a signal, killed, and started again on the same file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from journal import journal
from stage import BASE, job

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.k8s.objects import annotations_of

PATIENCE_S = 180
"""For a loaded machine: what is waited for takes a second."""


class Process:
    """`gpuctl reconcile` on a repository and a file below a folder."""

    def __init__(self, folder: Path, *more: str) -> None:
        args = ["--repo", str(folder / "repo"), "--path", "c", "--embedded", str(folder / "cluster.db")]
        args += ["--workdir", str(folder / "work"), "--interval", "1s", "--log-format", "json", *more]
        self.log = folder / f"{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "gpuctl", "reconcile", *args], stderr=log)

    def lines(self) -> list[dict[str, Any]]:
        return journal(self.log)

    def until(self, event: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while event not in [line["event"] for line in self.lines()]:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = WorkingCopy.create(tmp_path / "repo")
    for path, text in BASE.items():
        copy.write(path, text.encode())
    copy.commit("first", 1_596_000_000_000)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_waits(folder: Path, number: signal.Signals) -> None:
    running = Process(folder, "--interval", "1h")
    running.until("applied")
    running.process.send_signal(number)
    assert running.process.wait(timeout=PATIENCE_S) == 0


def test_killed_and_started_again_it_goes_on_where_it_was(folder: Path) -> None:
    running = Process(folder)
    running.until("applied")
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    again = Process(folder, "--once")
    assert again.process.wait(timeout=PATIENCE_S) == 0, again.log.read_text()
    last = Process(folder, "--once")
    assert last.process.wait(timeout=PATIENCE_S) == 0
    assert "applied" not in [line["event"] for line in last.lines()]
    cluster = EmbeddedCluster(SystemClock(), str(folder / "cluster.db"))
    jobs = cluster.list(("batch/v1", "Job")).items
    cluster.close()
    assert [annotations_of(body)["gpuctl.dev/starts"] for body in jobs] == ["1", "1"]


def test_once_with_a_bad_commit_does_what_is_good_and_fails(folder: Path) -> None:
    copy = WorkingCopy(folder / "repo")
    copy.write("c/projects/a/bad.yaml", b"kind: [\n")
    copy.write("c/projects/b/j3.yaml", job("j3", "b").encode())
    copy.commit("bad", 1_596_000_000_000)
    once = Process(folder, "--once")
    assert once.process.wait(timeout=PATIENCE_S) == 1
    assert [line["started"] for line in once.lines() if "started" in line] == [["b/j2", "b/j3"]]


def test_a_project_with_more_jobs_than_there_is_memory_for_stays_behind_alone(folder: Path) -> None:
    once = Process(folder, "--once", "--jobs", "3")
    assert once.process.wait(timeout=PATIENCE_S) == 0
    copy = WorkingCopy(folder / "repo")
    for name in ("j4", "j5", "j6"):
        copy.write(f"c/projects/a/{name}.yaml", job(name, "a").encode())
    copy.write("c/projects/b/j3.yaml", job("j3", "b").encode())
    copy.commit("too many", 1_596_000_000_000)
    again = Process(folder, "--once", "--jobs", "3")
    assert again.process.wait(timeout=PATIENCE_S) == 1
    assert [line["started"] for line in again.lines() if "started" in line] == [["b/j3"]]
    assert [line["message"] for line in again.lines() if line.get("code") == "GPU3035"] == [
        'project "a" declares 4 jobs; the cluster has 6 with them, and the reconciler has memory for 3'
    ]
