"""`list --watch` and `watch`, on the embedded cluster of the report while it changes."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Run, heeding_ctrl_c

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.inspect import live
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.utilisation import IDLE_AFTER_MS, ProjectUse, RunUse
from gpuctl.views.clusters import cluster_view, with_use
from gpuctl.views.screen import screen

PATIENCE_S = 180
LINE = (sys.executable, "-m", "gpuctl")


def finish(file: Path, job: str) -> None:
    """End a job's pods, as they would by themselves."""
    cluster = EmbeddedCluster(SystemClock(), str(file))
    cluster.finish(JobId.parse(job), 0)
    cluster.settle()
    cluster.close()


def until(read: Callable[[], str], *words: str) -> str:
    """What was read, once it has these words in this order."""
    text, end = "", time.monotonic() + PATIENCE_S
    while True:
        text += read()
        at = 0
        for word in words:
            at = text.find(word, at) + 1
            if not at:
                break
        if at:
            return text
        assert time.monotonic() < end, text


def test_list_watch_prints_the_list_then_each_job_that_changes_over_a_while_without_the_cluster(
    embedded: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copy(embedded, tmp_path / "cluster.db"))
    command = [*LINE, "list", "--watch", "-p", "team-a", "--embedded", str(file)]
    piped, told = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdout=piped, stderr=told, preexec_fn=heeding_ctrl_c) as process:  # noqa: PLW1509 - it starts no thread
        assert process.stdout is not None
        number = process.stdout.fileno()

        def read() -> str:
            ready, _, _ = select.select([number], [], [], 0.2)
            return os.read(number, 65_536).decode() if ready else ""

        first = until(read, "Showing jobs for project team-a", "NAME", "a-1-g")
        while first.count("\n") < 5:
            first += until(read, "\n")
        assert first.count("\n") == 5, "a heading, a header and three jobs"
        aside = file.rename(tmp_path / "aside.db")
        until(read, "note: GPU", "trying again")
        finish(aside, "team-a/a-1-g")
        aside.rename(file)
        later = until(read, "note: the cluster is read again", "a-1-g", "Succeeded")
        assert "a-2-gg" not in later, "it is as it was"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_watching_has_no_other_forms(run: Run, embedded: Path) -> None:
    refused = run("list", "--watch", "-o", "json", "--embedded", embedded)
    assert (refused.exit_code, "--watch is for -o table and wide" in refused.stderr) == (2, True)


def test_watch_needs_a_terminal(run: Run, embedded: Path) -> None:
    refused = run("watch", "--embedded", embedded)
    assert (refused.exit_code, "gpuctl watch needs a terminal" in refused.stderr) == (2, True)


@pytest.mark.parametrize("rows", [40, 5])
def test_the_screen_shows_bars_and_jobs_and_gives_the_terminal_back(embedded: Path, rows: int) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES=str(rows), COLUMNS="110", LC_ALL="C.UTF-8")
        os.execv(sys.executable, [*LINE, "watch", "--embedded", str(embedded)])

    def read() -> str:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        return os.read(terminal, 65_536).decode() if ready else ""

    try:
        head = ("16/16 GPUs of 2 nodes", "13 running", "Allocated", "########## 100%")
        if rows > 30:
            until(read, *head, "team-a", "a-2-gg", "PENDING")
        else:
            assert "a-2-gg" not in until(read, *head)
            os.write(terminal, b"\x1b[6~" * 3)  # page down
            until(read, "gg")
        os.write(terminal, b"q")
        until(read, "\x1b[?1049l")  # the screen is given back
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(terminal)


def test_the_screen_has_what_gpus_do_and_no_line_wider_than_the_terminal(embedded: Path) -> None:
    with closing(EmbeddedCluster.copy_of(str(embedded), SystemClock())) as cluster:
        current = live(cluster)
    now_ms = SystemClock().now_ms()
    since_ms = now_ms - IDLE_AFTER_MS
    rest = RunUse(held_milli=1000, busy_milli=0, quiet_since_ms=since_ms, seen_ms=now_ms)
    jobs = [replace(job, use=rest, progress_ppm=420_000) if job.id.name == "a-1-g" else job for job in current.jobs]
    view = replace(cluster_view(current.state, jobs, now_ms), idle_milli=1000)
    view = with_use(view, {ProjectName("team-a"): ProjectUse(held_milli=1000, busy_milli=0, idle_milli=1000)})
    lines = screen(view, now_ms, 100)
    assert all(len(line.text) < 100 for line in lines)
    assert "Utilisation  ..........   0%   idle: 1 GPUs" in [line.text for line in lines]
    (job,) = [line.text.split() for line in lines if line.text.startswith("a-1-g ")]
    assert job[-4:] == ["..........", "0%", "5m", "42%"]
    assert [line.style for line in lines[:1]] == ["head"]
    missed = screen(view, now_ms, 100, "not read since 4s: why")
    assert missed == (lines[0], ("not read since 4s: why", "strong"), *lines[1:])
