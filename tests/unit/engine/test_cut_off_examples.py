"""If the search for victims meets its bound, the job is told so, and the failure is not remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_consolidation_examples import Places, running
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.diag.wording import reason_text
from gpuctl.engine import EngineCache, lookahead, schedule
from gpuctl.engine.victims import consolidation, search
from gpuctl.model.decision import Move, Pending, Preempt, Reason, Reclaim
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.units import GpuMilli

SENTENCE = (
    "waits for 4 GPUs in dgx1: no place was found, but the search for jobs that could make way was cut off at its "
    "bound, so there may be some"
)


def scattered(count: int, wanted: GpuMilli = 2000, workers: int = 2) -> tuple[World, Declared]:
    """Nodes of four GPUs, three used on each by a run that has no place elsewhere; `b/gang` is within its quota."""
    pools = [pool(nodes=[4] * count)]
    jobs = [*(job(f"a/{i:03}", 3000) for i in range(count)), job("b/gang", wanted, workers=workers)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 3000 * count), project("b", wanted * workers)], jobs, pools)
    places: Places = {f"a/{i:03}": ((f"dgx1-{i + 1}", (0, 1, 2)),) for i in range(count)}
    running(world, jobs, places)
    return world, tree


def reasons_in(world: World, tree: Declared, cache: EngineCache | None = None) -> dict[str, Reason]:
    world.cycle(tree)
    made = schedule(tree, world.state(), world.now_ms, cache)
    return {str(d.job): d.reason for d in made.decisions if isinstance(d, Pending)}


def test_with_more_candidates_than_are_tried_the_reason_says_so() -> None:
    world, tree = scattered(search.MAX_CANDIDATES + 1)
    reason = reasons_in(world, tree)["b/gang"]
    assert reason.code == "GPU5024"
    assert reason_text(reason) == SENTENCE


def test_the_page_of_rules_has_the_numbers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text()
    assert f"{search.MAX_CANDIDATES} candidates, {search.MAX_STEPS:,} sets" in page
    assert f"{search.MAX_STEPS:,} sets a node" in page
    assert f"{consolidation.MAX_STEPS} sets |" in page
    assert f"{consolidation.MAX_PLACINGS_BESIDE} placements for each" in page
    assert f"{consolidation.MAX_PLACINGS:,} placements |" in page
    assert f"| {search.MAX_SPENT:,} runs and sets" in page
    assert f"{lookahead.MAX_CONSIDERED:,} runs listed" in page
    assert f"{lookahead.MAX_TRIED:,} placements tried beside moved runs" in page


def test_more_runs_are_moved_for_a_job_than_places_are_tried_again() -> None:
    """Half of each node is free, so half of the nodes are emptied for the gang."""
    count = consolidation.MAX_PLACINGS_BESIDE // 2
    pools = [pool(nodes=[8] * count)]
    jobs = [job(f"a/{node:02}-{index}") for node in range(count) for index in range(4)]
    jobs += [job("b/gang", 8000, workers=count // 2)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 4000 * count), project("b", 4000 * count)], jobs, pools)
    running(world, jobs, {f"a/{node:02}-{i}": ((f"dgx1-{node + 1}", (i,)),) for node in range(count) for i in range(4)})
    world.cycle(tree)
    made = schedule(tree, world.state(), world.now_ms)
    assert sum(isinstance(decision, Move) for decision in made.decisions) == 2 * count


def test_with_as_many_as_are_tried_nothing_is_known_to_make_way() -> None:
    world, tree = scattered(6)
    assert reasons_in(world, tree)["b/gang"].code == "GPU5016"


def test_where_all_candidates_together_are_too_few_the_search_counts_as_complete() -> None:
    world, tree = scattered(search.MAX_CANDIDATES + 1, wanted=4000, workers=search.MAX_CANDIDATES + 1)
    assert reasons_in(world, tree)["b/gang"].code != "GPU5024"


def test_with_more_candidates_than_are_tried_a_full_project_still_has_its_own_runs_paused_for_a_job() -> None:
    """One run leaves the second GPU that the job needs; pausing another, on any node, keeps the project's limit."""
    count = search.MAX_CANDIDATES + 1
    pools = [pool(nodes=[2] * count)]
    jobs = [*(job(f"a/{i:03}") for i in range(count)), job("a/high", 2000, priority=1)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 1000 * count, limit=1000 * count)], jobs, pools)
    running(world, jobs, {f"a/{i:03}": ((f"dgx1-{i + 1}", (0,)),) for i in range(count)})
    world.cycle(tree)
    made = schedule(tree, world.state(), world.now_ms)
    paused = [each for each in made.decisions if isinstance(each, Preempt) and str(each.beneficiary) == "a/high"]
    assert len(paused) == 2


