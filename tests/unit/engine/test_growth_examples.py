"""Elastic runs that could scale up, and what prevents them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elastic_worlds import at, told, workers, world_of
from elastic_worlds import decided as all_decided
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import schedule
from gpuctl.model.decision import Decision, Displace, Keep, Pending, Reason, Resize
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import RunPhase


@pytest.fixture
def story() -> tuple[World, Declared]:
    """A run with five of eight workers on two nodes; on the second node two GPUs have come free."""
    pools = [pool(nodes=[4, 4], sharing=Sharing.DEVICE_PLUGIN)]
    projects = [project("a", 8000), project("b", 4000)]
    jobs = [job("b/1", 1000), job("b/2", 2000), job("a/e", workers=8, min_workers=2)]
    world = World(nodes=live_nodes(pools))
    for count in range(1, 4):
        world.settle(declared(projects, jobs[:count], pools))
    world.end("b/2")
    return world, declared(projects, jobs, pools)


def decided(world: World, tree: Declared) -> Decision:
    decisions = {d.job: d for d in schedule(tree, world.state(), world.now_ms).decisions}
    return decisions[JobId.parse("a/e")]


def test_it_grows_into_what_has_come_free(story: tuple[World, Declared]) -> None:
    found = decided(*story)
    assert isinstance(found, Resize)
    assert len(found.placement.workers) == 7


def test_one_of_a_project_that_cannot_be_acted_for_stays_as_it_is(story: tuple[World, Declared]) -> None:
    world, tree = story
    assert isinstance(decided(world, replace(tree, pinned=frozenset({ProjectName("a")}))), Keep)
    assert isinstance(decided(world, replace(tree, blocked={JobId.parse("a/e"): Reason(code="GPU7210")})), Keep)


def test_one_that_has_lost_a_node_is_stopped_and_does_not_grow_elsewhere(story: tuple[World, Declared]) -> None:
    world, tree = story
    world.nodes = (replace(world.nodes[0], ready=False), world.nodes[1])
    assert isinstance(decided(world, tree), Displace)


def test_workers_that_it_gave_up_are_demand_while_their_pods_leave() -> None:
    jobs = [job("a/e", workers=4, min_workers=1), job("b/one", 4000), job("b/two", 4000)]
    tree = declared([project("a", 0, weight=1), project("b", 0, weight=1)], jobs, [COUNTED])
    world = world_of(tree, a_e=at((1, 0), (1, 1)))
    key = next(key for key in world.runs if key[0] == JobId.parse("a/e"))
    gone = world.runs[key]
    for run in (gone, replace(gone, leaving=at((1, 2)))):
        world.runs[key] = run
        shares = {row.project: row.share_milli for row in schedule(tree, world.state(), world.now_ms).shares}
        assert shares == {"a": 4000, "b": 4000}


COUNTED = pool(nodes=[4, 4], sharing=Sharing.DEVICE_PLUGIN)
FIRST, SECOND = job("a/e", workers=4, min_workers=1), job("b/f", workers=4, min_workers=1)


def borrowing(*jobs: Job, **options: int) -> Declared:
    """Projects without a guarantee, so that runs scale up only on idle GPUs."""
    return declared([project("a", 0, weight=1, **options), project("b", 0, weight=1)], jobs, [COUNTED])


def test_of_two_on_one_node_the_one_further_below_its_share_grows_and_the_other_waits() -> None:
    tree = borrowing(FIRST, SECOND)
    world = world_of(tree, a_e=at((1, 0), (1, 1)), b_f=at((1, 2)))
    found = all_decided(world, tree)
    assert (workers(found["a/e"]), workers(found["b/f"])) == (2, 2)
    assert told(world, tree, "b/f")["grow"] == {"from": 1, "to": 2}
    assert told(world, tree, "a/e") == {"stay small": {"workers": 2, "most": 4, "asked": 4, "because": "neighbour"}}


def test_two_apart_grow_at_once() -> None:
    tree = borrowing(FIRST, SECOND)
    found = all_decided(world_of(tree, a_e=at((1, 0)), b_f=at((2, 0))), tree)
    assert (workers(found["a/e"]), workers(found["b/f"])) == (4, 4)


def test_two_of_one_project_that_regain_on_one_node_do_so_one_after_the_other() -> None:
    jobs = [FIRST, job("a/f", workers=2, min_workers=1)]
    tree = declared([project("a", 8000), project("b", 0)], jobs, [COUNTED])
    world = world_of(tree, a_e=at((1, 0)), a_f=at((1, 1)))
    sizes = {name: workers(d) for name, d in all_decided(world, tree).items()}
    assert sizes == {"a/e": 3, "a/f": 1}
    world.settle(tree)
    assert "stay small" in told(world, tree, "a/f")


@pytest.mark.parametrize(
    ("phase", "step"),
    [(RunPhase.STOPPING, ("regain", "coming", 1)), (RunPhase.STARTING, ("stay small", "because", "unrest"))],
)
def test_while_another_leaves_or_starts_on_its_node_it_stays_as_it_is(
    phase: RunPhase, step: tuple[str, str, str | int]
) -> None:
    tree = borrowing(FIRST, job("b/x"))
    world = world_of(tree, a_e=at((1, 0)), b_x=at((1, 1)))
    key = JobId.parse("b/x"), FIRST.digest
    world.runs[key] = replace(world.runs[key], phase=phase, unbound=(NodeName("dgx1-1"),))
    assert isinstance(all_decided(world, tree)["a/e"], Keep)
    rule, name, value = step
    assert told(world, tree, "a/e")[rule][name] == value


def test_a_start_whose_pods_all_have_nodes_hinders_no_run() -> None:
    tree = borrowing(FIRST, job("b/x"))
    world = world_of(tree, a_e=at((1, 0)), b_x=at((1, 1)))
    key = JobId.parse("b/x"), FIRST.digest
    world.runs[key] = replace(world.runs[key], phase=RunPhase.STARTING)
    assert workers(all_decided(world, tree)["a/e"]) == 3


def test_while_it_starts_itself_it_stays_as_it_is() -> None:
    tree = borrowing(FIRST)
    world = world_of(tree, a_e=at((1, 0)))
    ((key, run),) = world.runs.items()
    world.runs[key] = replace(run, phase=RunPhase.STARTING)
    assert isinstance(all_decided(world, tree)["a/e"], Keep)


def test_a_limit_keeps_it_from_more() -> None:
    tree = borrowing(FIRST, limit=2000)
    world = world_of(tree, a_e=at((1, 0)))
    assert workers(all_decided(world, tree)["a/e"]) == 2
    assert told(world, tree, "a/e")["stay small"]["because"] == "ceiling"


def test_one_with_all_its_workers_has_nothing_to_be_kept_from() -> None:
    tree = borrowing(FIRST)
    assert set(told(world_of(tree, a_e=at((1, 0))), tree, "a/e")) == {"grow"}


def test_a_run_without_gpus_grows_by_cpu() -> None:
    wide = job("a/e", 0, workers=4, min_workers=1, cpu_milli=30_000)
    tree = borrowing(wide)
    place = replace(at((1, 0)), workers=(replace(at((1, 0)).workers[0], gpus=()),))
    world = world_of(tree, a_e=place)
    assert workers(all_decided(world, tree)["a/e"]) == 2


def lose(world: World, name: str, *, ready: bool = False) -> None:
    """Close a node: it takes no more pods, and keeps none unless it is `ready`."""
    world.nodes = tuple(replace(n, ready=ready, usable=False) if n.name == name else n for n in world.nodes)


@pytest.mark.parametrize(
    ("kind", "places", "left"),
    [
        (JobType.INFERENCE, [(1, 0), (2, 0), (1, 1), (2, 1)], [(1, 0), (1, 1)]),
        (JobType.INFERENCE, [(2, 0), (2, 1), (1, 0)], []),
        (JobType.TRAINING, [(1, 0), (1, 1), (2, 0), (1, 2)], [(1, 0), (1, 1)]),
        (JobType.TRAINING, [(1, 0), (2, 0), (1, 1), (1, 2)], []),
    ],
    ids=["healthy replicas", "too few replicas", "below the lost index", "too low an index"],
)
def test_a_run_that_loses_a_node_goes_on_as_far_as_its_kind_allows(
    kind: JobType, places: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    tree = borrowing(job("a/e", workers=4, min_workers=2, kind=kind, preemptible=True), job("b/x", 1000))
    world = world_of(tree, a_e=at(*places))
    lose(world, "dgx1-2")
    found = all_decided(world, tree)["a/e"]
    if not left:
        assert isinstance(found, Displace)
        return
    assert isinstance(found, Resize)
    assert found.placement == at(*left)
    assert (found.reason.code, dict(found.reason.params)["node"]) == ("GPU5091", "dgx1-2")
    world.settle(tree)
    assert world.starts() == {"a/e": 1, "b/x": 1}


def test_what_a_run_that_goes_on_gives_up_is_free_once_it_has_left() -> None:
    """Worker 2 is healthy, and leaves because worker 1 is lost."""
    tree = borrowing(job("a/e", workers=3, min_workers=1), job("b/x", 4000))
    world = world_of(tree, a_e=at((1, 0), (2, 0), (1, 1)))
    lose(world, "dgx1-2")
    assert isinstance(all_decided(world, tree)["b/x"], Pending)
    tree = borrowing(job("a/e", workers=3, min_workers=1), job("b/x", 3000))
    world.settle(tree)
    assert world.starts() == {"a/e": 1, "b/x": 1}


def test_one_that_scales_up_to_a_node_that_closes_gives_up_what_is_not_there_yet() -> None:
    tree = borrowing(job("a/e", workers=3, min_workers=1))
    world = world_of(tree, a_e=at((1, 0), (2, 0), (2, 1)))
    ((key, run),) = world.runs.items()
    world.runs[key] = replace(run, phase=RunPhase.STARTING, unbound=(NodeName("dgx1-2"),))
    lose(world, "dgx1-2", ready=True)
    found = all_decided(world, tree)["a/e"]
    assert isinstance(found, Resize)
    assert found.placement == at((1, 0), (2, 0))


def test_a_worker_that_has_ended_loses_nothing_with_its_node() -> None:
    tree = borrowing(job("a/gang", workers=2))
    world = world_of(tree, a_gang=at((1, 0), (2, 0)))
    ((key, run),) = world.runs.items()
    world.runs[key] = replace(run, ended=frozenset({1}))
    lose(world, "dgx1-2")
    assert isinstance(all_decided(world, tree)["a/gang"], Keep)
