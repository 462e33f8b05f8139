"""Which quota was cut, found from the runs in it: that of a project, or of its department, and no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from elastic_worlds import at, decided, world_of
from worlds import World, declared, department, job, pool, project

from gpuctl.engine import reasons
from gpuctl.model.decision import Reclaim
from gpuctl.model.declared import Declared, Department, Project, QuotaShrink, SchedulingPolicy, Sharing
from gpuctl.model.state import RunPhase

DRAIN = SchedulingPolicy(quota_shrink=QuotaShrink.DRAIN, consolidation=False)


def tree_of(projects: Iterable[Project], departments: tuple[Department, ...] = ()) -> Declared:
    """The two jobs of a fill a node of two GPUs; b's job waits for one."""
    jobs = [job("a/1"), job("a/2"), job("b/w")]
    pools = [pool(nodes=(2,), sharing=Sharing.DEVICE_PLUGIN)]
    return declared(projects, jobs, pools, policy=DRAIN, departments=departments)


def paused(world: World, tree: Declared) -> list[str]:
    return [name for name, d in decided(world, tree).items() if isinstance(d, Reclaim)]


def full(tree: Declared) -> World:
    return world_of(tree, a_1=at((1, 0)), a_2=at((1, 1)))


def test_what_was_started_within_a_quota_that_was_cut_stays() -> None:
    tree = tree_of([project("a", 1000), project("b", 1000)])
    assert paused(full(tree), tree) == []


def test_where_all_fits_the_quota_nothing_was_cut_and_others_are_protected_by_it() -> None:
    tree = tree_of([project("a", 2000), project("b", 0)])
    assert paused(full(tree), tree) == []


@pytest.mark.parametrize("reason", [reasons.runs_in_share(job("a/1").id.project), None])
def test_what_was_started_beyond_the_quota_is_reclaimed(reason: object) -> None:
    tree = tree_of([project("a", 1000), project("b", 1000)])
    world = full(tree)
    (key,) = (key for key in world.runs if str(key[0]) == "a/2")
    world.runs[key] = replace(world.runs[key], reason=reason)  # type: ignore[arg-type]
    assert paused(world, tree) == ["a/1"], "one of them, and no quota was cut that would spare the first"


def test_what_leaves_anyway_is_no_sign_of_a_cut() -> None:
    jobs = [job("a/1"), job("a/2"), job("a/3"), job("b/w", 2000)]
    pools = [pool(nodes=(3,), sharing=Sharing.DEVICE_PLUGIN)]
    tree = declared([project("a", 1000), project("b", 2000)], jobs, pools, policy=DRAIN)
    world = world_of(tree, a_1=at((1, 0)), a_2=at((1, 1)), a_3=at((1, 2)))
    for key, run in world.runs.items():
        if str(key[0]) == "a/2":
            world.runs[key] = replace(run, phase=RunPhase.STOPPING)
        if str(key[0]) == "a/3":
            world.runs[key] = replace(run, reason=reasons.runs_in_share(key[0].project))
    assert paused(world, tree) == ["a/1"]


def test_a_departments_quota_that_was_cut_keeps_what_runs_in_its_projects() -> None:
    projects = [project("a", 2000, department="r"), project("b", 1000)]
    tree = tree_of(projects, (department("r", 1000),))
    assert paused(full(tree), tree) == []


def test_a_department_that_states_no_quota_had_none_that_could_be_cut() -> None:
    projects = [project("a", 1000, department="r"), project("b", 1000)]
    silent = replace(department("r", 0), allowances={})
    tree = tree_of(projects, (silent,))
    world = full(tree)
    for key, run in world.runs.items():
        if run.placement is not None:
            beyond = str(key[0]) == "a/2"
            project_name = key[0].project
            told = reasons.runs_in_share(project_name) if beyond else reasons.runs_in_quota(project_name)
            world.runs[key] = replace(run, reason=told)
    assert paused(world, tree) == ["a/1"], "a quota of nought that was not stated spares no run"


def test_a_quota_that_was_taken_off_a_pool_altogether_was_cut() -> None:
    tree = tree_of([project("a", {"dgx1": 2000}), project("b", {"dgx1": 0})])
    domains = declared([], [], tree.cluster.pools, by_pool=True).domains
    assert paused(full(tree), replace(tree, domains=domains)) == []
    moved = (project("a", {}), project("b", {"dgx1": 2000}))
    assert paused(full(tree), replace(tree, domains=domains, projects=moved)) == []
