"""SAFETY: nothing bad ever happens, in any cycle of any history, and in any state a cluster can be in."""

from __future__ import annotations

from dataclasses import replace

from checks import check_form, check_room, check_run_once, check_schedule
from hypothesis import HealthCheck, given, settings
from strategies import Story, messes, stories
from worlds import World

from gpuctl.engine import schedule
from gpuctl.model.decision import Admit, Decision, Keep, Pending, Preempt, Reclaim
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.state import ClusterState

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(stories())
@settings(max_examples=150, suppress_health_check=SLOW)
def test_every_cycle_of_a_story_is_safe(story: Story) -> None:
    world = story.world()
    for tree in story.chapters(world):
        for _ in range(6):
            state = world.state()
            check_schedule(tree, state, world.cycle(tree))


@given(messes())
@settings(max_examples=250, suppress_health_check=SLOW)
def test_any_state_is_answered_and_made_no_worse(mess: tuple[Declared, World]) -> None:
    tree, world = mess
    state = world.state()
    made = schedule(tree, state, world.now_ms)
    check_form(tree, made)
    check_room(tree, state, made)
    check_run_once(tree, state, made)


@given(messes())
@settings(max_examples=100, suppress_health_check=SLOW)
def test_the_order_of_inputs_changes_nothing(mess: tuple[Declared, World]) -> None:
    tree, world = mess
    state = world.state()
    turned = replace(
        tree,
        jobs=tree.jobs[::-1],
        projects=tree.projects[::-1],
        departments=tree.departments[::-1],
        domains=tree.domains,
    )
    shuffled = ClusterState(nodes=state.nodes[::-1], runs=state.runs[::-1], ledgers=state.ledgers)
    assert schedule(turned, shuffled, world.now_ms) == schedule(tree, state, world.now_ms)


@given(stories())
@settings(max_examples=80, suppress_health_check=SLOW)
def test_names_that_sort_alike_mean_nothing(story: Story) -> None:
    other = renamed(story.tree)
    world, twin = story.world(), story.world()
    for _ in range(5):
        made, same = world.cycle(story.tree), twin.cycle(other)
        assert [_outcome(d) for d in made.decisions] == [_outcome(d) for d in same.decisions]


def renamed(tree: Declared) -> Declared:
    """Every project and job under another name that keeps their order."""
    projects = tuple(replace(p, name=ProjectName(f"x-{p.name}")) for p in tree.projects)
    jobs = tuple(replace(j, id=JobId(ProjectName(f"x-{j.id.project}"), f"y-{j.id.name}")) for j in tree.jobs)
    return replace(tree, projects=projects, jobs=jobs)


def _outcome(decision: Decision) -> tuple[object, ...]:
    detail: object = None
    if isinstance(decision, Admit | Keep):
        detail = decision.placement
    elif isinstance(decision, Pending):
        detail = decision.reserved
    elif isinstance(decision, Reclaim | Preempt):
        detail = decision.beneficiary.name.removeprefix("y-")
    return type(decision), decision.reason.code, detail
