"""OUTLOOK: what the engine carries from cycle to cycle changes no decision, whatever happens in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, dressed, stories, trees, worlds
from worlds import World, live_nodes

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Reason, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.job import Dependency, Job
from gpuctl.model.state import ClusterState

TO_JOBS = ("withdraw", "declare", "suspend", "edit", "hold", "bar", "depend")
TO_RUNS = ("end", "fail", "touch", "delete", "forget")
TO_THE_REST = ("cycle", "lose a node", "find it", "crash", "wait", "earlier", "shuffle", "copy")
HOUR_MS = 3_600_000
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def told(made: Schedule) -> tuple[object, ...]:
    """All that a schedule says."""
    return made.decisions, made.shares, [(s.job, s.rule, dict(s.numbers)) for s in made.trace], made.queue


def copied(tree: Declared) -> Declared:
    """The same declarations in other objects."""
    return replace(
        tree,
        cluster=replace(tree.cluster),
        domains=tuple(map(replace, tree.domains)),
        departments=tuple(map(replace, tree.departments)),
        projects=tuple(map(replace, tree.projects)),
        jobs=tuple(map(replace, tree.jobs)),
    )


def earlier(jobs: Sequence[Job], one: Job, which: int) -> tuple[Dependency, ...]:
    """Dependencies of a job on some of its project before it by name, so that none comes after itself."""
    before = [job.id for job in jobs if job.id.project == one.id.project and job.id < one.id]
    return tuple(Dependency(job=job, needs_success=bool(which % 2)) for job in before[: which // 2])


class Life:
    """A cluster to which things happen, and an engine that remembers."""

    def __init__(self, tree: Declared) -> None:
        self.whole = self.tree = tree
        self.world = World(nodes=live_nodes(tree.cluster.pools))
        self.nodes = self.world.nodes
        self.cache = EngineCache()

    def look(self, state: ClusterState) -> Schedule:
        """One call that remembers, and one that does not: the same."""
        warm = schedule(self.tree, state, self.world.now_ms, self.cache)
        assert told(warm) == told(schedule(self.tree, state, self.world.now_ms))
        return warm

    def cycle(self, stop_after: int | None = None) -> None:
        """Decide, and carry it out."""
        self.world.carry_out(self.tree, self.look(self.world.state()), stop_after)

    def happen(self, event: str, which: int) -> None:
        """What the event does; nothing, where there is nothing to do it to."""
        if event in TO_JOBS and self.tree.jobs:
            self.declare(event, which, self.tree.jobs[which % len(self.tree.jobs)])
        elif event in TO_RUNS:
            self.touch(event, which)
        else:
            self.pass_on(event, which)

    def declare(self, event: str, which: int, one: Job) -> None:
        """Something about a job is declared otherwise."""
        jobs = self.tree.jobs
        match event:
            case "withdraw":
                jobs = tuple(job for job in jobs if job is not one)
            case "declare":
                jobs = self.whole.jobs
            case "suspend" | "edit":
                new = replace(one, suspend=not one.suspend) if event == "suspend" else replace(one, priority=which % 3)
                jobs = tuple(new if job is one else job for job in jobs)
            case "depend":
                jobs = tuple(replace(job, after=earlier(jobs, job, which)) if job is one else job for job in jobs)
            case "hold":
                self.tree = replace(self.tree, pinned=self.tree.pinned ^ {one.id.project})
            case _:
                self.tree = replace(self.tree, blocked={} if self.tree.blocked else {one.id: Reason(code="GPU6031")})
        self.tree = replace(self.tree, jobs=jobs)

    def touch(self, event: str, which: int) -> None:
        """Something happens to a run, or to what is known of it."""
        world = self.world
        running, keys, seen = sorted(world.running()), sorted(world.runs), sorted(world.seen)
        if event == "touch":
            world.runs = {key: replace(run) for key, run in world.runs.items()}
        elif event == "delete" and keys:
            del world.runs[keys[which % len(keys)]]
        elif event == "forget" and seen:
            world.seen.remove(seen[which % len(seen)])
        elif event in {"end", "fail"} and running:
            world.end(running[which % len(running)], "Failed" if event == "fail" else "Succeeded")

    def pass_on(self, event: str, which: int) -> None:
        """Nodes, time, and what gpuctl itself does."""
        world, at = self.world, which % len(self.nodes)
        match event:
            case "lose a node":
                world.nodes = (*self.nodes[:at], replace(self.nodes[at], ready=False), *self.nodes[at + 1 :])
            case "find it":
                world.nodes = self.nodes
            case "wait":
                world.now_ms += (1 + which) * HOUR_MS
            case "earlier":
                world.now_ms -= 5_000 * (1 + which)
            case "shuffle":
                state = world.state()
                self.look(replace(state, runs=state.runs[::-1], nodes=state.nodes[::-1]))
            case "copy":
                self.tree = copied(self.tree)
                world.nodes = tuple(map(replace, world.nodes))
            case "crash":
                self.cycle(stop_after=which)
            case _:
                pass


@given(stories(), st.lists(st.tuples(st.sampled_from(TO_JOBS + TO_RUNS + TO_THE_REST), st.integers(0, 7)), max_size=8))
@settings(max_examples=150)
def test_what_is_remembered_changes_nothing(story: Story, events: list[tuple[str, int]]) -> None:
    life = Life(story.tree)
    for event, which in (("cycle", 0), ("cycle", 0), *events):
        life.happen(event, which)
        life.cycle()
    life.cycle()


@given(st.data())
@settings(max_examples=100, suppress_health_check=SLOW)
def test_so_it_is_whatever_is_there_then(data: st.DataObject) -> None:
    """From one mess to another: nothing need follow from what was before."""
    tree = data.draw(dressed(data.draw(trees(most=8))))
    life = Life(tree)
    for world in data.draw(st.lists(worlds(tree), min_size=2, max_size=3)):
        life.world = world
        made = life.look(world.state())
        assert all(row.allocated_milli >= 0 for row in made.shares)
