"""DEPENDENCIES: a job that comes after others is in no queue until they have ended, and then competes as any other.

How a job ended is worked out here from what the world did to it, not from what the engine reads.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from strategies import Story, stories
from test_outlook import Life, earlier

from gpuctl.engine.reasons import DEPENDENT, FOR_OTHERS
from gpuctl.model.decision import Admit, Decision, JobState, Pending, Schedule
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, RunPhase

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


class DependentLife(Life):
    """A life in which each schedule is checked."""

    def look(self, state: ClusterState) -> Schedule:
        made = super().look(state)
        for decision in made.decisions:
            job = next(job for job in self.tree.jobs if job.id == decision.job)
            if job.after:
                self.check(job, decision, made)
        return made

    def check(self, job: Job, decision: Decision, made: Schedule) -> None:
        run = self.world.runs.get((job.id, job.digest))
        has_started = run is not None and (run.starts > 0 or run.phase is not RunPhase.QUEUED)
        code = decision.reason.code
        if has_started or job.suspend:
            assert code not in DEPENDENT
            return
        ends = [self.end_of(each.job) for each in job.after]
        good = [end is JobState.SUCCEEDED or (end is not None and not each.needs_success)
                for each, end in zip(job.after, ends, strict=True)]  # fmt: skip
        if all(good):
            event("free")
            assert code not in DEPENDENT
            if isinstance(decision, Admit):
                event("started after others")
        elif isinstance(decision, Pending):
            event("waits for others")
            assert code == ("GPU5026" if self.failed(job) else FOR_OTHERS)
            assert decision.reserved is None
            assert job.id not in made.queue
        else:
            assert (job.id, job.digest) in self.world.seen | self.world.finished.keys(), "only one that has ended"

    def failed(self, job: Job) -> bool:
        ends = {each.job: self.end_of(each.job) for each in job.after if each.needs_success}
        return any(end not in {None, JobState.SUCCEEDED} for end in ends.values())

    def end_of(self, name: object) -> JobState | None:
        job = next((job for job in self.tree.jobs if job.id == name), None)
        if job is None:
            return None
        key = job.id, job.digest
        run = self.world.runs.get(key)
        if key in self.world.finished:
            return JobState(self.world.finished[key].state)
        if run is None:
            return JobState.DELETED if key in self.world.seen else None
        return JobState(run.phase.value) if run.phase.final else None


@given(stories(), st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 7)), max_size=12), st.integers(2, 7))
@settings(max_examples=100)
def test_a_job_waits_exactly_as_long_as_others_have_not_ended(
    story: Story, events: list[tuple[str, int]], which: int
) -> None:
    jobs = story.tree.jobs
    tree = replace(story.tree, jobs=tuple(replace(job, after=earlier(jobs, job, which)) for job in jobs))
    life = DependentLife(tree)
    for name, number in (("cycle", 0), ("cycle", 0), *events):
        life.happen(name, number)
        life.cycle()
