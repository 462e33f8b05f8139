"""The example of gpuctl/engine/README.md."""

from __future__ import annotations

from gpuctl.app.bench.engine_worlds import NOW_MS, job, node, run_of, world
from gpuctl.engine import schedule
from gpuctl.model.decision import Keep, Pending, Placement, Reclaim, WorkerPlacement
from gpuctl.model.job import Job
from gpuctl.model.state import Run

NODE = node(0, 4)


def started(declared: Job, gpus: tuple[int, ...], ago_ms: int) -> Run:
    """A run of the job on the node, started `ago_ms` before."""
    placement = Placement(workers=(WorkerPlacement(node=NODE.name, gpus=gpus),))
    return run_of(declared, placement, NOW_MS - ago_ms)


def test_three_jobs_on_four_gpus() -> None:
    a, b, c = job("vision", "a", 2000), job("vision", "b", 2000), job("speech", "c", 2000)
    runs = [started(a, (0, 1), 20_000), started(b, (2, 3), 10_000), run_of(c)]
    here = world([("speech", 2000), ("vision", 2000)], [NODE]).jobs([a, b, c]).runs(runs)
    decided = {decision.job.name: decision for decision in schedule(here.declared, here.state, NOW_MS).decisions}
    assert {name: (type(each), each.reason.code) for name, each in decided.items()} == {
        "a": (Keep, "GPU5001"),
        "b": (Reclaim, "GPU5030"),
        "c": (Pending, "GPU5018"),
    }
    reserved = decided["c"]
    assert isinstance(reserved, Pending)
    assert reserved.reserved is not None
    assert [worker.gpus for worker in reserved.reserved.workers] == [(2, 3)]
