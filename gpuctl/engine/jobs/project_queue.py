"""Pending jobs of a project and a quota domain: in order, and by class and sort.

The order: interactive and inference before training, then priority, then the time of queueing, then the index in a
sweep.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.model.decision import Reason, RunRecord
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant

Rank: TypeAlias = tuple[tuple[bool, int], Instant, int, JobId]
"""A job's position in its project's order; the lowest is first."""

Likeness: TypeAlias = tuple[object, ...]
"""All fields of a declared job on which its attempt may depend: what it asks for, and its project."""

Kind: TypeAlias = tuple[object, ...]
"""All of a pending job on which its attempt may depend. Attempts of jobs of one kind have the same result."""

_TRAINING = JobType.TRAINING

_BUT_CPU_AND_MEMORY = (
    "id.project", "type", "priority", "preemptible", "gpu_milli", "gpu_mem_bytes", "workers", "min_workers",
    "max_duration_ms", "pools", "pools_in_order",
)  # fmt: skip

likeness: Callable[[Job], Likeness] = attrgetter(*_BUT_CPU_AND_MEMORY, "cpu_milli", "mem_bytes")
"""The likeness of a job."""

_coarse_likeness: Callable[[Job], Likeness] = attrgetter(*_BUT_CPU_AND_MEMORY)


class JobOptions:
    """What all jobs of one likeness could have on empty nodes: at least one option, in their order of pools.

    The same object as long as that does not change. `wanted`: GPUs of all workers by quota domain, in the pool where
    most of them fit; `domain` and `milli` are the first entry. `is_plain`: the jobs can be paused, and count in one
    domain only. `precedence`: the common part of their ranks. `but_cpu_and_memory`: equal for jobs that differ only in
    CPU and memory, in what they ask for and in their options.
    """

    __slots__ = ("but_cpu_and_memory", "domain", "is_plain", "milli", "options", "precedence", "wanted")

    def __init__(self, job: Job, options: tuple[PoolOption, ...]) -> None:
        self.options = options
        sorts = tuple([(option.fewest.sort, option.request.workers) for option in options])
        self.but_cpu_and_memory: Likeness = (_coarse_likeness(job), sorts)
        self.precedence = job.type is _TRAINING, -job.priority
        wanted: dict[DomainName, GpuMilli] = {}
        for option in options:
            wanted[option.domain] = max(option.request.total_milli, wanted.get(option.domain, 0))
        self.wanted = tuple(wanted.items())
        self.domain, self.milli = self.wanted[0]
        self.is_plain = job.preemptible and len(self.wanted) == 1

    def most_milli(self, domain: DomainName, left_milli: GpuMilli) -> GpuMilli | None:
        """GPUs of as many workers as fit into what is left of a domain; None if the fewest are too many."""
        found: list[GpuMilli] = []
        for option in self.options:
            each_milli, workers = option.request.gpu_milli, option.request.workers
            most = min(workers, left_milli // each_milli) if each_milli else workers
            if option.domain == domain and most >= (option.least or workers):
                found.append(each_milli * most)
        return max(found, default=None)


@dataclass(slots=True, eq=False)
class PendingJob:
    """A job that could start: queued since when, its options, and the domain it counts in. `idle_only`: it is a
    retry, and may start only on GPUs that all other jobs leave idle (see `timing`).

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
    def last_code(self) -> str:
        """The code of the reason that its run had last; "" without one."""
        return "" if self.run is None or self.run.reason is None else self.run.reason.code

    @property
    def options(self) -> tuple[PoolOption, ...]:
        """The pools that it could use, in the job's order."""
        return self.job_options.options

    @property
    def gpu_milli(self) -> GpuMilli:
        """GPUs of all workers, in the pool it prefers."""
        return self.job_options.milli


def kind_of(pending: PendingJob) -> Kind:
    """The kind of a job. A job with a reservation has its own; so has one with a maxDuration that ran before."""
    job, run = pending.job, pending.run
    if run is not None and (run.placement is not None or (run.starts and job.max_duration_ms is not None)):
        return (job.id,)
    return run is not None, run is not None and run.starts > 0, pending.job_options


rank_of: Callable[[PendingJob], Rank] = attrgetter("job_options.precedence", "queued_at_ms", "job.position", "job.id")
"""The rank of a pending job."""

age_of: Callable[[PendingJob], tuple[Instant, JobId]] = attrgetter("queued_at_ms", "job.id")
"""Since when a pending job waits; ties go by name."""


def is_first_class(job: Job) -> bool:
    """Whether the job is interactive or a service, and can't be paused: training makes way for it within quota."""
    return not job.preemptible and job.type is not _TRAINING


