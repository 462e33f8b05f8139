"""Each pull request is planned on a live cluster, merged and enforced there: what was planned is what happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from commands import AT_MS, Run
from planpulls import PULLS
from planstories import STORIES

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.loop import LoopSettings
from gpuctl.app.loop import run as reconcile
from gpuctl.app.outside import Outside
from gpuctl.app.report import Journal, LogForm
from gpuctl.k8s.kinds import JOB, OBSERVED
from gpuctl.k8s.names import JOB_LABEL
from gpuctl.k8s.objects import labels_of

ALL = {**STORIES, **PULLS}
FOLDER = "clusters/tr4858"
REST_MS, INTERVAL_MS = 120_000, 40_000
REFUSED = "removed_project"
"""Pull request that a guard refuses: its plan says what a confirmation does, and until then nothing happens."""
HELD = "frozen"


class Site:
    """A repository and a cluster that follows its main branch in virtual time."""

    def __init__(self, folder: Path, copy: WorkingCopy, timings: EmbeddedTimings | None = None) -> None:
        self._folder, self._copy = folder, copy
        self.clock = VirtualClock(AT_MS)
        self.cluster = EmbeddedCluster(self.clock, timings=timings)
        self.lines: list[dict[str, Any]] = []
        self._end_ms = AT_MS

    def requested(self) -> bool:
        return self.clock.now_ms() >= self._end_ms

    def wait(self, duration_ms: int) -> bool:
        self.clock.advance_to(min(self.clock.now_ms() + duration_ms, self._end_ms))
        return self.requested()

    def rest(self, for_ms: int = REST_MS, react_ms: int = 2_000) -> None:
        """Follow the branch until nothing happens any more."""
        self._end_ms = self.clock.now_ms() + for_ms
        source = GitSource(str(self._copy.folder), FOLDER, "main", self._folder / "work")
        outside = Outside(source=source, cluster=self.cluster, machines=self.cluster, clock=self.clock)
        journal = Journal(lambda line: self.lines.append(json.loads(line)), LogForm.JSON)
        reconcile(LoopSettings(interval_ms=INTERVAL_MS, react_ms=react_ms), outside, journal, self)

    def state(self) -> Path:
        """What `kubectl get -o json` prints of it, in a file."""
        file = self._folder / "state.json"
        file.write_text(json.dumps({"items": [body for kind in OBSERVED for body in self.cluster.list(kind).items]}))
        return file

    def git(self, *args: str) -> None:
        at = ("git", "-C", str(self._copy.folder), "-c", "user.name=Ana", "-c", "user.email=ana@example.com")
        subprocess.run([*at, *args], check=True, capture_output=True)

    def merge(self, options: list[str]) -> None:
        """Do what the options of `gpuctl plan` say."""
        if "--rollback" in options:
            self.git("restore", f"--source={options[-1]}", "--staged", "--worktree", "--", FOLDER)
        elif "--head" in options:
            self.git("merge", "--no-edit", options[-1])
            return
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "merged")


def planned(effect: Mapping[str, Any]) -> dict[str, set[str]]:
    """The jobs that a plan names, as the line of a prediction has them."""
    started = {each["job"] for each in effect["started"]}
    anew = {each["job"] for each in effect["started"] if each["anew"]}
    found = {key: {each["job"] for each in effect[key]} for key in ("paused", "moved", "resized", "stopped")}
    found["stopped"] |= anew
    return {key: jobs for key, jobs in {"started": started, **found}.items() if jobs}


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"conflict"}))
def test_what_is_planned_is_what_happens(name: str, run: Run, repository: WorkingCopy, tmp_path: Path) -> None:
    options = ALL[name](repository)
    site = Site(tmp_path, repository)
    site.rest()
    site.lines.clear()
    command = ("plan", repository.folder / FOLDER, *options, "--state", site.state(), "-o", "json")
    plan = json.loads(run(*command, clock=site.clock).stdout)
    site.merge(options)
    site.rest()
    ends = [line for line in site.lines if line["event"] == "prediction"]
    if name == HELD:
        (held,) = [line for line in site.lines if line["event"] == "held"]
        assert [(each["code"], each["help"]) for each in plan["refusals"]] == [("GPU6013", held["help"])]
        assert "Gpuctl-Confirm: " in held["help"]
        return
    wanted = planned(plan["effect"])
    if not ends:
        assert wanted == {}
        return
    (end,) = ends
    assert end["result"] == "as-predicted", end
    fates = ("started", "paused", "moved", "resized", "stopped")
    found = {key: set(end[told]) for key in fates if (told := f"predicted_{key}") in end}
    assert found == ({} if name == REFUSED else wanted)


def test_forecast_starts_hold_to_the_second(run: Run, repository: WorkingCopy, tmp_path: Path) -> None:
    """Jobs run for their maxDuration, and pods end at once: the starts that a plan foretells are those that happen."""
    jobs = repository.folder / FOLDER / "projects" / "team-a" / "jobs"
    for file in sorted((repository.folder / FOLDER / "projects").glob("*/jobs/*.yaml")):
        file.unlink()

    def submit(name: str, gpus: int, seconds: int) -> None:
        text = f"{{image: x, gpus: {gpus}, maxDuration: {seconds}s}}"
        head = f"apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {{name: {name}, project: team-a}}\n"
        (jobs / f"{name}.yaml").write_text(f"{head}spec: {text}\n")

    jobs.mkdir(parents=True, exist_ok=True)
    for number, seconds in enumerate((150, 160, 175, 190)):
        submit(f"first-{number}", 4, seconds)
    site = Site(tmp_path, repository, EmbeddedTimings(start_ms=0, termination_ms=0))
    site.git("add", "--all")
    site.git("commit", "--quiet", "-m", "all GPUs")
    site.rest()
    for number, (gpus, seconds) in enumerate(((4, 45), (4, 30), (8, 15), (2, 21), (8, 9))):
        submit(f"then-{number}", gpus, seconds)
    command = ("plan", repository.folder / FOLDER, "--base", "main", "--state", site.state(), "-o", "json")
    effect = json.loads(run(*command, clock=site.clock).stdout)["effect"]
    began_s = datetime.fromisoformat(effect["ground"]["at"]).timestamp()
    wanted = {each["job"]: began_s + each["startsInMs"] / 1000 for each in effect["eta"]}
    assert (len(wanted), effect["starved"]) == (5, [])
    site.git("add", "--all")
    site.git("commit", "--quiet", "-m", "more")
    site.rest(240_000, react_ms=500)  # a forecast knows no pause between a run's end and the next start
    happened = {
        f"team-a/{labels_of(body)[JOB_LABEL]}": datetime.fromisoformat(body["status"]["startTime"]).timestamp()
        for body in site.cluster.list(JOB).items
    }
    late = {job: happened[job] - at_s for job, at_s in wanted.items()}
    assert all(abs(each) < 1 for each in late.values()), late
