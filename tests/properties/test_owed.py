"""What is owed goes first, also before a place that is kept or promised: over random lives on one node no job starts
beyond its project's guarantee, unless a run made way for it, in a cycle after which another project's first job
still waits for no more than that, though it would be within its own."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.engine.reasons import FOR_PAUSED, GUARDED, IN_QUOTA
from gpuctl.model.decision import Admit
from gpuctl.model.declared import MinRuntime, SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.model.state import RunPhase
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.modes import Engine
from gpuctl.simulate.replay import PauseCost, Replay, RunTransition, TrackedJob
from gpuctl.simulate.trace import Trace, TraceJob
from gpuctl.simulate.workload import Layout, Workload, workload

QUOTAS = {ProjectName("a"): 3000, ProjectName("b"): 3000, ProjectName("c"): 2000}
STOP_MS = 30_000

Traced = tuple[ProjectName, int, int, int]
"""Whose, when it comes and how long it takes in seconds, and its GPUs."""


class Watched(Replay):
    """A life, looked at after each cycle."""

    def __init__(self, load: Workload) -> None:
        self.meter = Meter(load.quotas, load.capacity_milli, (0, 10**9), STOP_MS)
        super().__init__(load, Engine(load), PauseCost(stop_ms=STOP_MS), self.meter)

    def _carry_out(self, decisions: Sequence[RunTransition], now_ms: int) -> bool:
        starts = [
            decision for decision in decisions if isinstance(decision, Admit) and decision.reason.code != IN_QUOTA
        ]
        starts = [start for start in starts if not self._made_way_for(self._tracked[start.job])]
        paused = super()._carry_out(decisions, now_ms)
        owed = [tracked for project in QUOTAS for tracked in self._first(project) if self._is_owed(tracked)]
        for start in starts:
            milli = self._tracked[start.job].total_milli
            passed = [t.job.id for t in owed if t.job.id.project != start.job.project and t.total_milli <= milli]
            assert not passed, f"{start.job} starts before {passed}"
        return paused

    @staticmethod
    def _made_way_for(tracked: TrackedJob) -> bool:
        said = tracked.run.reason
        return said is not None and said.code == FOR_PAUSED

    def _first(self, project: ProjectName) -> list[TrackedJob]:
        """The job that waits longest in a project, at most one."""
        waiting = [t for t in self._tracked.values() if t.job.id.project == project and t.run.phase is RunPhase.QUEUED]
        return sorted(waiting, key=lambda tracked: (tracked.run.queued_at_ms, tracked.job.id))[:1]

    def _is_owed(self, tracked: TrackedJob) -> bool:
        """It has no place, and its project stays within the guarantee with it."""
        run, project = tracked.run, tracked.job.id.project
        is_kept = run.reason is not None and run.reason.code == GUARDED
        counted = self.meter.counted(project) + tracked.total_milli
        return (run.placement is None or is_kept) and counted <= QUOTAS[project]


def life(jobs: list[Traced], guard_s: int) -> Workload:
    """Eight GPUs on a node."""
    traced = (
        TraceJob(project=project, submitted_ms=1000 * at, duration_ms=1000 * lasts, gpu_milli=1000 * gpus)
        for project, at, lasts, gpus in jobs
    )
    policy = SchedulingPolicy(min_runtime=MinRuntime.of_all(0), starvation_guard_ms=1000 * guard_s)
    trace = Trace(name="life", jobs=tuple(sorted(traced, key=lambda job: job.submitted_ms)))
    return workload(trace, Layout(nodes=1, gpus=8), QUOTAS, policy)


JOBS = st.tuples(st.sampled_from(list(QUOTAS)), st.integers(0, 120), st.integers(1, 300), st.integers(1, 4))


@given(st.lists(JOBS, min_size=6, max_size=24), st.sampled_from((10, 60)))
@settings(max_examples=60)
def test_no_job_starts_beyond_a_guarantee_before_what_is_owed(jobs: list[Traced], guard_s: int) -> None:
    Watched(life(jobs, guard_s)).run()
