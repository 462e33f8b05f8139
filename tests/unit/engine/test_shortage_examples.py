"""The reasons of waiting jobs name what keeps these jobs from starting, and not what keeps others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from worlds import World, declared, department, job, live_nodes, pool, project

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Pending
from gpuctl.model.declared import Declared, MinRuntime, SchedulingPolicy
from gpuctl.model.ids import PoolName
from gpuctl.model.job import Job, JobType

X, Y = PoolName("x"), PoolName("y")


def waiting(tree: Declared, *before: Job) -> dict[str, str]:
    """The codes of the waiting jobs by name, once the cluster is at rest. `before`: the jobs that were there first."""
    world = World(nodes=live_nodes(tree.cluster.pools))
    if before:
        world.settle(replace(tree, jobs=before))
    world.settle(tree)
    return {d.job.name: d.reason.code for d in world.cycle(tree).decisions if isinstance(d, Pending)}


def after(tree: Declared, before: Iterable[Job], *late: Job) -> dict[str, str]:
    """The codes of the waiting jobs if `late` jobs came after the others."""
    jobs = tuple(sorted((*before, *late), key=lambda each: each.id))
    return waiting(replace(tree, jobs=jobs), *before)


def test_a_part_of_a_gpu_that_is_there_to_the_last_is_not_what_is_short() -> None:
    first = job("a/first", 500, cpu_milli=79_000)
    tree = declared([project("a", 1000)], [first], [pool(nodes=[1])])
    assert after(tree, [first], job("a/half", 500, cpu_milli=2000)) == {"half": "GPU5017"}
    assert after(tree, [first], job("a/more", 600, cpu_milli=2000)) != {"more": "GPU5017"}


def test_a_ceiling_in_one_domain_is_not_told_where_another_is_open() -> None:
    pools = [pool("x", nodes=[1]), pool("y", nodes=[2])]
    fill = [
        job("a/fixed", kind=JobType.INFERENCE, pools=(X,)), job("b/fixed", 2000, kind=JobType.INFERENCE, pools=(Y,)),
    ]  # fmt: skip
    tree = declared(
        [project("a", {"x": 1000, "y": 0}, limit=1000), project("b", {"x": 0, "y": 2000})], fill, pools, by_pool=True
    )
    both = job("a/both", pools=(X, Y))
    assert after(tree, fill, both) == {"both": "GPU5011"}
    assert after(tree, fill, job("a/one", pools=(X,))) == {"one": "GPU5012"}


def test_a_job_that_asks_for_no_more_than_the_share_is_not_told_that_it_does() -> None:
    young = SchedulingPolicy(min_runtime=MinRuntime.of_all(3_600_000))
    lent = [job("b/one"), job("b/two")]
    tree = declared(
        [project("a", weight=1), project("b", 1000, weight=0)], lent, [pool(nodes=[2])], policy=young
    )  # fmt: skip
    assert after(tree, lent, job("a/fair")) == {"fair": "GPU5010"}
    assert after(tree, lent, job("a/large", 2000)) == {"large": "GPU5011"}


def test_of_two_pools_the_one_that_lacks_cpu_only_is_told() -> None:
    pools = [pool("x", nodes=[2]), pool("y", nodes=[2, 2])]
    fill = [
        job("a/cpu", 0, cpu_milli=79_000, pools=(X,)), *(job(f"a/{n}", cpu_milli=50_000, pools=(Y,)) for n in range(2)),
    ]  # fmt: skip
    tree = declared([project("a", 6000)], fill, pools)
    assert after(tree, fill, job("a/two", 2000, cpu_milli=2000, pools=(Y,))) == {"two": "GPU5015"}
    assert after(tree, fill, job("a/two", 2000, cpu_milli=2000, pools=(X, Y))) == {"two": "GPU5017"}


def test_a_cut_quota_does_not_keep_a_notebook_without_a_gpu_from_starting() -> None:
    held = [job("a/held", 2000, kind=JobType.INTERACTIVE)]
    world = World(nodes=live_nodes([pool(nodes=[4])]))
    world.settle(declared([project("a", 2000)], held, [pool(nodes=[4])]))
    late = job("a/desk", 0, kind=JobType.INTERACTIVE, cpu_milli=1000)
    world.settle(declared([project("a", 1000)], [late, *held], [pool(nodes=[4])]))
    assert world.running() == {"a/held", "a/desk"}


def test_a_ceiling_that_others_let_go_of_is_not_told_any_more() -> None:
    """The ceiling was the department's; the project that it stopped has itself gained and lost nothing."""
    young = SchedulingPolicy(min_runtime=MinRuntime.of_all(3_600_000))
    projects = [
        project("a", department="r"), project("b", department="r"), project("c", 3000),
    ]  # fmt: skip
    fixed = [job("c/1", kind=JobType.INTERACTIVE), job("c/2", 2000, kind=JobType.INTERACTIVE)]
    jobs = [job("a/1"), job("b/1", 2000), *fixed]
    tree = declared(projects, jobs, [pool(nodes=[3])], departments=(department("r", 0, limit=2000),), policy=young)
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(replace(tree, jobs=(jobs[1], jobs[2])))
    world.settle(tree)
    cache = EngineCache()
    told = [schedule(tree, world.state(), world.now_ms, cache)]
    world.end("b/1")
    told.append(schedule(tree, world.state(), world.now_ms, cache))
    reasons = [next(d.reason.code for d in made.decisions if d.job.project == "a") for made in told]
    assert reasons == ["GPU5012", "GPU5011"]


def test_an_elastic_job_is_told_what_keeps_its_fewest_workers_from_starting() -> None:
    """One worker would be within the project's share, so the share is the reason only where three are needed."""
    young = SchedulingPolicy(min_runtime=MinRuntime.of_all(3_600_000))
    lent = [job("b/one"), job("b/two", 2000)]
    tree = declared(
        [project("a", weight=1), project("b", 2000, weight=0)], lent, [pool(nodes=[3])], policy=young
    )  # fmt: skip
    assert after(tree, lent, job("a/wide", workers=3, min_workers=1)) == {"wide": "GPU5010"}
    assert after(tree, lent, job("a/wide", workers=3, min_workers=3)) == {"wide": "GPU5011"}


def test_a_job_that_could_start_with_a_worker_in_a_kept_place_is_told_for_which_job() -> None:
    guard = SchedulingPolicy(starvation_guard_ms=1000, consolidation=False)
    held = [job("b/half", 2000, max_duration_ms=3_600_000), job("b/rest", max_duration_ms=3_600_000)]
    tree = declared([project("a"), project("b")], held, [pool(nodes=[4])], policy=guard)
    world = World(nodes=live_nodes(tree.cluster.pools))
    world.settle(tree)
    big, wide = job("a/big", 4000), job("a/wide", workers=3, min_workers=1)
    for jobs in ((big, *held), (big, *held), (big, wide, *held)):
        tree = replace(tree, jobs=jobs)
        world.settle(tree)
        world.now_ms += 10_000
    told = {d.job.name: d.reason.code for d in world.cycle(tree).decisions if isinstance(d, Pending)}
    assert told == {"big": "GPU5080", "wide": "GPU5081"}
