"""Preemption: which runs of its own project make way for a job.

The rule: docs/concepts.md, "Preemption". Training takes nothing from interactive jobs and services, so that no two jobs
can take from each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.engine.jobs.project_queue import is_first_class
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.ids import DomainName
from gpuctl.model.job import Job, JobType
from gpuctl.model.units import GpuMilli


def makes_way(snapshot: Snapshot, theirs: Job, job: Job, domain: DomainName, milli: GpuMilli) -> bool:
    """Whether a job of the same project makes way for one that asks for `milli` of a domain."""
    if theirs.type is not JobType.TRAINING:
        return job.type is not JobType.TRAINING and theirs.priority < job.priority
    return theirs.priority < job.priority or _displaces_training(snapshot, job, domain, milli)


def preemptible_by(snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> tuple[Allocation, ...]:
    """The pausable runs of a job's own project that make way for it, in the order of victims."""
    displaces = _displaces_training(snapshot, job, domain, milli)
    project = job.id.project
    if not displaces and snapshot.lowest(domain, project) >= job.priority:
        return ()

    def find() -> Iterator[list[Allocation]]:
        runs = (run for run in snapshot.pausable(domain).get(project, []) if not snapshot.is_settled(run, project))
        yield [run for run in runs if run.job is not None and makes_way(snapshot, run.job, job, domain, milli)]

    return snapshot.candidates(preempt_key(snapshot, job, domain, milli), find)


def preempt_key(snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> tuple[object, ...]:
    """A key that is equal for jobs that may have the same runs of their project paused."""
    displaces = _displaces_training(snapshot, job, domain, milli)
    return "preempt", domain, job.id.project, job.type.value, job.priority, displaces


def _displaces_training(snapshot: Snapshot, job: Job, domain: DomainName, milli: GpuMilli) -> bool:
    """Whether the job can't be paused itself, and is within quota together with all such work of its project."""
    if not is_first_class(job):
        return False
    return snapshot.accounts.quota_hit(domain, job.id.project, milli) is None
