"""Jobs that come after others: which of them wait, and since when those are queued that wait no more.

Example: `evaluate` says `after: [train]`. While `train` waits or runs, `evaluate` is in no queue: it demands, reserves
and reclaims nothing. If `train` succeeds, `evaluate` is queued from that moment on. If it fails, `evaluate` waits until
a new run of `train` succeeds.

A job that has started once waits for others no more: it goes on after a pause whatever has become of them. How a job
ended is read of the run that is declared now, so a job that is declared anew has not ended; its end stands in the
ledger, and so is known after its object is gone. A sweep has ended once all of its jobs have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from gpuctl.engine import reasons
from gpuctl.engine.jobs.runs import final_state
from gpuctl.model.decision import JobState, Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, RunKey
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import Instant


class Dependencies:
    """The dependent jobs of the last declarations, kept as long as the jobs are the same."""

    __slots__ = ("_dependent", "_jobs", "_needed")

    def __init__(self) -> None:
        self._jobs: tuple[Job, ...] = ()
        self._dependent: tuple[Job, ...] = ()
        self._needed: Mapping[JobId, Sequence[Job]] = {}

    def applied(self, declared: Declared, state: ClusterState, now_ms: Instant) -> tuple[Declared, ClusterState]:
        """The declarations with the jobs that wait for others blocked, and the state with what was queued later.

        Cost: one look at each job when jobs have changed; then linear in the runs, and in the dependencies of jobs
        that have not started. Nothing where there are none.
        """
        if declared.jobs is not self._jobs:
            self._read(declared.jobs)
        if not self._dependent:
            return declared, state
        runs = self._runs(state.runs)
        ends = dict(self._ends(runs, state))
        blocked: dict[JobId, Reason] = {}
        later: dict[RunKey, Run] = {}
        for job in self._dependent:
            run = runs.get(job.id)
            if job.suspend or _has_started(job, run, state):
                continue
            reason = _reason_to_wait(job, ends)
            if reason is not None:
                blocked[job.id] = reason
            elif run is not None:
                since_ms = min(now_ms, max(ends[each.job][1] for each in job.after))
                if since_ms > run.queued_at_ms:
                    later[run.job, run.digest] = replace(run, queued_at_ms=since_ms)
        if later:
            state = replace(state, runs=tuple([later.get((run.job, run.digest), run) for run in state.runs]))
        return replace(declared, blocked={**blocked, **declared.blocked}) if blocked else declared, state

    def _read(self, jobs: tuple[Job, ...]) -> None:
        self._jobs, self._dependent = jobs, tuple(filter(attrgetter("after"), jobs))
        needed = {each.job for job in self._dependent for each in job.after}
        found: dict[JobId, list[Job]] = defaultdict(list)
        for job in jobs if needed else ():
            if job.declared_as in needed:
                found[job.declared_as].append(job)
        self._needed = found

    def _runs(self, runs: Iterable[Run]) -> dict[JobId, Run]:
        """The present runs of dependent jobs, and of those that they come after."""
        digests = {job.id: job.digest for job in chain(self._dependent, *self._needed.values())}
        return {run.job: run for run in runs if digests.get(run.job) == run.digest}

    def _ends(self, runs: Mapping[JobId, Run], state: ClusterState) -> Iterator[tuple[JobId, tuple[JobState, Instant]]]:
        """How and when each job ended that others come after; 0: it is not known when."""
        for name, jobs in self._needed.items():
            ends = [_end(job, runs.get(job.id), state) for job in jobs]
            known = [end for end in ends if end is not None]
            if len(known) == len(ends):
                failed = next((final for final, _ in known if final is not JobState.SUCCEEDED), JobState.SUCCEEDED)
                yield name, (failed, max(at_ms for _, at_ms in known))


def _end(job: Job, run: Run | None, state: ClusterState) -> tuple[JobState, Instant] | None:
    final, ledger = final_state(job, run, state), state.ledgers.get(job.id.project)
    if final is None:
        return None
    past = ledger.finished.get((job.id, job.digest)) if ledger is not None else None
    at_ms = past.at_ms if past is not None else run.finished_at_ms if run is not None else None
    return final, at_ms or 0


def _has_started(job: Job, run: Run | None, state: ClusterState) -> bool:
    """Whether the job's present run was let go before, or has ended."""
    if run is None:
        return final_state(job, run, state) is not None
    return run.starts > 0 or run.phase is not RunPhase.QUEUED


def _reason_to_wait(job: Job, ends: Mapping[JobId, tuple[JobState, Instant]]) -> Reason | None:
    for each in job.after:
        if each.needs_success and each.job in ends and ends[each.job][0] is not JobState.SUCCEEDED:
            return reasons.dependency_failed(each.job, ends[each.job][0])
    left = [each.job for each in job.after if each.job not in ends]
    return reasons.waits_for(left) if left else None
