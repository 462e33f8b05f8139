"""The engine's effort, in counts that no machine changes: what `gpuctl bench engine` measures in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.app.bench.engine import (
    WORKLOADS,
    Figure,
    bench_engine,
    consolidated,
    cycle_of,
    lent_out,
    reclaimed,
    scattered,
)
from gpuctl.app.bench.engine_worlds import NOW_MS, World, crowded, differing, gangs, job, node, run_of, uneven, world
from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.cycle import decide
from gpuctl.engine.victims import consolidation
from gpuctl.explain import at_rest
from gpuctl.model.decision import Displace, Move, Reclaim


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    """A small cluster at rest, measured as the large ones are."""
    full = crowded((8,) * 50, 500, 10)
    return {figure.what: figure for figure in cycle_of("cycle", full, 1, None, None)}


def test_a_cold_call_reads_every_job_once(figures: dict[str, Figure]) -> None:
    assert figures["cold"].counts["read"] == 500


def test_an_unchanged_call_reads_nothing_again(figures: dict[str, Figure]) -> None:
    assert figures["unchanged"].counts["read"] == 0
    assert figures["unchanged"].counts["started"] == 0


@pytest.mark.parametrize("event", ["a run ended", "a job more"])
def test_an_event_reads_only_what_it_changes(figures: dict[str, Figure], event: str) -> None:
    assert 1 <= figures[event].counts["read"] <= 4


@pytest.fixture(scope="module")
def waiters() -> dict[str, Figure]:
    """1,400 jobs that all differ wait for a full cluster."""
    return {figure.what: figure for figure in cycle_of("waiters", differing((8,) * 20, 1500, 10), 1, None, None)}


def test_a_waiting_job_is_not_looked_at_while_nothing_changes(waiters: dict[str, Figure]) -> None:
    counts = waiters["unchanged"].counts
    assert (counts["attempts"], counts["checks"], counts["read"]) == (0, 0, 0)
    assert counts["placings"] <= 5


@pytest.mark.parametrize("event", ["a run ended", "a job more", "a node lost"])
def test_of_a_thousand_that_differ_few_are_attempted_after_an_event(waiters: dict[str, Figure], event: str) -> None:
    counts = waiters[event].counts
    assert counts["attempts"] <= 20
    assert counts["placings"] <= 30


def test_of_hundreds_of_gangs_that_differ_few_are_attempted() -> None:
    full, cache = gangs((8,) * 20, 600, 10), EngineCache()
    decide(full.declared, full.state, NOW_MS, cache)
    assert cache.counters.attempts <= 100


def test_gangs_that_differ_cost_a_bounded_number_of_placings_where_runs_may_be_moved() -> None:
    """Each search for moves tries thousands of sets of gangs to be moved: all searches of a round share a bound."""
    full, cache = gangs((8,) * 40, 120, 20, consolidation=True), EngineCache()
    decide(full.declared, full.state, NOW_MS, cache)
    assert cache.counters.attempts <= 60
    assert cache.counters.placings <= 2 * consolidation.MAX_PLACINGS


def test_nothing_is_searched_for_moves_where_even_all_pauses_would_free_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full cluster at rest: a moved run takes as many GPUs as it leaves, so no move makes room."""
    full = gangs((8,) * 20, 60, 10, consolidation=True)
    there = at_rest(full.declared, full.state, NOW_MS).state
    cache = EngineCache()
    schedule(full.declared, there, NOW_MS, cache)
    monkeypatch.setattr(consolidation, "MAX_PLACINGS", 0)
    without = EngineCache()
    schedule(full.declared, there, NOW_MS, without)
    assert cache.counters.placings == without.counters.placings
    assert not cache.counters.cut_off


def test_jobs_of_a_kind_are_asked_once() -> None:
    assert asked(300) == asked(3)


def asked(count: int) -> int:
    """Turns that it takes when so many jobs of one kind wait for a full node."""
    full = lent_out(2)
    jobs = [job("lender", f"more-{index:04}", 2000) for index in range(count)]
    crowd: World = full.jobs([*full.declared.jobs, *jobs]).runs([*full.state.runs, *map(run_of, jobs)])
    cache = EngineCache()
    schedule(crowd.declared, crowd.state, NOW_MS, cache)
    return cache.counters.attempts


def test_a_lost_node_costs_attempts_in_proportion_to_what_it_changes() -> None:
    full = crowded((8,) * 200, 2000, 50)
    first, *nodes = full.state.nodes
    lost, cache = full.nodes((replace(first, ready=False, usable=False), *nodes)), EngineCache()
    schedule(full.declared, full.state, NOW_MS, cache)
    decided = schedule(lost.declared, lost.state, NOW_MS, cache).decisions
    touched = sum(isinstance(each, Displace | Reclaim) for each in decided)
    assert touched > 10
    assert cache.counters.attempts <= 2 * touched


@pytest.mark.parametrize("nodes", [10, 100])
def test_reclaim_pauses_exactly_half_and_searches_only_nodes_it_takes(nodes: int) -> None:
    figure = reclaimed(nodes, 1)
    assert figure.counts["victims"] == 4 * nodes
    assert figure.counts["searches"] <= nodes // 2


def test_few_nodes_are_searched_for_each_job_whose_project_comes_to_its_share() -> None:
    """The bound of a node is what some of its runs add up to, so that a node is searched where that can be best."""
    begun, cache = uneven((8,) * 100, 1000, 10), EngineCache()
    decided = decide(begun.declared, begun.state, NOW_MS, cache).decisions
    assert sum(isinstance(each, Reclaim) for each in decided) > 20
    assert cache.counters.searches <= 5 * cache.counters.attempts


def test_consolidation_moves_the_fewest_jobs_and_those_that_lose_least() -> None:
    assert consolidated(10, 1).counts["moved"] == 7
    full = scattered(10)
    moved = {str(d.job) for d in schedule(full.declared, full.state, NOW_MS).decisions if isinstance(d, Move)}
    assert moved == {f"team/job-{index:06}" for index in range(7)}, "those that have run for the shortest time"


def test_fair_shares_are_a_workload_of_their_own() -> None:
    assert [figure.what for figure in bench_engine(["fairshare"], 1)] == ["1000 projects"]
    with pytest.raises(KeyError):
        list(bench_engine(["nothing"], 1))
    assert {"cycle", "fill", "large", "waiters", "reclaim", "unschedulable", "consolidate", "fairshare"} <= set(
        WORKLOADS
    )


def test_a_gang_that_cannot_fit_costs_a_few_placings() -> None:
    full = crowded((8,) * 20, 250, 5)
    gang = job("team-0000", "gang", 8000, 10)
    after = full.jobs([*full.declared.jobs, gang]).runs([*full.state.runs, run_of(gang)])
    cache = EngineCache()
    schedule(full.declared, full.state, NOW_MS, cache)
    decided = schedule(after.declared, after.state, NOW_MS, cache)
    assert cache.counters.read == 1
    assert cache.counters.placings <= 100
    assert next(d.reason.code for d in decided.decisions if d.job == gang.id) in {"GPU5011", "GPU5010", "GPU5016"}
    assert decided.decisions == schedule(after.declared, after.state, NOW_MS).decisions


def test_worlds_are_the_same_every_time() -> None:
    assert crowded((8,) * 4, 40, 4) == crowded((8,) * 4, 40, 4)
    assert world([("a", 0)], [node(1)]).state.nodes[0].gpus == 8
