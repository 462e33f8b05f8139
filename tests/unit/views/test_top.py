"""What `top job` and `top project` show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.k8s import kinds
from gpuctl.model.decision import JobState, Placement, WorkerPlacement
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import Run, RunPhase
from gpuctl.model.utilisation import IDLE_AFTER_MS, ProjectUse, RunUse
from gpuctl.views.jobs import JobView
from gpuctl.views.progress import progress_text
from gpuctl.views.projects import ProjectView
from gpuctl.views.sweeps import folded
from gpuctl.views.top import bar, job_use_form, job_use_table, most_idle_first, project_use_form, project_use_table

GIB = 1 << 30
NOW_MS = 10 * IDLE_AFTER_MS
REST = RunUse(
    held_milli=1000, busy_milli=0, used_bytes=29 * GIB, total_bytes=80 * GIB, quiet_since_ms=0, seen_ms=NOW_MS
)
WORK = RunUse(held_milli=1000, busy_milli=973, used_bytes=60 * GIB, total_bytes=80 * GIB, seen_ms=NOW_MS)


def view(name: str, use: RunUse | None, gpu_milli: int = 1000) -> JobView:
    job = JobId(ProjectName("team-a"), name)
    place = Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(0,)),))
    run = Run(job=job, digest=RunDigest("d"), phase=RunPhase.RUNNING, placement=place, gpu_milli=gpu_milli)
    return JobView(
        id=job, state=JobState.RUNNING, type="training", image="x", ref=ObjectRef(*kinds.JOB, "gpu-a", name),
        workers=1, asked_workers=1, gpu_milli=gpu_milli, run=run, use=use,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("percent", "shown"),
    [(0, "..........   0%"), (4, "..........   4%"), (70, "#######...  70%"), (100, "########## 100%")],
)
def test_a_percentage_is_a_bar_and_a_number(percent: int, shown: str) -> None:
    assert bar(percent) == shown


def test_the_idlest_job_is_first_and_what_is_not_measured_last() -> None:
    later = replace(REST, quiet_since_ms=IDLE_AFTER_MS)
    slow = replace(WORK, busy_milli=100)
    jobs = [view(*each) for each in (("a", WORK), ("b", None), ("c", later), ("d", slow), ("e", REST))]
    assert [job.id.name for job in most_idle_first([*jobs, view("cpu", None, 0)])] == ["e", "c", "d", "a", "b"]


def test_jobs_as_a_table() -> None:
    work = replace(view("work", WORK), progress_ppm=429_999)
    text = job_use_table([view("rest", REST), work, view("dark", None)], NOW_MS, wide=False)
    assert text == (
        "NAME  PROJECT  TYPE   NODE  GPUs  UTILISATION      MEMORY   IDLE  PROGRESS\n"
        "rest  team-a   Train  n1    1     ..........   0%  29/80Gi  50m   -\n"
        "work  team-a   Train  n1    1     ##########  97%  60/80Gi  -     42%\n"
        "dark  team-a   Train  n1    1     -                -        -     -\n"
    )


def test_a_sweep_is_a_row_where_its_most_idle_job_is() -> None:
    jobs = [replace(view(f"tune-{at}", use), sweep="tune", index=str(at)) for at, use in enumerate((WORK, REST, None))]
    rows = folded(most_idle_first([*jobs, view("work", WORK)]))
    assert job_use_table(rows, NOW_MS, wide=False).splitlines()[1:] == [
        "tune (3)  team-a   Train  n1    3     #####.....  49%  89/160Gi  50m (1 of 3)  -",
        "work      team-a   Train  n1    1     ##########  97%  60/80Gi   -             -",
    ]


def test_jobs_as_json() -> None:
    assert job_use_form(view("rest", REST))["use"] == {
        "measuredGpuMilli": 1000, "busyGpuMilli": 0, "memoryUsedBytes": 29 * GIB, "memoryTotalBytes": 80 * GIB,
        "idleSince": "1970-01-01T00:00:00.000Z",
    }  # fmt: skip
    assert job_use_form(view("work", WORK))["use"]["idleSince"] is None
    assert job_use_form(view("dark", None))["use"] is None


def test_projects_as_a_table_and_as_json() -> None:
    use = ProjectUse(held_milli=2000, busy_milli=973, used_bytes=89 * GIB, total_bytes=160 * GIB, idle_milli=1000)
    known = ProjectView(
        name=ProjectName("team-a"), namespace="gpu-a", department="", allowances={}, allocated_milli=3000, running=3,
        pending=0, use=use,
    )  # fmt: skip
    dark = replace(known, name=ProjectName("team-b"), use=None)
    assert project_use_table([known, dark], wide=False) == (
        "PROJECT  GPU(Allocated)  GPU(Measured)  UTILISATION      MEMORY    GPU(Idle)\n"
        "team-a   3               2              #####.....  49%  89/160Gi  1\n"
        "team-b   3               0              -                -         -\n"
    )
    assert project_use_form(known)["use"]["idleGpuMilli"] == 1000
    assert project_use_form(dark)["use"] is None


def test_progress_in_words_with_what_is_left_at_the_pace_so_far() -> None:
    job = replace(view("j", None), progress_ppm=250_000)
    job = replace(job, run=replace(job.run, started_at_ms=NOW_MS - 60_000, ran_ms=540_000))
    assert progress_text(job, NOW_MS) == "25%, about 30m left at the pace so far"
    assert progress_text(replace(job, progress_ppm=0), NOW_MS) == "0%"
    stopped = replace(job, run=replace(job.run, phase=RunPhase.QUEUED))
    assert progress_text(stopped, NOW_MS) == "-"
