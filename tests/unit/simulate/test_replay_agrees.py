"""A replay on values decides what the whole reconciler decides on the embedded cluster: which job starts, where and
when, and which is paused for which. This is what lets a replay leave Kubernetes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.app.play import Play, Sandbox
from gpuctl.model.decision import Admit, Move, Placement, Reclaim
from gpuctl.model.declared import SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.simulate.meter import Meter
from gpuctl.simulate.modes import ModeName, mode_of
from gpuctl.simulate.replay import PauseCost, Replay
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.simulate.trace import Trace, TraceJob
from gpuctl.simulate.workload import Layout, Workload, workload

STOP_MS = 2_000
A, B = ProjectName("a"), ProjectName("b")
Seen = set[tuple[int, str, JobId, object]]

GIVEN_BACK = [
    (A, 0, 900, 4), (A, 1, 700, 2), (A, 2, 800, 2), (B, 60, 300, 2), (B, 61, 400, 1), (A, 62, 50, 1), (B, 63, 200, 4),
    (A, 500, 100, 8), (B, 520, 100, 1),
]  # fmt: skip
"""One project takes all, the other takes its own back."""

MIXED = [
    (ProjectName("ab"[index * 7 % 2]), index * index * 3 % 400, 40 + index * 37 % 260, (1, 2, 1, 4, 1, 8)[index % 6])
    for index in range(40)
]
"""Many at once, of all sizes; the largest are gangs of two."""


@pytest.mark.parametrize("jobs", [GIVEN_BACK, MIXED], ids=["given back", "mixed"])
def test_a_replay_decides_what_the_reconciler_does(jobs: list[tuple[ProjectName, int, int, int]]) -> None:
    load = _load(jobs)
    replayed, reconciled = _replayed(load), _reconciled(load)
    assert replayed == reconciled
    assert any(what == "pause" for _, what, _, _ in replayed)
    assert sum(what == "start" for _, what, _, _ in replayed) >= len(jobs)


def _load(jobs: list[tuple[ProjectName, int, int, int]]) -> Workload:
    traced = (
        TraceJob(project=project, submitted_ms=EPOCH_MS + 1000 * at, duration_ms=1000 * duration, gpu_milli=1000 * gpus)
        for project, at, duration, gpus in jobs
    )
    trace = Trace(name="small", jobs=tuple(sorted(traced, key=lambda job: job.submitted_ms)))
    policy = SchedulingPolicy(starvation_guard_ms=10**9, stop_guard_percent=100)
    load = workload(trace, Layout(nodes=2, gpus=4), {A: 4000, B: 4000}, policy)
    cluster = load.declared.cluster
    pools = tuple(replace(pool, sharing=Sharing.DEVICE_PLUGIN) for pool in cluster.pools)
    return replace(load, declared=replace(load.declared, cluster=replace(cluster, pools=pools)))


def _replayed(load: Workload) -> Seen:
    meter = Meter(load.quotas, load.capacity_milli, (EPOCH_MS, EPOCH_MS + 10**9), STOP_MS)
    replay = Replay(load, mode_of(ModeName.FAIR, load), PauseCost(stop_ms=STOP_MS), meter, keep_events=True)
    seen: Seen = set()
    for event in replay.run().events:
        match event.decision:
            case Admit(job=job, placement=placement):
                seen.add((event.at_ms - EPOCH_MS, "start", job, _nodes(placement)))
            case Reclaim(job=job, beneficiary=beneficiary) | Move(job=job, beneficiary=beneficiary):
                seen.add((event.at_ms - EPOCH_MS, "pause", job, beneficiary))
            case other:
                raise AssertionError(f"there is no {other} in this trace")
    assert replay.unfinished == 0
    return seen


def _reconciled(load: Workload) -> Seen:
    clock = VirtualClock(EPOCH_MS)
    cluster = EmbeddedCluster(clock, timings=EmbeddedTimings(start_ms=0, termination_ms=STOP_MS))
    sandbox = Sandbox(cluster=cluster, machines=cluster, world=cluster, time=clock)
    play = Play(sandbox, load.declared, EPOCH_MS)
    for traced, job in load.jobs:
        cluster.run_for(job.id, traced.duration_ms)
    for at_ms in sorted({traced.submitted_ms for traced, _ in load.jobs}):
        play.pass_until(at_ms - 1, "")
        play.move_to(at_ms)
        came = tuple(sorted((job for traced, job in load.jobs if traced.submitted_ms <= at_ms), key=lambda j: j.id))
        play.declare(replace(load.declared, jobs=came))
    play.pass_until(None, "")
    assert play.stable
    return set(_seen(play))


def _seen(play: Play) -> Iterator[tuple[int, str, JobId, object]]:
    for transition in play.observer.transitions:
        before, after = transition.before, transition.after
        if (
            after is not None
            and after.value in {"Starting", "Running"}
            and before is not None
            and before.value != "Starting"
        ):
            yield transition.at_ms, "start", transition.job, tuple(sorted(transition.nodes))
        elif transition.evicted:
            yield transition.at_ms, "pause", transition.job, transition.paused_for


def _nodes(placement: Placement) -> tuple[str, ...]:
    return tuple(sorted(worker.node for worker in placement.workers))
