"""Which runs lose workers to a project that is entitled to their GPUs, and which keep all of them."""

from __future__ import annotations

from dataclasses import replace

from elastic_worlds import at, decided, workers, world_of
from worlds import declared, job, pool, project

from gpuctl.model.decision import Decision, Placement, Preempt, Reclaim, Resize
from gpuctl.model.declared import Declared, SchedulingPolicy, Sharing
from gpuctl.model.job import Job, JobType

COUNTED = pool(nodes=(4, 4), sharing=Sharing.DEVICE_PLUGIN)


def tree_of(*jobs: Job, quota: int = 4000) -> Declared:
    """Project a is guaranteed what it asks for; b has borrowed all it holds."""
    projects = [project("a", quota), project("b", 0, weight=1)]
    return declared(projects, jobs, [COUNTED], policy=SchedulingPolicy(consolidation=False))


def two(node: int, first: int) -> Placement:
    """One worker with two GPUs of a node."""
    worker = at((node, first)).workers[0]
    return Placement(workers=(replace(worker, gpus=(first, first + 1)),))


def changed(found: dict[str, Decision]) -> dict[str, int]:
    """The jobs that are paused (0), or go on with this many workers."""
    return {name: workers(d) for name, d in found.items() if isinstance(d, Reclaim | Resize)}


def test_only_the_run_whose_workers_are_where_they_help_gives_some_up() -> None:
    far, near = job("b/f", workers=4, min_workers=3), job("b/g", workers=4, min_workers=2)
    tree = tree_of(far, near, job("a/w", 2000))
    world = world_of(tree, b_f=at((2, 0), (2, 1), (2, 2), (2, 3)), b_g=at((1, 0), (1, 1), (1, 2), (1, 3)))
    assert changed(decided(world, tree)) == {"b/g": 2}


def test_as_many_as_are_needed_go_and_no_more() -> None:
    run = job("b/f", workers=4, min_workers=1)
    for wanted, left in ((1000, 3), (2000, 2), (3000, 1)):
        tree = tree_of(run, job("b/x", workers=4), job("a/w", wanted))
        world = world_of(tree, b_f=at((1, 0), (1, 1), (1, 2), (1, 3)), b_x=at((2, 0), (2, 1), (2, 2), (2, 3)))
        assert changed(decided(world, tree)) == {"b/f": left}


def test_of_many_workers_as_many_go_to_sixteen_and_then_at_most_an_eighth_more() -> None:
    nodes = (8,) * 5
    run = job("b/f", workers=40, min_workers=1)
    places = at(*((node + 1, gpu) for node, gpus in enumerate(nodes) for gpu in range(gpus)))
    for wanted, left in ((16, 24), (18, 22), (19, 20), (27, 13), (28, 10)):
        projects = [project("a", 1000 * wanted), project("b", 0, weight=1)]
        counted = pool(nodes=nodes, sharing=Sharing.DEVICE_PLUGIN)
        policy = SchedulingPolicy(consolidation=False)
        tree = declared(projects, [run, job("a/w", 1000, workers=wanted)], [counted], policy=policy)
        assert changed(decided(world_of(tree, b_f=places), tree)) == {"b/f": left}


def test_where_surplus_is_not_enough_a_run_goes_besides_it_and_all_that_is_not_needed_stays() -> None:
    elastic = job("b/f", workers=2, min_workers=1)
    tree = tree_of(elastic, job("b/x", 2000), job("b/y", workers=4), job("a/w", 3000))
    world = world_of(tree, b_f=at((1, 0), (1, 1)), b_x=two(1, 2), b_y=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"b/f": 1, "b/x": 0}


def test_a_service_is_stopped_as_a_whole_as_it_is_not_known_which_replica_would_go() -> None:
    service = job("b/s", workers=4, min_workers=1, kind=JobType.INFERENCE, preemptible=True)
    tree = tree_of(service, job("b/x", workers=4, preemptible=False), job("a/w", 1000), quota=1000)
    world = world_of(tree, b_s=at((1, 0), (1, 1), (1, 2), (1, 3)), b_x=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"b/s": 0}


def test_under_a_limit_surplus_goes_for_a_job_that_ranks_above_and_a_run_only_besides() -> None:
    projects = [project("a", 4000, limit=4000)]
    elastic, small = job("a/f", workers=3, min_workers=2), job("a/x")
    for wanted, expected in ((1000, {"a/f": 2}), (2000, {"a/f": 2, "a/x": 0})):
        jobs = [elastic, small, job("a/w", wanted, priority=1)]
        tree = declared(projects, jobs, [COUNTED], policy=SchedulingPolicy(consolidation=False))
        world = world_of(tree, a_f=at((1, 0), (1, 1), (1, 2)), a_x=at((2, 0)))
        found = decided(world, tree)
        stopped = {name: workers(d) for name, d in found.items() if isinstance(d, Preempt | Resize)}
        assert stopped == expected


