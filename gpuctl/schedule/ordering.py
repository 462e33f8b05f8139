"""Who waits, in which order inside a project, and who is alike: people before machines, priority, who came first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeAlias

from gpuctl.model.decision import RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule.gang import Offer

Rank: TypeAlias = tuple[bool, int, Instant, JobId]
"""A job's place in its project's order: the least is first."""

Likeness: TypeAlias = tuple[object, ...]
"""All of a declared job that its turn may depend on: what it asks for, and whose it is."""

Kind: TypeAlias = tuple[object, ...]
"""All of a waiting job that its turn may depend on: jobs of one kind come to the same."""

likeness: Callable[[Job], Likeness] = attrgetter(
    "id.project", "type", "priority", "preemptible", "gpu_milli", "gpu_mem_bytes", "workers", "min_workers",
    "cpu_milli", "mem_bytes", "max_duration_ms", "pools",
)  # fmt: skip
"""The likeness of a job."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A job that could start: since when it waits, the pools it could use, and the domain it is counted in.

    `record` is what is remembered of its run.
    """

    job: Job
    run: Run | None
    queued_at_ms: Instant
    offers: tuple[Offer, ...]
    domain: DomainName
    record: RunRecord

    def in_domain(self, domain: DomainName) -> Waiting:
        """The same, counted in another domain."""
        return replace(self, domain=domain)

    @property
    def gpu_milli(self) -> GpuMilli:
        """GPUs of all workers, in the pool it prefers."""
        return self.offers[0].request.total_milli if self.offers else self.job.total_gpu_milli


def kind_of(waiting: Waiting) -> Kind:
    """Its kind. One that ran before, or was promised a place, is alone: who made way for it is remembered."""
    job, run = waiting.job, waiting.run
    if run is not None and (run.starts or run.placement is not None):
        return (job.id,)
    return run is not None, likeness(job), tuple([offer.wish for offer in waiting.offers])


def job_rank(job: Job, queued_at_ms: Instant) -> Rank:
    """The order inside a project: interactive and inference before training, priority, first queued, name."""
    return job.type is JobType.TRAINING, -job.priority, queued_at_ms, job.id


def is_first_class(job: Job) -> bool:
    """A person's work or a service, that can't be paused: training of its project makes way for it within quota."""
    return job.type is not JobType.TRAINING and not job.preemptible
