"""The declared jobs as a cycle takes them: blocked if they wait for other jobs, services by the workers they ask for.

The rules are in docs/concepts.md: "Dependencies (after)", "Sweeps", "Scaling by load". For the rest of the engine a job
that waits for others is blocked, like a job whose object was refused, and a service is a job with the workers that it
asks for now. How a job ended is read from its presently declared run, so a job that is declared anew has not ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from gpuctl.engine import reasons
from gpuctl.engine.jobs.runs import IN_PLACE, final_state
from gpuctl.model.decision import JobState, Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, RunKey
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase
from gpuctl.model.units import Instant


class EffectiveJobs:
    """The declared jobs that depend on other jobs or on load, kept as long as the declarations are the same."""

    def __init__(self) -> None:
        self._read(())

    def of(self, declared: Declared, state: ClusterState, now_ms: Instant) -> tuple[Declared, ClusterState]:
        """The declarations with such jobs blocked or resized, and the state with jobs queued from the end of their
        dependencies.

        The jobs are the same objects while no service asks for another number of workers. Cost: one look at each job
        when jobs have changed; else linear in the runs and in such jobs; nothing without such jobs.
        """
        if declared.jobs is not self._jobs:
            self._read(declared.jobs)
        if not self._digests:
            return declared, state
        runs = {run.job: run for run in state.runs if self._digests.get(run.job) == run.digest}
        blocked, ends = dict(declared.blocked), dict(self._ends(runs, state))
        later: dict[RunKey, Run] = {}
        for job in self._dependent:
            run = runs.get(job.id)
            if job.suspend or _has_started(job, run, state):
                continue
            reason = _reason_to_wait(job, ends)
            if reason is not None:
                blocked.setdefault(job.id, reason)
            elif run is not None:
                since_ms = min(now_ms, max(ends[each.job][1] for each in job.after))
                if since_ms > run.queued_at_ms:
                    later[run.job, run.digest] = replace(run, queued_at_ms=since_ms)
        for sweep in self._sweeps:
            blocked.update(_beyond_parallelism([job for job in sweep if job.id not in blocked], runs, state))
        if later:
            state = replace(state, runs=tuple([later.get((run.job, run.digest), run) for run in state.runs]))
        return replace(declared, blocked=blocked, jobs=self._with_workers(runs)), state

    def _read(self, jobs: tuple[Job, ...]) -> None:
        self._jobs = self._resized = jobs
        self._dependent = [job for job in jobs if job.after]
        needed = {each.job for job in self._dependent for each in job.after}
        self._services: dict[int, Job] = {}
        self._asked: dict[int, int] = {}
        sweeps, self._needed = defaultdict[JobId, list[Job]](list), defaultdict[JobId, list[Job]](list)
        for at, job in enumerate(jobs):
            if job.scaling is not None:
                self._services[at] = job
            if job.parallelism is not None:
                sweeps[job.declared_as].append(job)
            if needed and job.declared_as in needed:
                self._needed[job.declared_as].append(job)
        self._sweeps = list(sweeps.values())
        read = chain(self._dependent, self._services.values(), *self._sweeps, *self._needed.values())
        self._digests = {job.id: job.digest for job in read}

    def _ends(self, runs: Mapping[JobId, Run], state: ClusterState) -> Iterator[tuple[JobId, tuple[JobState, Instant]]]:
        """For each job that others come after and that has ended: how, and when (0: not known)."""
        for name, jobs in self._needed.items():
            ends = [_end(job, runs.get(job.id), state) for job in jobs]
            known = [end for end in ends if end is not None]
            if len(known) == len(ends):
                failed = next((final for final, _ in known if final is not JobState.SUCCEEDED), JobState.SUCCEEDED)
                yield name, (failed, max(at_ms for _, at_ms in known))

    def _with_workers(self, runs: Mapping[JobId, Run]) -> tuple[Job, ...]:
        """The jobs, each service with the workers that it asks for."""
        asked = {at: _asked_workers(job, runs.get(job.id)) for at, job in self._services.items()}
        if asked != self._asked:
            jobs = [*self._jobs]
            for at, workers in asked.items():
                jobs[at] = replace(jobs[at], workers=workers)
            self._asked, self._resized = asked, tuple(jobs)
        return self._resized


def _end(job: Job, run: Run | None, state: ClusterState) -> tuple[JobState, Instant] | None:
    final, ledger = final_state(job, run, state), state.ledgers.get(job.id.project)
    if final is None:
        return None
    past = ledger.finished.get((job.id, job.digest)) if ledger is not None else None
    at_ms = past.at_ms if past is not None else run.finished_at_ms if run is not None else None
    return final, at_ms or 0


def _has_started(job: Job, run: Run | None, state: ClusterState) -> bool:
    """Whether the job's present run has been started before, or has ended."""
    if run is None:
        return final_state(job, run, state) is not None
    return run.starts > 0 or run.phase is not RunPhase.QUEUED


def _reason_to_wait(job: Job, ends: Mapping[JobId, tuple[JobState, Instant]]) -> Reason | None:
    for each in job.after:
        if each.needs_success and each.job in ends and ends[each.job][0] is not JobState.SUCCEEDED:
            return reasons.dependency_failed(each.job, ends[each.job][0])
    left = [each.job for each in job.after if each.job not in ends]
    return reasons.waits_for(left) if left else None


def _beyond_parallelism(
    jobs: Sequence[Job], runs: Mapping[JobId, Run], state: ClusterState
) -> Iterator[tuple[JobId, Reason]]:
    """The jobs of one sweep that exceed its parallelism, with their reason."""
    in_place = 0
    waiting: list[tuple[bool, bool, int, JobId]] = []
    for job in jobs:
        run = runs.get(job.id)
        if run is not None and run.phase in IN_PLACE:
            in_place += 1
        elif not job.suspend and final_state(job, run, state) is None:
            # Queued first: jobs with a reserved place, then jobs that have started before, then the lowest index.
            waiting.append((run is None or run.placement is None, run is None or run.starts == 0, job.position, job.id))
    most = jobs[0].parallelism if jobs else None
    if most is not None:
        reason = reasons.sweep_is_full(jobs[0].declared_as, most)
        yield from ((job, reason) for *_, job in sorted(waiting)[max(0, most - in_place) :])


def _asked_workers(job: Job, run: Run | None) -> int:
    """How many workers a service asks for: the fewest until it runs, then the number that its autoscaler gives."""
    if run is None or run.phase not in ACTIVE:
        return job.min_workers
    has = len(run.placement.workers) if run.placement is not None else 0
    return max(job.min_workers, min(job.workers, has if run.asked_workers is None else run.asked_workers))
