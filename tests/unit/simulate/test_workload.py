from __future__ import annotations

import pytest

from gpuctl.model.declared import SchedulingPolicy
from gpuctl.model.ids import ProjectName
from gpuctl.simulate.trace import Trace, TraceJob
from gpuctl.simulate.workload import Layout, equal_quotas, quotas_by_history, read_quotas, workload

A, B, C = ProjectName("a"), ProjectName("b"), ProjectName("c")


def _job(gpu_milli: int, project: ProjectName = A) -> TraceJob:
    return TraceJob(project=project, submitted_ms=0, duration_ms=1000, gpu_milli=gpu_milli)


@pytest.mark.parametrize(("gpus", "workers"), [(1, 1), (8, 1), (9, 3), (11, 11), (12, 2), (16, 2), (24, 3), (128, 16)])
def test_more_gpus_than_a_node_has_are_a_gang_of_equal_workers(gpus: int, workers: int) -> None:
    load = workload(
        Trace(name="t", jobs=(_job(1000 * gpus),)), Layout(nodes=4, gpus=8), {A: 32_000}, SchedulingPolicy()
    )
    (_, job), *_ = load.jobs
    assert (job.workers, job.total_gpu_milli) == (workers, 1000 * gpus)


def test_a_fraction_stays_one() -> None:
    load = workload(Trace(name="t", jobs=(_job(460),)), Layout(nodes=1, gpus=8), {}, SchedulingPolicy())
    assert [(job.workers, job.gpu_milli) for _, job in load.jobs] == [(1, 460)]
    assert load.quotas == {A: 0}


def test_quotas_by_history_are_whole_gpus_and_all_there_are() -> None:
    trace = Trace(name="t", jobs=(_job(1000),), history={A: 500, B: 333, C: 167})
    assert quotas_by_history(trace, Layout(nodes=2, gpus=5)) == {A: 5000, B: 3000, C: 2000}
    assert quotas_by_history(Trace(name="t", jobs=()), Layout(nodes=2, gpus=5)) == {}


def test_equal_quotas_leave_nothing_over() -> None:
    assert equal_quotas([B, A, C], Layout(nodes=1, gpus=8)) == {A: 3000, B: 3000, C: 2000}


def test_quotas_from_a_file() -> None:
    assert read_quotas("q.csv", b"project,quota\na,4\nb,0\n") == ({A: 4000, B: 0}, ())
    _, told = read_quotas("q.csv", b"project,quota\na,4\na,5\nb,-1\n")
    assert [diagnostic.span.line for diagnostic in told] == [3, 4]


@pytest.mark.parametrize("text", ["64", "64x", "0x8", "64x0", "64x8x2", "-1x8", "", "999999x8"])
def test_what_is_no_layout(text: str) -> None:
    assert Layout.parse(text) is None
