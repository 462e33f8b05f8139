"""Over random lives in which many jobs wait, an engine with a memory, which asks again only for jobs for which
something has changed, and is not asked when nothing can come of it, decides what one without a memory does then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.engine import schedule
from gpuctl.model.decision import Reclaim
from gpuctl.model.declared import MinRuntime, SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.modes import Engine
from gpuctl.simulate.replay import PauseCost, Replay, ReplayResult, RunTransition
from gpuctl.simulate.trace import Trace, TraceJob
from gpuctl.simulate.workload import Layout, Workload, workload

A, B = ProjectName("a"), ProjectName("b")
PAUSE_COST = PauseCost(stop_ms=30_000)
NONE = MinRuntime.of_all(0)

Traced = tuple[ProjectName, int, int, int]
"""Whose, when it comes and how long it takes in seconds, and its GPUs."""


class Compared(Engine):
    """Each time it is asked, an engine without a memory is asked as well. `quiet` counts when it attempted no job."""

    quiet = 0

    def decide(self, now_ms: int) -> Sequence[RunTransition]:
        decisions = super().decide(now_ms)
        if self.last is not None and self._restless:
            cold = schedule(self._declared, replace(self._state, runs=tuple(self._runs)), now_ms)
            assert self.last.decisions == cold.decisions
            assert (self.last.pending_queues, self.last.shares) == (cold.pending_queues, cold.shares)
            self.quiet += not self._outlook.counters.attempts
        return decisions


Quotas = tuple[int, int]
"""Of both projects, in milli-GPU a node."""


def load(jobs: Sequence[Traced], nodes: int, guard_s: int, young: MinRuntime, quotas: Quotas) -> Workload:
    """Nodes of eight GPUs."""
    traced = (
        TraceJob(project=project, submitted_ms=1000 * at, duration_ms=1000 * lasts, gpu_milli=1000 * gpus)
        for project, at, lasts, gpus in jobs
    )
    policy = SchedulingPolicy(min_runtime=young, starvation_guard_ms=1000 * guard_s)
    trace = Trace(name="crowd", jobs=tuple(sorted(traced, key=lambda job: job.submitted_ms)))
    return workload(trace, Layout(nodes=nodes, gpus=8), {A: quotas[0] * nodes, B: quotas[1] * nodes}, policy)


def lived(
    jobs: Sequence[Traced], nodes: int, guard_s: int, young: MinRuntime = NONE, quotas: Quotas = (5000, 3000)
) -> tuple[Compared, ReplayResult]:
    """The engine after such a life, and what came of it."""
    work = load(jobs, nodes, guard_s, young, quotas)
    engine = Compared(work)
    meter = Meter(work.quotas, work.capacity_milli, (0, 10**9), PAUSE_COST.stop_ms)
    return engine, Replay(work, engine, PAUSE_COST, meter, keep_events=True).run()


JOBS = st.tuples(
    st.sampled_from((A, B)), st.integers(0, 90), st.integers(30, 400), st.sampled_from((1, 1, 2, 2, 4, 8, 16))
)


@given(
    st.lists(JOBS, min_size=10, max_size=40),
    st.integers(1, 2),
    st.sampled_from((10, 60, 600)),
    st.sampled_from((NONE, MinRuntime.of_all(60_000), MinRuntime(), MinRuntime(0, 20_000, 90_000))),
    st.sampled_from(((5000, 3000), (1000, 1000), (0, 2000))),
)
@settings(max_examples=20)
def test_a_job_that_is_not_asked_again_would_have_been_asked_in_vain(
    jobs: list[Traced], nodes: int, guard_s: int, young: MinRuntime, quotas: Quotas
) -> None:
    lived(jobs, nodes, guard_s, young, quotas)


def test_a_job_that_comes_to_stand_behind_another_moves_shares_and_so_all_are_asked() -> None:
    """B's first job would take two GPUs of A, and leave it below its share, until B asks for one GPU more."""
    jobs = [*((A, 0, 900, 2) for _ in range(4)), (B, 0, 900, 1), (B, 0, 900, 1), (B, 100, 900, 1), (B, 200, 900, 1)]
    _, result = lived(jobs, 1, 600, quotas=(1000, 1000))
    paused = [event.at_ms for event in result.events if isinstance(event.decision, Reclaim)]
    assert paused[0] == 200_000


def test_where_many_wait_most_that_come_are_not_asked() -> None:
    crowd = [((A, B)[index % 2], index, 500, (1, 2, 4)[index % 3]) for index in range(60)]
    assert lived(crowd, 1, 60)[0].quiet > 40
