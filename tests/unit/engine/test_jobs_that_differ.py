"""Jobs that all differ share no answers: their cost in memory and searches is bounded, at no loss to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_consolidation_examples import running
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.capacity import fit, fragmentation, free
from gpuctl.engine.capacity.fit import Request, UnschedulableRequests
from gpuctl.engine.capacity.fragmentation import usual
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs import static_fit
from gpuctl.engine.victims import search
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ProjectName
from gpuctl.model.job import Job


def differing(count: int, owner: str = "a") -> list[Job]:
    """Each job asks for a bit more CPU and a bit less memory than the one before it; the fractions of a GPU repeat."""
    return [
        replace(
            job(f"{owner}/{index:03}", 100 * (1 + index % 7)), cpu_milli=100 * index, mem_bytes=(count - index) * 2**28
        )
        for index in range(count)
    ]


def cluster(jobs: list[Job], nodes: int = 6) -> tuple[World, Declared]:
    pools = [pool(nodes=[4] * nodes)]
    return World(nodes=live_nodes(pools)), declared([project("a", 4000 * nodes), project("b", 1000)], jobs, pools)


def test_what_is_forgotten_is_asked_again_and_decides_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def decisions() -> list[object]:
        world, tree = cluster(differing(80))
        cache = EngineCache()
        made = [schedule(tree, world.state(), world.now_ms, cache).decisions]
        world.nodes = world.nodes[:-1]
        return [*made, schedule(tree, world.state(), world.now_ms, cache).decisions]

    kept = decisions()
    monkeypatch.setattr(free, "MOST_RANKED", 0)
    monkeypatch.setattr(fit, "MOST_FAILED", 1)
    monkeypatch.setattr(fragmentation, "MAX_STATES", 1)
    monkeypatch.setattr(static_fit, "MOST_ALIKE", 1)
    assert decisions() == kept


def test_a_node_lost_after_answers_were_dropped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`a/large` fitted the node that is lost; of its dropped answer only the job's options are left."""
    monkeypatch.setattr(static_fit, "MOST_ALIKE", 1)
    pools = [pool(nodes=[2, 4])]
    jobs = [job("a/large", 4000), job("a/small", 1000), job("b/runs", 1000)]
    world, tree = World(nodes=live_nodes(pools)), declared([project("a", 9000), project("b", 1000)], jobs, pools)
    running(world, jobs, {"b/runs": (("dgx1-2", (0,)),)})
    cache = EngineCache()
    schedule(tree, world.state(), world.now_ms, cache)
    world.nodes = world.nodes[:1]
    state = world.state()
    assert schedule(tree, state, world.now_ms, cache).decisions == schedule(tree, state, world.now_ms).decisions


def test_rankings_take_no_more_memory_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free, "MOST_RANKED", 20)
    world, tree = cluster(differing(80))
    cache = EngineCache()
    schedule(tree, world.state(), world.now_ms, cache)
    assert cache._carried is not None
    rankings = cache._carried.snapshot.idle._rankings
    assert len(rankings) * len(world.nodes) <= 20, "3 of 6 nodes each"


def test_so_many_failed_requests_are_known_and_the_latest_of_them() -> None:
    failed = UnschedulableRequests()
    requests = [Request(1000, cpu, 2 * fit.MOST_FAILED - cpu, 1) for cpu in range(2 * fit.MOST_FAILED)]
    for request in requests:
        failed.add(request)
    assert [failed.cover(request) for request in requests] == [False] * fit.MOST_FAILED + [True] * fit.MOST_FAILED


def test_a_mix_has_the_most_frequent_of_many_requests() -> None:
    many = tuple(((1 + size, 1000), 1 + size) for size in range(999))
    assert usual(many) == many[: -fragmentation.MAX_WANTS - 1 : -1]


def test_sets_that_are_tried_count_against_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs ask for more memory than the pausable runs leave, so many sets are tried without success for each job.
    Once the bound is met, no more jobs are attempted for which runs would have to make way."""
    lent = [replace(job(f"a/{index:03}", 1000), mem_bytes=120 * 2**30) for index in range(24)]
    asking = [
        replace(job(f"b/{index}", 2000, priority=index), mem_bytes=(500 - index) * 2**30, cpu_milli=1000 + index)
        for index in range(10)
    ]
    pools = [pool(nodes=[4] * 6)]
    tree = declared([project("a", 20_000), project("b", 4000)], [*lent, *asking], pools)

    def work() -> tuple[int, Counters]:
        world, cache = World(nodes=live_nodes(pools)), EngineCache()
        running(world, lent, {f"a/{i:03}": ((f"dgx1-{i // 4 + 1}", (i % 4,)),) for i in range(24)})
        world.cycle(tree)
        schedule(tree, world.state(), world.now_ms, cache)
        assert cache._carried is not None
        return cache._carried.snapshot.spent[ProjectName("b")], cache.counters

    spent, counters = work()
    assert spent > search.MAX_STEPS > counters.considered, "sets are counted, and not only the 24 runs"
    monkeypatch.setattr(search, "MAX_SPENT", 10)
    assert work()[1].attempts < counters.attempts
