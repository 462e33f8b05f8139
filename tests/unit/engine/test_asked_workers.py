"""How many workers a service counts for: the fewest until it runs, then what its load asks for, within its bounds."""

from __future__ import annotations

import pytest
from worlds import declared, job, pool, project

from gpuctl.engine.jobs.effective import EffectiveJobs
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.job import MetricSource, Scaling
from gpuctl.model.state import ClusterState, Run, RunPhase

BY_LOAD = Scaling(metric="m", source=MetricSource.PODS, target_milli=1000, most=4)
SERVICE = job("a/web", workers=4, min_workers=2, scaling=BY_LOAD)
TREE = declared([project("a")], [SERVICE], [pool(nodes=(8,))])


@pytest.mark.parametrize(
    ("phase", "has", "asked", "counts"),
    [
        (None, 0, None, 2),
        (RunPhase.QUEUED, 3, None, 2),  # a place is reserved for it
        (RunPhase.STOPPING, 3, 4, 2),
        (RunPhase.STARTING, 3, None, 3),
        (RunPhase.RUNNING, 3, 4, 4),
        (RunPhase.RUNNING, 3, 9, 4),
        (RunPhase.RUNNING, 3, 1, 2),
        (RunPhase.RUNNING, 0, None, 2),
    ],
)
def test_how_many_workers_a_service_counts_for(
    phase: RunPhase | None, has: int, asked: int | None, counts: int
) -> None:
    workers = tuple(WorkerPlacement(node=NodeName("n1"), gpus=(gpu,)) for gpu in range(has))
    runs = () if phase is None else (
        Run(
            job=SERVICE.id, digest=SERVICE.digest, phase=phase, gpu_milli=1000, asked_workers=asked,
            placement=Placement(workers=workers) if has else None,
        ),
    )  # fmt: skip
    found, _ = EffectiveJobs().of(TREE, ClusterState(runs=runs), 0)
    assert [each.workers for each in found.jobs] == [counts]
