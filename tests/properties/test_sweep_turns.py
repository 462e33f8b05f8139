"""SWEEPS: of a sweep never more jobs run than its parallelism, and no job waits for its turn while there is one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from test_outlook import Life

from gpuctl.engine.jobs.runs import IN_PLACE
from gpuctl.engine.reasons import IN_SWEEP
from gpuctl.model.decision import Admit, Finished, Keep, Pending, Schedule, Suspended
from gpuctl.model.declared import Declared
from gpuctl.model.job import SweepIndex
from gpuctl.model.state import ClusterState

HAPPENINGS = (
    "cycle",
    "end",
    "end",
    "fail",
    "delete",
    "suspend",
    "withdraw",
    "declare",
    "lose a node",
    "find it",
    "wait",
)


def as_sweeps(tree: Declared, parallelism: int) -> Declared:
    """The jobs of each project as one sweep."""
    places = Counter[str]()
    jobs = []
    for job in tree.jobs:
        index = SweepIndex(sweep="s", key=job.id.name, values={})
        jobs.append(replace(job, sweep=index, position=places[job.id.project], parallelism=parallelism))
        places[job.id.project] += 1
    return replace(tree, jobs=tuple(jobs))


class SweepLife(Life):
    """A life in which each schedule is checked."""

    def look(self, state: ClusterState) -> Schedule:
        made = super().look(state)
        decisions = {decision.job: decision for decision in made.decisions}
        in_place = {run.job for run in state.runs if run.phase in IN_PLACE}
        sweeps = {job.declared_as: job.parallelism for job in self.tree.jobs}
        for sweep, parallelism in sweeps.items():
            jobs = [job for job in self.tree.jobs if job.declared_as == sweep]
            there = {job.id for job in jobs if (job.id in in_place)}
            starts = {job.id for job in jobs if isinstance(decisions[job.id], Admit)}
            assert parallelism is not None
            assert not starts or len(there | starts) <= parallelism
            blocked = [job for job in jobs if decisions[job.id].reason.code == IN_SWEEP]
            for job in blocked:
                decision = decisions[job.id]
                assert isinstance(decision, Pending)
                assert job.id not in there
                assert decision.reserved is None
                assert job.id not in made.queue
            over = (Finished, Suspended)
            claim = [job for job in jobs if job not in blocked and not isinstance(decisions[job.id], over)]
            assert not blocked or len(there | {job.id for job in claim}) >= parallelism
            event("some wait for their turn" if blocked else "none waits for its turn")
            if any(isinstance(decisions[job.id], Keep) for job in jobs) and starts:
                event("one is started beside others")
        return made


@given(
    stories(),
    st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 7)), max_size=12),
    st.integers(1, 3),
    st.integers(1, 3),
)
@settings(max_examples=100)
def test_parallelism_is_kept_and_used(
    story: Story, events: list[tuple[str, int]], parallelism: int, other: int
) -> None:
    life = SweepLife(as_sweeps(story.tree, parallelism))
    for name, number in (("cycle", 0), ("cycle", 0), *events):
        life.happen(name, number)
        if name == "wait":
            life.whole = as_sweeps(life.whole, other)
        life.cycle()
