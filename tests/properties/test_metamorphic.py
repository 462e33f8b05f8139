"""What should change nothing changes nothing: names, time of day, idle neighbours, a split commit, all of it twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import PROJECTS, Story, stories
from worlds import World, declared, job, live_nodes, pool, project

from gpuctl.engine import schedule
from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.state import Run

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
YEAR_MS = 365 * 24 * 3_600_000
IDLE = "idle"


def moved(run: Run, by_ms: int) -> Run:
    """The run, had everything happened so much later."""
    return replace(
        run,
        queued_at_ms=run.queued_at_ms + by_ms,
        started_at_ms=None if run.started_at_ms is None else run.started_at_ms + by_ms,
        idle_since_ms=None if run.idle_since_ms is None else run.idle_since_ms + by_ms,
    )


def substance(made: Schedule) -> tuple[list[tuple[object, ...]], tuple[JobId, ...]]:
    """Decisions without their instants, and the next job."""
    return [(type(d).__name__, d.job, d.reason, getattr(d, "placement", None)) for d in made.decisions], made.queue


def history(story: Story) -> list[tuple[Declared, World]]:
    """The story when each of its chapters has begun, and at rest."""
    world = story.world()
    told = []
    for tree in story.chapters(world):
        for go_on in (world.cycle, world.settle):
            go_on(tree)
            then = replace(world, runs=dict(world.runs), seen=set(world.seen), finished=dict(world.finished))
            told.append((tree, then))
    return told


@given(stories(), st.integers(1, 20))
@settings(max_examples=60, suppress_health_check=SLOW)
def test_the_time_of_day_means_nothing(story: Story, years: int) -> None:
    for tree, world in history(story):
        state, later_ms = world.state(), years * YEAR_MS
        later = replace(state, runs=tuple(moved(run, later_ms) for run in state.runs))
        assert substance(schedule(tree, later, world.now_ms + later_ms)) == substance(
            schedule(tree, state, world.now_ms)
        )


@given(stories(), st.integers(0, 4000))
@settings(max_examples=60, suppress_health_check=SLOW)
def test_a_project_that_wants_nothing_changes_nothing(story: Story, quota_milli: int) -> None:
    for tree, world in history(story):
        if len(tree.domains) > 1:
            continue
        more = replace(tree, projects=(*tree.projects, project(IDLE, quota_milli)))
        state = world.state()
        assert substance(schedule(more, state, world.now_ms)) == substance(schedule(tree, state, world.now_ms))


@given(stories(), st.permutations(PROJECTS))
@settings(max_examples=60, suppress_health_check=SLOW)
def test_fair_shares_follow_the_claims_and_not_the_names(story: Story, names: list[str]) -> None:
    """Ties of a milli go by name; everything else of a share must not."""
    called = {ProjectName(old): ProjectName(new) for old, new in zip(PROJECTS, names, strict=True)}
    tree, world = history(story)[1]
    renamed = replace(
        tree,
        projects=tuple(
            sorted((replace(p, name=called[p.name]) for p in tree.projects), key=lambda p: p.name)
        ),
        jobs=tuple(sorted((replace(j, id=renamed_id(j.id, called)) for j in tree.jobs), key=lambda j: j.id)),
    )  # fmt: skip
    empty = World(nodes=world.nodes).state()
    shares = {(s.domain, called[s.project]): s for s in schedule(tree, empty, 0).shares}
    others = {(s.domain, s.project): s for s in schedule(renamed, empty, 0).shares}
    assert shares.keys() == others.keys()
    for key, share in shares.items():
        assert share.demand_milli == others[key].demand_milli
        assert abs(share.share_milli - others[key].share_milli) <= 1


def renamed_id(name: JobId, called: dict[ProjectName, ProjectName]) -> JobId:
    """The same job of a project that is called otherwise."""
    return JobId(project=called[name.project], name=name.name)


alike = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=2, max_size=4)
"""For each project its quota in GPUs, and how many one-GPU jobs it has."""


def plain(claims: list[tuple[int, int]], nodes: int, times: int = 1) -> Declared:
    """A cluster of four-GPU nodes with one-GPU jobs only, or so many times as large."""
    projects = [project(PROJECTS[i], 1000 * quota * times) for i, (quota, _) in enumerate(claims)]
    jobs = [job(f"{PROJECTS[i]}/j{n:02}") for i, (_, count) in enumerate(claims) for n in range(count * times)]
    return declared(projects, jobs, [pool(nodes=(4,) * nodes * times)])


def at_rest(tree: Declared, *before: Declared) -> World:
    """The cluster after these commits, with time between them for runs to reach minRuntime, so that fairness counts."""
    world = World(nodes=live_nodes(tree.cluster.pools))
    for each in (*before, tree):
        world.now_ms += tree.cluster.scheduling.min_runtime.fairness_ms
        world.settle(each)
    return world


@given(alike, st.integers(1, 3), st.integers(0, 30))
@settings(max_examples=60, suppress_health_check=SLOW)
def test_a_commit_may_be_split(claims: list[tuple[int, int]], nodes: int, first: int) -> None:
    tree = plain(claims, nodes)
    part = replace(tree, jobs=tree.jobs[:first])
    whole, split = at_rest(tree).allocated(), at_rest(tree, part).allocated()
    for name in PROJECTS:
        assert abs(whole.get(name, 0) - split.get(name, 0)) <= 1000, "one GPU may go to the project that had it first"


@given(alike, st.integers(1, 2))
@settings(max_examples=40, suppress_health_check=SLOW)
def test_twice_of_everything_is_twice_of_everything(claims: list[tuple[int, int]], nodes: int) -> None:
    once, twice = plain(claims, nodes), plain(claims, nodes, times=2)
    one, two = at_rest(once), at_rest(twice)
    small = {s.project: s for s in schedule(once, one.state(), one.now_ms).shares}
    large = {s.project: s for s in schedule(twice, two.state(), two.now_ms).shares}
    for name, share in small.items():
        assert abs(2 * share.share_milli - large[name].share_milli) <= 2
        assert abs(2 * one.allocated().get(name, 0) - two.allocated().get(name, 0)) <= 2000
    assert sum(two.allocated().values()) == 2 * sum(one.allocated().values())
