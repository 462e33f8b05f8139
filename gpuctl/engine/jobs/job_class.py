"""Pending jobs, their order inside a project, and which of them are alike.

The order: interactive and inference before training, then priority, then the time of queueing, then the
index in a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.model.decision import RunRecord
from gpuctl.model.ids import DomainName, JobId
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant

Rank: TypeAlias = tuple[tuple[bool, int], Instant, int, JobId]
"""A job's place in its project's order; the least is first."""

Likeness: TypeAlias = tuple[object, ...]
"""All fields of a declared job that its attempt may depend on: what it asks for, and its project."""

Kind: TypeAlias = tuple[object, ...]
"""All of a pending job that its attempt may depend on. Jobs of one kind have the same outcome."""

_TRAINING = JobType.TRAINING

_BUT_CPU_AND_MEMORY = (
    "id.project", "type", "priority", "preemptible", "gpu_milli", "gpu_mem_bytes", "workers", "min_workers",
    "max_duration_ms", "pools", "pools_in_order",
)  # fmt: skip

likeness: Callable[[Job], Likeness] = attrgetter(*_BUT_CPU_AND_MEMORY, "cpu_milli", "mem_bytes")
"""The likeness of a job."""

_coarse_likeness: Callable[[Job], Likeness] = attrgetter(*_BUT_CPU_AND_MEMORY)


class JobOptions:
    """What all jobs that are alike could have on empty nodes: at least one option, in their order of pools.

    One object while that stays so. `sorts`: of the options. `wanted`: GPUs of all workers by quota domain, in the pool
    where most of them fit; `domain` and `milli` are the first entry. `is_plain`: the jobs can be paused, and count in
    one domain only. `precedence`: the common part of their ranks. `but_cpu_and_memory`: equal for jobs and options that
    differ in nothing else.
    """

    __slots__ = ("but_cpu_and_memory", "domain", "is_plain", "milli", "options", "precedence", "sorts", "wanted")

    def __init__(self, job: Job, options: tuple[PoolOption, ...]) -> None:
        self.options = options
        self.sorts = tuple([option.fewest.sort for option in options])
        sizes = tuple([option.request.workers for option in options])
        self.but_cpu_and_memory: Likeness = (_coarse_likeness(job), self.sorts, sizes)
        self.precedence = job.type is _TRAINING, -job.priority
        wanted: dict[DomainName, GpuMilli] = {}
        for option in options:
            wanted[option.domain] = max(option.request.total_milli, wanted.get(option.domain, 0))
        self.wanted = tuple(wanted.items())
        self.domain, self.milli = self.wanted[0]
        self.is_plain = job.preemptible and len(self.wanted) == 1


@dataclass(slots=True, eq=False)
class PendingJob:
    """A job that could start: queued since when, its options, and the domain it counts in. `idle_only`: it claims
    nothing, and may start on GPUs that all others leave idle (see `starts`).

    Never changed. Not frozen, because that would double the cost of making one.
    """

    job: Job
    run: Run | None
    queued_at_ms: Instant
    job_options: JobOptions
    domain: DomainName
    idle_only: bool = False

    @property
    def record(self) -> RunRecord:
        """The record of its run."""
        return RunRecord(queued_at_ms=self.queued_at_ms) if self.run is None else self.run.record

    @property
    def options(self) -> tuple[PoolOption, ...]:
        """The pools it could use, in its order."""
        return self.job_options.options

    @property
    def gpu_milli(self) -> GpuMilli:
        """GPUs of all workers, in the pool it prefers."""
        return self.job_options.milli


def kind_of(pending: PendingJob) -> Kind:
    """The kind of a job. A job with a reservation is alone, as is one that ran before with a maxDuration."""
    job, run = pending.job, pending.run
    if run is not None and (run.placement is not None or (run.starts and job.max_duration_ms is not None)):
        return (job.id,)
    return run is not None, run is not None and run.starts > 0, pending.job_options


rank_of: Callable[[PendingJob], Rank] = attrgetter("job_options.precedence", "queued_at_ms", "job.position", "job.id")
"""The rank of a pending job."""


def is_first_class(job: Job) -> bool:
    """Whether it is interactive work or a service that can't be paused: training makes way for it within quota."""
    return not job.preemptible and job.type is not _TRAINING