SortKey: TypeAlias = tuple[bool, Likeness]
"""Whether the jobs' objects exist, and all of the jobs and their options except CPU and memory."""


class JobSort:
    """The classes of one queue whose jobs differ only in CPU and memory; never empty while it is in the queue.

    What fails for the least of them fails for all. If 10,000 jobs nearly all differ, a check is made once for each sort
    instead of once for each job. `has_run`: the jobs' objects exist.
    """

    def __init__(self, key: SortKey) -> None:
        self.key = key
        self.has_run = key[0]
        self.classes: dict[JobClass, None] = {}
        self._least: tuple[PoolOption, ...] | None = None

    def join(self, job_class: JobClass) -> None:
        """Add a class."""
        self.classes[job_class] = None
        self._least = None

    def leave(self, job_class: JobClass) -> None:
        """Remove a class."""
        del self.classes[job_class]
        self._least = None

    @property
    def first(self) -> PendingJob:
        """One of the jobs, to read what they all have in common."""
        return next(iter(self.classes)).first

    @property
    def least(self) -> tuple[PoolOption, ...]:
        """The options of the jobs, each with the least CPU and memory. Cost: O(classes) once these have changed.

        Kept: without that, one more job takes 1.4x if 10,000 jobs wait that nearly all differ.
        """
        if self._least is None:
            found = self.first.options
            for job_class in self.classes:
                pairs = zip(found, job_class.first.options, strict=True)
                found = tuple([option.no_more_than(other) for option, other in pairs])
            self._least = found
        return self._least


@dataclass(slots=True, eq=False)
class JobClass:
    """The jobs of one queue and one kind, in order; never empty. `reason`: why they waited when last checked."""

    queue: ProjectQueue
    kind: Kind
    sort: JobSort
    jobs: list[PendingJob] = field(default_factory=list)
    reason: Reason | None = None

    @property
    def first(self) -> PendingJob:
        """The first job."""
        return self.jobs[0]


class ProjectQueue:
    """A project's pending jobs of one quota domain.

    `ranked`: the classes by the rank of their first job. Without it, where 9,165 classes wait, one more takes 1.35x.
    """

    def __init__(self, project: ProjectName, domain: DomainName, others: ProjectQueue | None = None) -> None:
        """Begin empty, or with the jobs of another queue."""
        self.project = project
        self.domain = domain
        self.job_classes: dict[Kind, JobClass] = {}
        self.sorts: dict[SortKey, JobSort] = {}
        self.ranked: list[tuple[Rank, JobClass]] = []
        self._order: tuple[JobId, ...] | None = None
        for kind, job_class in (others.job_classes if others is not None else {}).items():
            self.join(kind, job_class.jobs)

    def join(self, kind: Kind, jobs: list[PendingJob]) -> None:
        """Add jobs of one kind. Cost: O(jobs of the kind), which are nearly sorted."""
        self._order = None
        job_class = self.job_classes.get(kind)
        before = None if job_class is None else rank_of(job_class.first)
        if job_class is None:
            key = jobs[0].run is not None, jobs[0].job_options.but_cpu_and_memory
            sort = self.sorts.setdefault(key, JobSort(key))
            job_class = self.job_classes[kind] = JobClass(self, kind, sort)
            sort.join(job_class)
        job_class.jobs += jobs
        job_class.jobs.sort(key=rank_of)
        if before is None or rank_of(job_class.first) < before:
            self._rank(job_class, before)

    def leave(self, pending: PendingJob, job_class: JobClass) -> None:
        """Remove a job of a class."""
        self._order = None
        rank, is_first = rank_of(pending), pending is job_class.first
        del job_class.jobs[bisect_left(job_class.jobs, rank, key=rank_of)]
        if is_first:
            self._rank(job_class, rank)
        if not job_class.jobs:
            del self.job_classes[job_class.kind]
            job_class.sort.leave(job_class)
            if not job_class.sort.classes:
                del self.sorts[job_class.sort.key]

    def _rank(self, job_class: JobClass, before: Rank | None) -> None:
        """Rank a class again after its first job, which had the rank `before`, changed or left."""
        if before is not None:
            del self.ranked[bisect_left(self.ranked, (before,))]
        if job_class.jobs:
            insort(self.ranked, (rank_of(job_class.first), job_class))

    @property
    def order(self) -> tuple[JobId, ...]:
        """All jobs in order. Cost: O(jobs log jobs) after a change. Kept: an unchanged cycle takes 1.35x without."""
        if self._order is None:
            jobs = chain.from_iterable([job_class.jobs for job_class in self.job_classes.values()])
            self._order = tuple([pending.job.id for pending in sorted(jobs, key=rank_of)])
        return self._order
