"""What is expected against what was found."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.model.decision import JobState, Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.simulate.expect import JOB_FACTS, PROJECT_FACTS, evaluate, gpus_form
from gpuctl.simulate.report import Checkpoint, JobRow, ProjectRow, SimulationReport, Transition, document
from gpuctl.simulate.scenario import Expectation, WantedEviction

A1, A2, B1, B2 = (JobId.parse(text) for text in ("a/a-1", "a/a-2", "b/b-1", "b/b-2"))
TEAM = ProjectName("a")
ROW = JobRow(
    job=A1,
    state=JobState.RUNNING,
    reason="GPU5001",
    message="runs",
    gpu_milli=500,
    placement=Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(3,)),)),
    starts=2,
    queued_ms=0,
)
CHECKPOINT = Checkpoint(
    at_ms=5000,
    begun_ms=4000,
    label="end",
    revision="",
    nodes=(),
    projects=(
        ProjectRow(name=TEAM, quota_milli=4000, fair_share_milli=1500, allocated_milli=500, pending=("z", "a-2")),
    ),
    jobs=(ROW,),
    free_milli=3500,
)


def pause(job: JobId, beneficiary: JobId | None) -> Transition:
    running, stopping = JobState.RUNNING, JobState.STOPPING
    return Transition(at_ms=1, job=job, before=running, after=stopping, paused_for=beneficiary, evicted=True)


def check(expectation: Expectation, *transitions: Transition) -> dict[str, tuple[Any, bool]]:
    outcomes = evaluate([expectation], lambda _: CHECKPOINT, transitions)
    return {outcome.path: (outcome.got, outcome.ok) for outcome in outcomes}


def test_facts_of_projects() -> None:
    wanted = {"allocated": 0.5, "quota": 4, "fairShare": 1.5, "pending": ["a-2", "z"], "queued": 2}
    assert wanted.keys() == PROJECT_FACTS.keys()
    found = check(Expectation(at_ms=None, projects={TEAM: wanted}))
    assert found == {f"projects.a.{name}": (value, True) for name, value in wanted.items()}


def test_facts_of_jobs() -> None:
    wanted = {
        "state": "Running",
        "starts": 2,
        "node": "n1",
        "placement": [{"node": "n1", "gpus": [3]}],
        "workers": 1,
        "reason": "GPU5001",
        "pausedFor": None,
    }
    assert wanted.keys() == JOB_FACTS.keys()
    found = check(Expectation(at_ms=None, jobs={A1: wanted}))
    assert found == {f"jobs.a/a-1.{name}": (value, True) for name, value in wanted.items()}


def test_what_is_not_there_has_no_facts() -> None:
    found = check(Expectation(at_ms=None, projects={ProjectName("b"): {"queued": 0}}, jobs={B1: {"starts": 0}}))
    assert found == {"projects.b.queued": (None, False), "jobs.b/b-1.starts": (None, False)}


@pytest.mark.parametrize(
    ("wanted", "happened", "ok"),
    [
        ([], [], True),
        ([(A1, None)], [], False),
        ([], [(A1, B1)], False),
        ([(A1, None)], [(A1, B1)], True),
        ([(A1, B1)], [(A1, B1)], True),
        ([(A1, B2)], [(A1, B1)], False),
        ([(A1, None), (A1, B1)], [(A1, B1), (A1, B2)], True),
        ([(A1, None), (A1, B1)], [(A1, B2), (A1, B2)], False),
        ([(A1, B1), (A2, B1)], [(A2, B1), (A1, B1)], True),
    ],
)
def test_evictions_are_a_complete_list(
    wanted: list[tuple[JobId, JobId | None]], happened: list[tuple[JobId, JobId]], *, ok: bool
) -> None:
    expected = tuple(WantedEviction(job=job, beneficiary=beneficiary) for job, beneficiary in wanted)
    found = check(Expectation(at_ms=None, evictions=expected), *(pause(job, gainer) for job, gainer in happened))
    assert found["evictions"][1] is ok


def test_a_later_pause_does_not_count_yet() -> None:
    later = Transition(at_ms=5001, job=A1, before=JobState.RUNNING, after=JobState.PREEMPTED, evicted=True)
    assert check(Expectation(at_ms=5000, evictions=()), later) == {"evictions": ([], True)}


@pytest.mark.parametrize(("milli", "gpus"), [(0, 0), (4000, 4), (500, 0.5), (100, 0.1)])
def test_gpus_as_people_write_them(milli: int, gpus: float) -> None:
    assert gpus_form(milli) == gpus


def test_the_document_of_a_report() -> None:
    outcomes = evaluate([Expectation(at_ms=None, jobs={A1: {"starts": 1}})], lambda _: CHECKPOINT, [])
    gone = Transition(at_ms=9, job=A2, before=JobState.RUNNING, after=None)
    report = SimulationReport(
        name="r", why="w", checkpoints=(CHECKPOINT,), transitions=(pause(A2, B1), gone), outcomes=outcomes, cycles=7
    )
    form = document(report)
    assert form["expectations"] == [{"at": "end", "path": "jobs.a/a-1.starts", "want": 1, "got": 2, "ok": False}]
    assert form["transitions"][0]["for"] == "b/b-1"
    assert (form["transitions"][1]["from"], form["transitions"][1]["to"]) == ("Running", None)
    assert form["summary"] == {
        "ok": False, "stable": True, "expectations": 1, "failed": 1, "cycles": 7, "endMs": 5000, "starts": 2,
        "lostGpuMs": 0, "evictions": 1,
    }  # fmt: skip