def test_the_reason_stays_while_nothing_changes_and_goes_when_the_bound_is_no_longer_met() -> None:
    world, tree = scattered(search.MAX_CANDIDATES + 1)
    cache = EngineCache()
    assert [reasons_in(world, tree, cache)["b/gang"].code for _ in range(3)] == ["GPU5024"] * 3
    assert not cache.counters.searches
    fixed = replace(tree, jobs=tuple(replace(j, preemptible=str(j.id) == "b/gang") for j in tree.jobs))
    assert reasons_in(world, fixed, cache)["b/gang"].code == "GPU5016"


@pytest.mark.parametrize("count", [4, 6])
def test_a_search_that_was_cut_off_is_not_remembered_as_failed(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The second job asks for no less than the first: if that failure were remembered, it would not be tried."""
    world, tree = scattered(count)
    both = replace(tree, jobs=(*tree.jobs, job("b/more", 2000, workers=2, cpu_milli=9_000)))
    assert {reasons_in(world, both)[name].code for name in ("b/gang", "b/more")} == {"GPU5016"}
    monkeypatch.setattr(search, "MAX_STEPS", 1)
    assert {reasons_in(world, both)[name].code for name in ("b/gang", "b/more")} == {"GPU5024"}


def test_moves_that_were_cut_off_are_not_remembered_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one place for two runs of 2 GPUs. A second job that asks for no less is tried only after a cut-off."""
    pools = [pool(nodes=[4] * 23)]
    jobs = [*(job(f"a/{i:02}", 2000) for i in range(41)), job("a/x", 3000), job("a/y", 3000)]
    wanted = [job("b/one", 4000), job("b/more", 4000, cpu_milli=9_000)]
    world = World(nodes=live_nodes(pools))
    tree = declared([project("a", 88_000), project("b", 4000)], [*jobs, *wanted], pools)
    places = {f"a/{i:02}": ((f"dgx1-{i // 2 + 1}", (0, 1) if i % 2 else (2, 3)),) for i in range(41)}
    running(world, jobs, places | {"a/x": (("dgx1-22", (0, 1, 2)),), "a/y": (("dgx1-23", (0, 1, 2)),)})
    cache = EngineCache()
    reasons_in(world, tree, cache)
    remembered = cache.counters.searches
    monkeypatch.setattr(consolidation, "MAX_STEPS", 0)
    cache = EngineCache()
    assert {reasons_in(world, tree, cache)[name].code for name in ("b/one", "b/more")} == {"GPU5024"}
    assert cache.counters.searches > remembered


def test_what_is_listed_for_one_projects_jobs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elastic jobs of many workers and sizes: each number of workers is another search, also in each cycle ahead."""
    pools = [pool(nodes=[8] * 10, sharing=Sharing.DRA)]
    projects = [project("a", 40_000), project("b", 40_000)]
    sizes = (100, 300, 500, 700, 1000, 2000)
    elastic = [
        replace(job(f"a/e{index}", milli, workers=60 + index), min_workers=1 + index, priority=index)
        for index, milli in enumerate(sizes)
    ]
    singles = [job(f"b/{index:02}", 1000) for index in range(80)]
    tree = declared(projects, [*elastic, *singles], pools)

    world, cache, most = World(nodes=live_nodes(pools)), EngineCache(), 500
    running(world, singles, {f"b/{index:02}": ((f"dgx1-{index // 8 + 1}", (index % 8,)),) for index in range(80)})
    monkeypatch.setattr(search, "MAX_SPENT", most)
    monkeypatch.setattr(lookahead, "MAX_CONSIDERED", most)
    reasons_in(world, tree, cache)
    assert most < cache.counters.considered < 4 * most, "without the bounds it is 77,579"


def test_what_is_tried_in_cycles_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No moves make room for the gang, which is tried again in each cycle ahead after a loan is paused."""
    world, tree = scattered(12)
    pools = [pool(nodes=[4] * 13)]
    more = [job("c/loan", 2000), job("c/other", 2000), job("d/own", 2000)]
    tree = declared([*tree.projects, project("c", 0), project("d", 2000)], [*tree.jobs, *more], pools)
    world.nodes = live_nodes(pools)
    running(world, more[:2], {"c/loan": (("dgx1-13", (0, 1)),), "c/other": (("dgx1-13", (2, 3)),)})
    world.cycle(tree)
    monkeypatch.setattr(consolidation, "MAX_PLACINGS", 200)
    monkeypatch.setattr(lookahead, "MAX_TRIED", 0)
    cache = EngineCache()
    made = schedule(tree, world.state(), world.now_ms, cache)
    assert any(isinstance(each, Reclaim) for each in made.decisions)
    assert 200 <= cache.counters.tried < 300, "without the bound it is 651"
