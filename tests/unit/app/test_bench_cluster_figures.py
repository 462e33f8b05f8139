"""Several rounds of a benchmark as one: medians of numbers, all single waits together."""

from __future__ import annotations

from gpuctl.app.bench.cluster_figures import (
    ClusterBench,
    Costs,
    Refills,
    Written,
    fullness,
    medians,
    percentile,
    refills_of,
)
from gpuctl.app.bench.cluster_log import Life, PodLife
from gpuctl.app.bench.cluster_tree import SMALL
from gpuctl.k8s.kinds import JOB
from gpuctl.model.ids import ObjectRef


def a_round(wall_ms: int, waits_ms: tuple[int, ...], **writes: Written) -> ClusterBench:
    costs = Costs(wall_ms=wall_ms, server_cpu_ms=10 * wall_ms, by_kind=writes)
    refills = Refills(waits_ms=waits_ms, released_ms=waits_ms, made_ms=(), bound_ms=(), costs=costs)
    return ClusterBench(scale=SMALL, bare={"refills": (costs,)}, refills=refills)


def test_rounds_are_told_as_their_medians() -> None:
    rounds = [
        a_round(30, (5, 9), Job=Written(count=4, taken_ms=40)),
        a_round(10, (1, 7), Job=Written(count=2, taken_ms=60), Event=Written(count=1, taken_ms=3)),
        a_round(20, (2, 3), Job=Written(count=6, taken_ms=50)),
    ]
    told = medians(rounds)
    assert told.scale == SMALL
    assert told.flow is None
    assert told.refills is not None
    assert told.refills.waits_ms == (1, 2, 3, 5, 7, 9)
    assert (told.refills.costs.wall_ms, told.refills.costs.server_cpu_ms) == (20, 200)
    job, event = Written(count=4, taken_ms=50), Written(count=1, taken_ms=3)
    assert told.refills.costs.by_kind == {"Job": job, "Event": event}
    assert [costs.wall_ms for costs in told.bare["refills"]] == [30, 10, 20]


def test_a_gpu_counts_once_while_the_job_that_left_it_has_not_told_its_end() -> None:
    lives = [Life(let_go_ns=0, ended_ns=60), Life(let_go_ns=50, ended_ns=90), Life(let_go_ns=100, ended_ns=140)]
    flow = fullness(lives, 1, 0, Costs(wall_ms=0, server_cpu_ms=0))
    assert flow.busy_milli == flow.busy_all_milli == 900


def test_a_refill_lasts_from_a_pods_end_to_the_next_pods_node() -> None:
    jobs = [ObjectRef(*JOB, "a", f"j{number}") for number in range(3)]
    ms = 1_000_000
    pods = [
        PodLife(job=jobs[0], made_ns=1 * ms, bound_ns=2 * ms, ended_ns=100 * ms),
        PodLife(job=jobs[1], made_ns=130 * ms, bound_ns=138 * ms, ended_ns=200 * ms),
        PodLife(job=jobs[2], made_ns=215 * ms, bound_ns=219 * ms, ended_ns=300 * ms),
    ]
    released_ms = (1, 120, 212)
    lives = {job: Life(let_go_ns=at * ms) for job, at in zip(jobs, released_ms, strict=True)}
    refills = refills_of(pods, lives, 1, Costs(wall_ms=0, server_cpu_ms=0))
    assert (refills.waits_ms, refills.released_ms) == ((19, 38), (12, 20))
    assert (refills.made_ms, refills.bound_ms) == ((3, 10), (4, 8))
    assert (percentile(refills.waits_ms, 50), percentile(refills.waits_ms, 95)) == (38, 38)
