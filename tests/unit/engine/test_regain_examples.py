"""Which workers an elastic run may regain, where, and what makes way for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from elastic_worlds import at, decided, told, workers, world_of
from worlds import World, declared, department, job, pool, project

from gpuctl.model.decision import Admit, Keep, Pending, Preempt, Reclaim, Resize
from gpuctl.model.declared import Declared, Project, SchedulingPolicy, Sharing
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import RunPhase

COUNTED = pool(nodes=(4, 4), sharing=Sharing.DEVICE_PLUGIN)
ELASTIC = job("a/e", workers=4, min_workers=1)


def tree_of(projects: Iterable[Project], *jobs: Job, **options: object) -> Declared:
    options.setdefault("policy", SchedulingPolicy(consolidation=False))
    return declared(projects, jobs, [COUNTED], **options)


def owed(least: int = 4000) -> list[Project]:
    return [project("a", least), project("b", 8000 - least)]


def test_all_that_its_project_is_guaranteed_is_taken_from_projects_with_more() -> None:
    gang = job("b/4", workers=4)
    tree = tree_of(owed(), ELASTIC, job("b/1"), job("b/2"), job("b/3"), gang)
    elsewhere = at((2, 0), (2, 1), (2, 2), (2, 3))
    world = world_of(tree, a_e=at((1, 0)), b_1=at((1, 1)), b_2=at((1, 2)), b_3=at((1, 3)), b_4=elsewhere)
    found = decided(world, tree)
    assert [name for name, d in found.items() if isinstance(d, Reclaim)] == ["b/1", "b/2", "b/3"]
    assert told(world, tree, "a/e")["regain"] == {"free": 0, "coming": 3}


def test_no_more_is_taken_than_others_can_give() -> None:
    tree = tree_of(owed(), ELASTIC, job("b/1"), job("b/2", preemptible=False), job("b/3"), job("b/4"), job("b/5"))
    world = world_of(
        tree, a_e=at((1, 0)), b_1=at((1, 1)), b_2=at((1, 2)), b_3=at((1, 3)), b_4=at((2, 0)), b_5=at((2, 1))
    )
    found = decided(world, tree)
    assert [name for name, d in found.items() if isinstance(d, Reclaim)] == ["b/1"]
    assert told(world, tree, "a/e")["regain"] == {"free": 0, "coming": 1}


def test_nothing_makes_way_for_a_run_whose_pods_are_not_there_yet() -> None:
    tree = tree_of(owed(), ELASTIC, job("b/1"), job("b/2"), job("b/3"), job("b/4"), job("b/5"))
    world = world_of(
        tree, a_e=at((1, 0)), b_1=at((1, 1)), b_2=at((1, 2)), b_3=at((1, 3)), b_4=at((2, 0)), b_5=at((2, 1))
    )
    key = JobId.parse("a/e"), ELASTIC.digest
    world.runs[key] = replace(world.runs[key], phase=RunPhase.STARTING)
    assert not any(isinstance(d, Reclaim) for d in decided(world, tree).values())


@pytest.mark.parametrize(("priority", "size"), [(-1, 4), (0, 1), (1, 1)])
def test_the_jobs_that_wait_in_its_project_come_first_unless_their_priority_is_lower(priority: int, size: int) -> None:
    tree = tree_of(owed(), ELASTIC, job("a/w", 3000, priority=priority))
    found = decided(world_of(tree, a_e=at((1, 0))), tree)
    assert isinstance(found["a/w"], Admit)
    assert workers(found["a/e"]) == size


def test_a_job_that_waits_in_another_project_does_not_matter_however_high_its_priority() -> None:
    tree = tree_of(owed(), ELASTIC, job("b/w", 2000, priority=9))
    assert told(world_of(tree, a_e=at((1, 0))), tree, "a/e")["grow"] == {"from": 1, "to": 4}


def test_a_departments_limit_bounds_what_is_owed() -> None:
    projects = [project("a", 4000, department="r"), project("b", 4000)]
    tree = tree_of(projects, ELASTIC, departments=(department("r", 4000, limit=3000),))
    assert told(world_of(tree, a_e=at((1, 0))), tree, "a/e")["grow"] == {"from": 1, "to": 3}
    tree = tree_of(projects, ELASTIC, departments=(department("r", 4000, limit=1000),))
    assert "regain" not in told(world_of(tree, a_e=at((1, 0))), tree, "a/e")


def test_two_runs_of_a_project_share_what_it_is_owed() -> None:
    second = job("a/f", workers=4, min_workers=1)
    tree = tree_of([project("a", 5000), project("b", 3000)], ELASTIC, second)
    world = world_of(tree, a_e=at((1, 0)), a_f=at((2, 0)))
    assert told(world, tree, "a/e")["grow"] == {"from": 1, "to": 4}
    assert "regain" not in told(world, tree, "a/f")


def test_a_run_that_can_hold_few_more_leaves_the_rest_of_what_is_owed_to_others() -> None:
    first = job("a/e", workers=8, min_workers=1)
    second = job("a/f", workers=4, min_workers=1)
    tree = tree_of([project("a", 8000), project("b", 0)], first, second)
    world = world_of(tree, a_e=at((1, 0), (1, 1)), a_f=at((2, 0)))
    assert told(world, tree, "a/e")["grow"] == {"from": 2, "to": 4}
    assert told(world, tree, "a/f")["grow"] == {"from": 1, "to": 4}


def test_places_that_are_coming_free_are_waited_for_before_anybody_is_paused() -> None:
    tree = tree_of(owed(), ELASTIC, job("b/1"), job("b/2"), job("b/3"), job("b/4"), job("b/5"))
    world = world_of(
        tree, a_e=at((1, 0)), b_1=at((1, 1)), b_2=at((1, 2)), b_3=at((1, 3)), b_4=at((2, 0)), b_5=at((2, 1))
    )
    key = JobId.parse("b/2"), tree.jobs[-1].digest
    world.runs[key] = replace(world.runs[key], phase=RunPhase.STOPPING)
    found = decided(world, tree)
    paused = [name for name, d in found.items() if isinstance(d, Reclaim)]
    assert told(world, tree, "a/e")["regain"] == {"free": 0, "coming": 1 + len(paused)}
    assert "b/2" not in paused
    assert workers(found["a/e"]) == 1


def test_where_gpus_are_claimed_it_regains_those_of_its_claims_only() -> None:
    claimed = pool(nodes=(8,), sharing=Sharing.DRA)
    tree = declared([project("a", 8000)], [ELASTIC], [claimed])
    world = world_of(tree, a_e=at((1, 0), (1, 1)))
    key = JobId.parse("a/e"), ELASTIC.digest
    world.runs[key] = replace(world.runs[key], made_with=at((1, 0), (1, 1), (1, 2), (1, 3)))
    found = decided(world, tree)["a/e"]
    assert isinstance(found, Resize)
    assert found.placement == at((1, 0), (1, 1), (1, 2), (1, 3))
    world.nodes = (replace(world.nodes[0], foreign_gpu_milli=(0, 0, 0, 1000, 0, 0, 0, 0)),)
    found = decided(world, tree)["a/e"]
    assert isinstance(found, Resize)
    assert found.placement == at((1, 0), (1, 1), (1, 2))


def test_what_its_run_was_made_with_in_another_pool_is_no_place() -> None:
    pools = [COUNTED, pool("v100", nodes=(4,), sharing=Sharing.DEVICE_PLUGIN)]
    tree = declared([project("a", 12000)], [ELASTIC], pools)
    world = world_of(tree, a_e=at((1, 0)))
    key = JobId.parse("a/e"), ELASTIC.digest
    nodes = (*at((1, 0)).workers, replace(at((1, 0)).workers[0], node=NodeName("v100-1")))
    made_with = replace(at((1, 0)), workers=nodes)
    world.runs[key] = replace(world.runs[key], made_with=made_with)
    world.nodes = tuple(
        replace(n, foreign_gpu_milli=(0, 1000, 1000, 1000)) if n.name == "dgx1-1" else n for n in world.nodes
    )
    assert "regain" not in told(world, tree, "a/e")
    assert workers(decided(world, tree)["a/e"]) == 1


def test_where_no_run_can_make_way_nothing_is_asked_for() -> None:
    there = [job(f"b/{index}", preemptible=False) for index in (1, 2, 3)]
    tree = tree_of(owed(), ELASTIC, *there, job("b/4"), job("b/5"))
    world = world_of(
        tree, a_e=at((1, 0)), b_1=at((1, 1)), b_2=at((1, 2)), b_3=at((1, 3)), b_4=at((2, 0)), b_5=at((2, 1))
    )
    found = decided(world, tree)
    assert not any(isinstance(d, Reclaim) for d in found.values())
    assert "regain" not in told(world, tree, "a/e")


def test_a_node_that_is_gone_is_no_place() -> None:
    tree = tree_of(owed(), ELASTIC)
    world = world_of(tree, a_e=at((1, 0)))
    key = JobId.parse("a/e"), ELASTIC.digest
    world.runs[key] = replace(world.runs[key], made_with=at((1, 0), (3, 0)))
    assert told(world, tree, "a/e")["grow"] == {"from": 1, "to": 4}


def test_what_another_project_borrows_on_other_nodes_makes_way_for_the_limit_of_their_department() -> None:
    projects = [project("a", 4000, department="r"), project("c", 2000, department="r"), project("b", 2000)]
    borrows = job("c/x", workers=4)
    tree = tree_of(projects, ELASTIC, borrows, departments=(department("r", 6000, limit=7000),))
    world = world_of(tree, a_e=at((1, 0)), c_x=at((2, 0), (2, 1), (2, 2), (2, 3)))
    assert isinstance(decided(world, tree)["c/x"], Reclaim)
    assert told(world, tree, "a/e")["grow"] == {"from": 1, "to": 4}


def test_surplus_that_leaves_before_what_is_on_its_node_goes_too() -> None:
    other = job("b/f", workers=4, min_workers=1)
    tree = tree_of([project("a", 4000), project("b", 1000)], ELASTIC, other, job("b/1"), job("b/2"))
    world = world_of(tree, a_e=at((1, 0)), b_f=at((2, 0), (1, 1), (2, 1), (2, 2)), b_1=at((1, 2)), b_2=at((1, 3)))
    found = decided(world, tree)["b/f"]
    assert isinstance(found, Resize)
    assert found.placement == at((2, 0))


def claims() -> tuple[World, Declared]:
    """A project within its share has 2 of 3 workers of a run on a full node; another has 5 GPUs, 2 of them there."""
    jobs = [job("a/e", workers=3, min_workers=1), job("a/low"), job("b/f", workers=5, min_workers=1)]
    tree = declared([project("a", 0, weight=1), project("b", 0, weight=1)], jobs, [COUNTED])
    places = {"a_e": at((1, 0), (1, 1)), "a_low": at((2, 0)), "b_f": at((1, 2), (2, 1), (2, 2), (2, 3), (1, 3))}
    return world_of(tree, **places), tree


def test_workers_are_regained_by_fairness_too() -> None:
    world, tree = claims()
    found = decided(world, tree)
    assert isinstance(found["b/f"], Resize)
    assert workers(found["b/f"]) == 4
    assert told(world, tree, "a/e")["regain"] == {"free": 0, "coming": 1}
    assert isinstance(found["a/e"], Keep)
    assert found["a/e"].reserved == at((1, 3))


def test_what_others_were_paused_for_stays_reserved_for_the_run_until_it_is_free() -> None:
    """A job that comes meanwhile is within its project's guarantee, and still does not get that place."""
    world, tree = claims()
    world.cycle(tree)
    later = replace(tree, projects=(*tree.projects, project("c", 1000)), jobs=(*tree.jobs, job("c/new")))
    found = decided(world, later)
    assert isinstance(found["a/e"], Resize)
    assert found["a/e"].placement == at((1, 0), (1, 1), (1, 3))
    assert isinstance(found["c/new"], Pending)


def test_workers_are_regained_from_work_of_lower_priority() -> None:
    jobs = [job("a/e", workers=2, min_workers=1, priority=1), job("a/low", workers=3)]
    tree = declared([project("a", 0, weight=1)], jobs, [pool(nodes=(4,), sharing=Sharing.DEVICE_PLUGIN)])
    world = world_of(tree, a_e=at((1, 0)), a_low=at((1, 1), (1, 2), (1, 3)))
    assert isinstance(decided(world, tree)["a/low"], Preempt)
    world.settle(tree)
    assert workers(decided(world, tree)["a/e"]) == 2
