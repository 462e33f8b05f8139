"""Who waits, in which order inside a project, and who is alike: people before machines, priority, who came first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.model.columns import of_rows
from gpuctl.model.decision import RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run, remembered
from gpuctl.model.units import GpuMilli, Instant

Rank: TypeAlias = tuple[tuple[bool, int], Instant, JobId]
"""A job's place in its project's order: the least is first."""

Likeness: TypeAlias = tuple[object, ...]
"""All of a declared job that its turn may depend on: what it asks for, and whose it is."""

Kind: TypeAlias = tuple[object, ...]
"""All of a waiting job that its turn may depend on: jobs of one kind come to the same."""

_TRAINING = JobType.TRAINING

likeness: Callable[[Job], Likeness] = attrgetter(
    "id.project", "type", "priority", "preemptible", "gpu_milli", "gpu_mem_bytes", "workers", "min_workers",
    "cpu_milli", "mem_bytes", "max_duration_ms", "pools",
)  # fmt: skip
"""The likeness of a job."""


size: Callable[[Job], tuple[object, ...]] = attrgetter(
    "gpu_milli", "gpu_mem_bytes", "workers", "min_workers", "cpu_milli", "mem_bytes", "pools"
)
"""What a job asks for, whoever asks."""


_standing: Callable[[Job], tuple[object, ...]] = attrgetter(
    "type", "priority", "preemptible", "gpu_milli", "gpu_mem_bytes", "workers", "min_workers", "pools"
)
"""All of its likeness but whose it is, CPU, memory, and how long it may take."""


class JobOptions:
    """What all jobs that are alike could have on empty nodes: their options, at least one, in their order.

    One object as long as that is so. `sorts`: of the options. `wanted`: in each quota domain, in their order, GPUs
    of all workers in the pool they prefer there; `domain` and `milli` are the first. `is_plain`: they can be paused,
    and want nothing of another domain.
    `precedence`: what of their rank they have in common. `terms`: all that reasons depend on in a project.
    """

    __slots__ = ("domain", "is_plain", "milli", "options", "precedence", "sorts", "terms", "wanted")

    def __init__(self, job: Job, options: tuple[PoolOption, ...], domain_of: Mapping[PoolName, DomainName]) -> None:
        self.options = options
        self.sorts = tuple([option.fewest.sort for option in options])
        self.terms = _standing(job), self.sorts
        self.precedence = _precedence(job.type is _TRAINING, job.priority)
        wanted: dict[DomainName, GpuMilli] = {}
        for option in options:
            wanted.setdefault(domain_of[option.pool.name], option.request.total_milli)
        self.wanted = tuple(wanted.items())
        self.domain, self.milli = self.wanted[0]
        self.is_plain = job.preemptible and len(self.wanted) == 1


@dataclass(slots=True, eq=False)
class PendingJob:
    """A job that could start: since when it waits, what it could have, and the domain it is counted in.

    Nobody changes it; that Python sees to that would double what it costs.
    """

    job: Job
    run: Run | None
    queued_at_ms: Instant
    prospect: JobOptions
    domain: DomainName

    @property
    def record(self) -> RunRecord:
        """What is remembered of its run."""
        return RunRecord(queued_at_ms=self.queued_at_ms) if self.run is None else self.run.record

    @property
    def options(self) -> tuple[PoolOption, ...]:
        """The pools it could use, in its order."""
        return self.prospect.options

    @property
    def gpu_milli(self) -> GpuMilli:
        """GPUs of all workers, in the pool it prefers."""
        return self.prospect.milli


def records_of(some: Iterable[PendingJob]) -> list[RunRecord]:
    """What is remembered of the run of each."""
    rows = [RunRecord(w.queued_at_ms) if w.run is None else remembered(w.run) for w in some]
    return of_rows(RunRecord, rows)


def kind_of(waiting: PendingJob) -> Kind:
    """Its kind. One that was promised a place is alone, and one that ran before if its time is limited."""
    job, run = waiting.job, waiting.run
    if run is not None and (run.placement is not None or (run.starts and job.max_duration_ms is not None)):
        return (job.id,)
    return run is not None, run is not None and run.starts > 0, waiting.prospect


@lru_cache(maxsize=1024)
def _precedence(is_training: bool, priority: int) -> tuple[bool, int]:  # noqa: FBT001 - a part of a rank
    """One object for all that have it: so ranks are compared at no cost."""
    return is_training, -priority


def job_rank(job: Job, queued_at_ms: Instant) -> Rank:
    """The order inside a project: interactive and inference before training, priority, first queued, name."""
    return _precedence(job.type is _TRAINING, job.priority), queued_at_ms, job.id


rank_of: Callable[[PendingJob], Rank] = attrgetter("prospect.precedence", "queued_at_ms", "job.id")
"""The rank of a waiting job."""


def is_first_class(job: Job) -> bool:
    """A person's work or a service, that can't be paused: training of its project makes way for it within quota."""
    return not job.preemptible and job.type is not _TRAINING
