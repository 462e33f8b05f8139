"""Each pull request is planned on a live cluster, merged and enforced there: what was planned is what happens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import AT_MS, Run
from planpulls import PULLS
from planstories import STORIES

from gpuctl import wiring
from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.loop import LoopSettings
from gpuctl.app.loop import run as reconcile
from gpuctl.app.reconciler import Outside
from gpuctl.app.report import Journal, LogForm
from gpuctl.k8s.kinds import OBSERVED

ALL = {**STORIES, **PULLS}
FOLDER = "clusters/tr4858"
REST_MS = 120_000
REFUSED = {"removed_project": "explained"}
"""Pull requests of which a guard refuses a part."""
HELD = "frozen"


class Site:
    """A repository and a cluster that follows its main branch in virtual time."""

    def __init__(self, folder: Path, copy: WorkingCopy) -> None:
        self._folder, self._copy = folder, copy
        self.clock = VirtualClock(AT_MS)
        self.cluster = EmbeddedCluster(self.clock)
        self.lines: list[dict[str, Any]] = []
        self._end_ms = AT_MS

    def requested(self) -> bool:
        return self.clock.now_ms() >= self._end_ms

    def wait(self, duration_ms: int) -> bool:
        self.clock.advance_to(min(self.clock.now_ms() + duration_ms, self._end_ms))
        return self.requested()

    def rest(self) -> None:
        """Follow the branch until nothing happens any more."""
        self._end_ms = self.clock.now_ms() + REST_MS
        source = GitSource(str(self._copy.folder), FOLDER, "main", self._folder / "work")
        outside = Outside(source=source, cluster=self.cluster, machines=self.cluster, clock=self.clock)
        journal = Journal(lambda line: self.lines.append(json.loads(line)), LogForm.JSON)
        reconcile(LoopSettings(interval_ms=10_000, react_ms=2_000), outside, journal, self)

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
def test_what_is_planned_is_what_happens(
    name: str, run: Run, repository: WorkingCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ALL[name](repository)
    site = Site(tmp_path, repository)
    monkeypatch.setattr(wiring, "now_ms", site.clock.now_ms)
    site.rest()
    site.lines.clear()
    command = ("plan", repository.folder / FOLDER, *options, "--state", site.state(), "-o", "json")
    plan = json.loads(run(*command).stdout)
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
    assert end["result"] == REFUSED.get(name, "as-predicted"), end
    fates = ("started", "paused", "moved", "resized", "stopped")
    assert {key: set(end[told]) for key in fates if (told := f"predicted_{key}") in end} == wanted
