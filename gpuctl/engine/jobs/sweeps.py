"""Sweeps that run few of their jobs at a time: which of them wait for their turn.

Example: `train` has 100 indices and `parallelism: 4`. Four of its jobs are in the queue or run; the other 96 are in no
queue: they demand, reserve and reclaim nothing. When one of the four ends, the next index is queued.

A place goes to those that hold GPUs, then to one with a reservation, then to those that were paused, then by index. So
a run that was paused goes on before another one begins, and a lower `parallelism` stops none that runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuctl.engine import reasons
from gpuctl.engine.jobs.runs import IN_PLACE, final_state
from gpuctl.model.decision import Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run


class Sweeps:
    """The sweeps with a `parallelism` of the last declarations, kept as long as the jobs are the same."""

    __slots__ = ("_digests", "_jobs", "_sweeps")

    def __init__(self) -> None:
        self._jobs: tuple[Job, ...] = ()
        self._sweeps: Sequence[tuple[Job, ...]] = ()
        self._digests: Mapping[JobId, RunDigest] = {}

    def applied(self, declared: Declared, state: ClusterState) -> Declared:
        """The declarations with the jobs blocked that wait for their turn.

        Cost: one look at each job when jobs have changed; then linear in the runs, and in the jobs of such sweeps.
        Nothing where there are none.
        """
        if declared.jobs is not self._jobs:
            self._read(declared.jobs)
        if not self._sweeps:
            return declared
        runs = {run.job: run for run in state.runs if self._digests.get(run.job) == run.digest}
        blocked: dict[JobId, Reason] = {}
        for jobs in self._sweeps:
            open_jobs = [job for job in jobs if job.id not in declared.blocked]
            blocked.update(_blocked(open_jobs, runs, state))
        return replace(declared, blocked={**blocked, **declared.blocked}) if blocked else declared

    def _read(self, jobs: tuple[Job, ...]) -> None:
        found: dict[JobId, list[Job]] = defaultdict(list)
        for job in jobs:
            if job.parallelism is not None:
                found[job.declared_as].append(job)
        self._jobs, self._sweeps = jobs, [tuple(sweep) for sweep in found.values()]
        self._digests = {job.id: job.digest for sweep in self._sweeps for job in sweep}


def _blocked(jobs: Sequence[Job], runs: Mapping[JobId, Run], state: ClusterState) -> Iterator[tuple[JobId, Reason]]:
    """The jobs of one sweep that are beyond its parallelism, with their reason."""
    in_place = 0
    waiting: list[tuple[tuple[bool, bool, int], Job]] = []
    for job in jobs:
        run = runs.get(job.id)
        if run is not None and run.phase in IN_PLACE:
            in_place += 1
        elif not job.suspend and final_state(job, run, state) is None:
            # Of waiting jobs of a sweep the least is queued first.
            turn = run is None or run.placement is None, run is None or run.starts == 0, job.position
            waiting.append((turn, job))
    most = jobs[0].parallelism if jobs else None
    if most is None:
        return
    reason = reasons.sweep_is_full(jobs[0].declared_as, most)
    waiting.sort(key=lambda each: each[0])
    for _, job in waiting[max(0, most - in_place) :]:
        yield job.id, reason
