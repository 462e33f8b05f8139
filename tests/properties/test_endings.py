"""A GPU is free once its pod has ended, and none is that a retry needs: under random ends, counted late by the Jobs."""

from __future__ import annotations

from dataclasses import replace

from draws import among
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import IMAGE, declared, job, pool, project

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.app.cycle import CycleContext, converge
from gpuctl.app.object_cache import ObjectCache
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, is_deleting, text
from gpuctl.model.decision import RunRecord
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.ids import JobId, RunKey
from gpuctl.model.state import RunPhase
from gpuctl.simulate.scenario import EPOCH_MS

STEP_MS = 1_000


@st.composite
def trees(draw: st.DrawFn) -> Declared:
    """More jobs than there are GPUs, some of them gangs, some with retries."""
    of = pool(nodes=(2, 2), sharing=draw(among(Sharing.DEVICE_PLUGIN, Sharing.DRA)))
    jobs = [
        job(
            f"a/j{number}",
            1000 * draw(among(1, 1, 2)),
            workers=draw(among(1, 1, 2)),
            container=replace(IMAGE, retries=draw(st.integers(0, 2))),
        )
        for number in range(draw(st.integers(2, 6)))
    ]
    return declared([project("a", 4000)], jobs, [of])


@given(trees(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=4, max_size=16))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_pod_waits_for_a_gpu_and_no_run_starts_after_its_end(tree: Declared, ends: list[tuple[int, int]]) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = EmbeddedCluster(clock, timings=EmbeddedTimings(count_ms=3 * STEP_MS, backoff_ms=2 * STEP_MS))
    cluster.provide(tree.cluster.pools)
    context = CycleContext(object_cache=ObjectCache(cluster), clock=clock, settle=cluster.settle)
    over: dict[RunKey, RunRecord] = {}
    for number, code in ends:
        cluster.finish(JobId.parse(f"a/j{number}"), code)
        for _ in range(2):
            reports = converge(tree, context)
            state = reports[-1].state
            waiting = [
                pod["metadata"]["name"]
                for pod in cluster.list(kinds.POD).items
                if text(pod, "status", "phase") == "Pending"
                if not text(pod, "spec", "nodeName") and not is_deleting(pod)
            ]
            assert not waiting, "what was let go has its GPU, and so has a retry"
            runs = {(run.job, run.digest): run for run in state.runs}
            for ref, own in state.own.items():
                run = runs[own.run]
                if run.ends_as is not None:
                    assert over.setdefault(own.run, run.record) == run.record, "neither paused nor started again"
                    assert run.placement is None
                    assert not flag(state.live[ref], "spec", "suspend"), "its Job is left to end as it is"
                assert own.run not in over or run.phase is RunPhase.STOPPING or run.phase.final
            clock.advance_to(clock.now_ms() + STEP_MS)