def test_under_a_limit_no_more_surplus_goes_than_that_asks_and_none_beside_a_run_that_is_enough() -> None:
    elastic = job("a/f", workers=3, min_workers=1, priority=1)
    cases = (
        (elastic, 1000, 4000, job("a/x", priority=1), at((2, 0)), {"a/f": 2}),
        # Otherwise the run would regain what it gave up from a/x.
        (elastic, 1000, 4000, job("a/x"), at((2, 0)), {"a/x": 0}),
        (replace(elastic, min_workers=2), 2000, 5000, job("a/x", 2000), two(2, 0), {"a/x": 0}),
    )
    for elastic, wanted, limit, other, there, expected in cases:
        jobs = [elastic, other, job("a/w", wanted, priority=2)]
        projects = [project("a", limit, limit=limit)]
        tree = declared(projects, jobs, [COUNTED], policy=SchedulingPolicy(consolidation=False))
        world = world_of(tree, a_f=at((1, 0), (1, 1), (1, 2)), a_x=there)
        found = decided(world, tree)
        stopped = {name: workers(d) for name, d in found.items() if isinstance(d, Preempt | Resize)}
        assert stopped == expected


def test_a_run_is_not_stopped_with_its_surplus_where_another_is_as_large_without_it() -> None:
    elastic, small = job("b/f", workers=3, min_workers=2), job("b/x", 2000)
    tree = tree_of(elastic, small, job("a/z", workers=3, preemptible=False), job("a/w", 2000), quota=5000)
    world = world_of(tree, b_f=at((1, 0), (1, 1), (2, 3)), b_x=two(1, 2), a_z=at((2, 0), (2, 1), (2, 2)))
    assert changed(decided(world, tree)) == {"b/x": 0}

    projects, policy = [project("a", 5000, limit=5000)], SchedulingPolicy(consolidation=False)
    jobs = [job("a/f", workers=3, min_workers=2), job("a/x", 2000), job("a/w", 2000, priority=1)]
    tree = declared(projects, jobs, [COUNTED], policy=policy)
    found = decided(world_of(tree, a_f=at((1, 0), (1, 1), (1, 2)), a_x=two(2, 0)), tree)
    assert {name: workers(d) for name, d in found.items() if isinstance(d, Preempt | Resize)} == {"a/x": 0}


def test_an_elastic_run_that_straddles_its_guarantee_is_one_victim_with_all_its_workers() -> None:
    """b may lose one GPU, or all of its last run. By name f comes before x, which is as large and not elastic."""
    elastic, fixed = job("b/f", workers=2, min_workers=1), job("a/z", workers=2, preemptible=False)
    projects = [project("a", 4000), project("b", 4000)]
    jobs = [elastic, job("b/x", 2000), job("b/y"), fixed, job("a/w", 2000)]
    tree = declared(projects, jobs, [COUNTED], policy=SchedulingPolicy(consolidation=False))
    world = world_of(tree, b_f=at((2, 0), (1, 0)), b_y=at((1, 1)), b_x=two(1, 2), a_z=at((2, 1), (2, 2)))
    assert changed(decided(world, tree)) == {"b/f": 0}


def test_surplus_that_takes_its_project_below_its_guarantee_goes_only_where_no_other_is_enough() -> None:
    wide = job("b/f", 2000, workers=2, min_workers=1)
    other = job("c/g", workers=4, min_workers=2, priority=1)
    projects = [project("a", 2000), project("b", 3000, weight=0), project("c", 1000, weight=1)]
    there = Placement(workers=two(1, 0).workers + two(1, 2).workers)
    tree = declared(projects, [wide, other, job("a/w", 2000)], [COUNTED], policy=SchedulingPolicy(consolidation=False))
    world = world_of(tree, b_f=there, c_g=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"c/g": 2}

    fixed = job("c/g", workers=4, preemptible=False)
    projects = [project("a", 1000), project("b", 3000), project("c", 4000)]
    tree = declared(projects, [wide, fixed, job("a/w")], [COUNTED], policy=SchedulingPolicy(consolidation=False))
    world = world_of(tree, b_f=there, c_g=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"b/f": 1}


def test_an_elastic_run_may_be_taken_whole_where_fewer_of_its_workers_are_not_enough() -> None:
    """b holds 3 and is guaranteed 2. Its run straddles that line, and only its first worker is on a's node."""
    elastic, fixed = job("b/f", workers=3, min_workers=1), job("c/x", workers=2, preemptible=False)
    projects = [project("a", 4000), project("b", 2000), project("c", 2000)]
    tree = declared(
        projects, [elastic, fixed, job("a/w", 4000)], [COUNTED], policy=SchedulingPolicy(consolidation=False)
    )
    world = world_of(tree, b_f=at((1, 0), (2, 0), (2, 1)), c_x=at((2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"b/f": 0}


def test_a_run_that_has_no_more_than_its_least_is_one_piece() -> None:
    projects = [project("a", 1000), project("b", 0, weight=1), project("c", 2000)]
    jobs = [
        job("b/f", workers=4, min_workers=2),
        job("b/x", workers=4, preemptible=False),
        job("c/y", 2000),
        job("a/w"),
    ]
    tree = declared(projects, jobs, [COUNTED], policy=SchedulingPolicy(consolidation=False))
    world = world_of(tree, b_f=at((1, 0), (1, 1)), c_y=two(1, 2), b_x=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert changed(decided(world, tree)) == {"b/f": 0}
