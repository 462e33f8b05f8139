"""A notice where an idleTimeout can't work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workbench import Workbench, example

from gpuctl.k8s import names
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.plan.idle_reports import no_idle_reports

HOUR_MS = 3_600_000
NONE: Mapping[str, str] = {}
FIRST = example().jobs[0]
LIMITED = replace(example(), jobs=(replace(FIRST, idle_timeout_ms=HOUR_MS), *example().jobs[1:]))
RUN = Run(job=FIRST.id, digest=LIMITED.jobs[0].digest, phase=RunPhase.RUNNING, started_at_ms=0)


def codes(state: ClusterState, now_ms: int = HOUR_MS) -> list[str]:
    return [found.code for found in no_idle_reports(LIMITED, state, now_ms)]


OTHER = replace(FIRST, id=JobId(ProjectName("other"), "x"), digest=RunDigest("other"))


def world(run: Run = RUN, notes: Mapping[str, str] = NONE, whose: Job = FIRST) -> ClusterState:
    pod = ObjectRef("v1", "Pod", "gpu-a", "x")
    live = {pod: {"metadata": {"annotations": notes}}}
    return replace(Workbench(LIMITED).state(), runs=(run,), live=live, pods={pod: (whose.id, whose.digest)})


def test_it_is_told_once_a_job_has_run_so_long() -> None:
    assert codes(world(), HOUR_MS - 1) == []
    assert codes(world()) == ["GPU7059"]
    assert not list(no_idle_reports(example(), world(), HOUR_MS))


def test_it_is_not_told_where_something_reports() -> None:
    assert codes(world(notes={names.IDLE_SINCE_ANNOTATION: ""})) == []
    assert codes(world(replace(RUN, idle_since_ms=5))) == []
    assert codes(world(replace(RUN, phase=RunPhase.STARTING))) == []


def test_what_a_team_writes_on_other_pods_keeps_nothing_untold() -> None:
    written = world(notes={names.IDLE_SINCE_ANNOTATION: ""}, whose=OTHER)
    idle = replace(RUN, job=OTHER.id, digest=OTHER.digest, idle_since_ms=5)
    assert codes(written) == ["GPU7059"]
    assert codes(replace(written, runs=(idle, RUN))) == ["GPU7059"]
