"""What is said to start a waiting job starts it, and it starts when it is said to: tried, in any situation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from draws import among
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from worlds import World

from gpuctl.engine import EngineCache, schedule
from gpuctl.engine.jobs.timing import latest_end_ms
from gpuctl.engine.reasons import GUARDED
from gpuctl.explain import explain
from gpuctl.explain.progress import come_to_rest
from gpuctl.model.decision import Admit, Pending, Schedule
from gpuctl.model.declared import Allowance, Declared, Department, MinRuntime, Project
from gpuctl.model.explanation import Explanation, Raise, Remedy, RemedyKind
from gpuctl.model.ids import DomainName, JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, RunPhase
from gpuctl.model.steps import settled
from gpuctl.simulate.wakeups import wakeups

Owner = TypeVar("Owner", Project, Department)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
MINUTE_MS = 60_000
MIN_RUNTIMES = (MinRuntime.of_all(0), MinRuntime(), MinRuntime.of_all(10 * MINUTE_MS))
ASKED = 3
"""Waiting jobs that are asked about in one situation."""


@st.composite
def situations(draw: st.DrawFn) -> tuple[Declared, World]:
    """Somewhere in a story whose jobs have limits, or have none."""
    story: Story = draw(stories(most=10))
    lasting = st.sampled_from((None, 30 * MINUTE_MS, 60 * MINUTE_MS, 300 * MINUTE_MS))
    jobs = tuple(replace(each, max_duration_ms=draw(lasting)) for each in story.tree.jobs)
    policy = replace(story.tree.cluster.scheduling, min_runtime=draw(among(*MIN_RUNTIMES)))
    tree = replace(story.tree, jobs=jobs, cluster=replace(story.tree.cluster, scheduling=policy))
    story = replace(story, tree=tree)
    world = story.world()
    for tree in story.chapters(world):
        for _ in range(draw(st.integers(1, 4))):
            world.cycle(tree)
        world.now_ms += draw(among(0, MINUTE_MS, 20 * MINUTE_MS))
        if draw(st.integers(0, 3)) == 0:
            break
    return tree, world


@given(situations())
@settings(max_examples=100, suppress_health_check=SLOW)
def test_what_is_said_of_a_waiting_job_is_so(situation: tuple[Declared, World]) -> None:
    tree, world = situation
    state, now_ms, cache = world.state(), world.now_ms, EngineCache()
    made = schedule(tree, state, now_ms, cache)
    jobs = {job.id: job for job in tree.jobs}
    for told in _told(tree, state, made, cache):
        for remedy in told.remedies:
            changed = applied(tree, state, remedy, jobs[told.job])
            assert told.job in _starts(*changed, now_ms), f"{told.job}: {remedy}"
        if told.placement is not None and told.reason.code != GUARDED:
            assert told.job in _starts(tree, state, now_ms), f"{told.job} was promised a place"
        if told.forecast is not None and not told.forecast.more:
            assert start_of(tree, state, now_ms, told.job) == told.forecast.start_ms, f"{told.job}: {told.forecast}"


def _told(tree: Declared, state: ClusterState, made: Schedule, cache: EngineCache) -> Iterator[Explanation]:
    waiting = [decision.job for decision in made.decisions if isinstance(decision, Pending)]
    for job in waiting[:ASKED]:
        told = explain(tree, state, made, job, cache.vacancies())
        assert told is not None
        yield told


def _starts(tree: Declared, state: ClusterState, now_ms: int) -> set[JobId]:
    """The jobs that start if nothing is changed."""
    passed = come_to_rest(tree, state, now_ms, EngineCache())
    return {decision.job for made, _ in passed for decision in made.decisions if isinstance(decision, Admit)}


def applied(tree: Declared, state: ClusterState, remedy: Remedy, job: Job) -> tuple[Declared, ClusterState]:
    """What the remedy says, and nothing else, done as people and clusters do it."""
    match remedy.kind:
        case RemedyKind.QUOTA | RemedyKind.LIMIT:
            before = _may_be_declared(tree, job.id, remedy.domain)
            first = Raise(kind=remedy.kind, subject=remedy.subject, milli=remedy.milli or 0)
            for each in (first, *remedy.also):
                tree = _raised(tree, each, remedy.domain)
            assert _may_be_declared(tree, job.id, remedy.domain) or not before
            return tree, state
        case RemedyKind.JOB_END:
            runs = (
                replace(run, phase=RunPhase.SUCCEEDED, placement=None)
                if str(run.job) == remedy.subject and run.phase in ACTIVE
                else run
                for run in state.runs
            )
            return tree, replace(state, runs=tuple(runs))
        case RemedyKind.NODE:
            nodes = (replace(n, ready=True, usable=True) if n.name == remedy.subject else n for n in state.nodes)
            return tree, replace(state, nodes=tuple(nodes))
        case RemedyKind.ANOTHER_NODE:
            like = next(node for node in state.nodes if node.name == remedy.subject)
            one = replace(like, name=NodeName("zz"), ready=True, usable=True)
            return tree, replace(state, nodes=(*state.nodes, one))


def _raised(tree: Declared, what: Raise, domain: DomainName) -> Declared:
    def raised(one: Owner) -> Owner:
        before = one.allowances.get(domain, Allowance(quota_milli=0))
        is_quota = what.kind is RemedyKind.QUOTA
        claim = (
            before.with_quota(what.milli, before.limit_milli) if is_quota else replace(before, limit_milli=what.milli)
        )
        return replace(one, allowances={**one.allowances, domain: claim}) if one.name == what.subject else one

    projects, departments = map(raised, tree.projects), map(raised, tree.departments)
    return replace(tree, projects=tuple(projects), departments=tuple(departments))


def _may_be_declared(tree: Declared, job: JobId, domain: DomainName) -> bool:
    """Whether no limit is below its quota (GPU3013), and no department's quota below what it divides (GPU3010)."""
    project = tree.project(job.project)
    owners: list[Project | Department] = [project]
    owners += [each for each in tree.departments if each.name == project.department]
    for owner in owners:
        claim = owner.allowances.get(domain, Allowance(quota_milli=0))
        if claim.limit_milli is not None and claim.limit_milli < claim.quota_milli:
            return False
        below = [each for each in tree.projects if each.department == owner.name]
        if sum(each.allowances[domain].quota_milli for each in below if domain in each.allowances) > claim.quota_milli:
            return False
    return True


def start_of(tree: Declared, state: ClusterState, now_ms: int, job: JobId) -> int | None:
    """When a job starts if runs end at their limits and nothing else happens, instant by instant; None: never."""
    jobs, cache = {each.id: each for each in tree.jobs}, EngineCache()
    state = settled(tree, state, now_ms)
    while True:
        for made, after in come_to_rest(tree, state, now_ms, cache):
            state = after
            if any(isinstance(decision, Admit) and decision.job == job for decision in made.decisions):
                return now_ms
        ends = (latest_end_ms(jobs.get(run.job), run, now_ms) for run in state.runs if run.phase in ACTIVE)
        news = [at_ms for at_ms in (*wakeups(tree, state, now_ms), *filter(None, ends)) if at_ms > now_ms]
        if not news:
            return None
        now_ms = min(news)
