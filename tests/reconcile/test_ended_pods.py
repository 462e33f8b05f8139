"""A GPU goes to the next job when its pod has ended, though the Job controller has not counted the pod yet.

The controller of this stage takes a minute for that, instead of a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from stage import CLUSTER, Stage, WithoutGit, job, project

from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import labels_of, resource_version
from gpuctl.model.ids import JobId
from gpuctl.model.state import Run

J1 = JobId.parse("a/j1")
FILES = {
    "c/cluster.yaml": CLUSTER,
    "c/projects/a/project.yaml": project("a", 4),
    "c/projects/a/j1.yaml": job("j1", "a", 4),
}
NEXT = {"c/projects/a/k.yaml": job("k", "a", 4)}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return WithoutGit(tmp_path, EmbeddedTimings(count_ms=60_000))


def begun(stage: Stage, files: dict[str, str]) -> None:
    """All of the GPUs are in use, and job k waits for them."""
    stage.commit(files)
    stage.play(20)
    stage.commit(NEXT)
    stage.play(40)
    assert stage.phases() == {"a/j1": "Running", "a/k": "Queued"}


def the_run(stage: Stage, job_id: str = "a/j1") -> Run:
    return next(run for run in stage.state().runs if str(run.job) == job_id)


def finished(stage: Stage) -> dict[str, str]:
    ledgers = stage.state().ledgers.values()
    return {str(run.job): run.state for ledger in ledgers for run in ledger.finished.values()}


def end_worker(stage: Stage, index: int) -> None:
    """One pod of j1 succeeds."""
    for body in stage.cluster.list(kinds.POD).items:
        if labels_of(body).get(names.JOB_LABEL) == "j1" and labels_of(body)[names.WORKER_INDEX_LABEL] == str(index):
            stage.cluster._store.write({**body, "status": {**body["status"], "phase": "Succeeded"}})


@pytest.mark.parametrize(("code", "ends"), [(0, "Succeeded"), (1, "Failed")])
def test_the_next_job_starts_before_the_job_is_counted(stage: Stage, code: int, ends: str) -> None:
    begun(stage, FILES)
    _, body = stage.live("Job", "j1")
    record = the_run(stage).record
    stage.at(42, lambda: stage.cluster.finish(J1, code))
    stage.play(50)
    assert stage.phases() == {"a/j1": "Stopping", "a/k": "Running"}
    assert finished(stage) == {}, "its end is its Job's to tell"
    assert the_run(stage).record == record, "no pause and no second start is on record"
    _, now = stage.live("Job", "j1")
    assert resource_version(now) == resource_version(body), "its Job is left to end as it is"
    stage.play(120)
    assert finished(stage) == {"a/j1": ends}
    assert stage.phases() == {"a/j1": ends, "a/k": "Running"}
    told = [note.reason for note in stage.notes if note.reason not in {"AsPredicted", "NotChecked", "Error", "Waiting"}]
    assert told == ["Admitted", "Admitted"]


def test_a_gpu_that_a_retry_needs_is_not_given_away(stage: Stage) -> None:
    begun(stage, FILES | {"c/projects/a/j1.yaml": job("j1", "a", 4, ", retries: 1")})
    stage.at(42, lambda: stage.cluster.finish(J1, 1))
    stage.play(100)
    assert the_run(stage).placement is not None
    assert stage.phases()["a/k"] == "Queued"
    stage.play(140)
    assert stage.phases() == {"a/j1": "Running", "a/k": "Queued"}
    assert the_run(stage).starts == 1


def test_a_run_that_is_over_and_suspended_by_a_person_ends_all_the_same(stage: Stage) -> None:
    begun(stage, FILES)
    suspended = {"c/projects/a/j1.yaml": job("j1", "a", 4, ", suspend: true")}
    stage.at(42, lambda: stage.cluster.finish(J1, 0))
    stage.at(46, lambda: stage.commit(suspended))
    stage.play(120)
    assert finished(stage) == {"a/j1": "Succeeded"}
    assert stage.phases()["a/k"] == "Running"


def test_workers_that_have_ended_hold_nothing_while_their_gang_goes_on(stage: Stage) -> None:
    """Two workers of two GPUs; k needs two."""
    gang = job("j1", "a", 2, ", workers: 2")
    stage.commit(FILES | {"c/projects/a/j1.yaml": gang})
    stage.play(20)
    stage.commit({"c/projects/a/k.yaml": job("k", "a", 2)})
    stage.play(40)
    assert stage.phases() == {"a/j1": "Running", "a/k": "Queued"}
    stage.at(42, lambda: end_worker(stage, 1))
    stage.play(60)
    assert stage.phases() == {"a/j1": "Running", "a/k": "Running"}
    assert the_run(stage).ended == {1}
    stage.cluster.finish(J1, 0)
    stage.play(180)
    assert finished(stage) == {"a/j1": "Succeeded"}
