"""Who is next: among projects the one with the least of its fair share, inside a project people before machines.

Projects take turns in lanes, one for each quota domain their waiting jobs are meant for. A lane whose next job is
within its guarantee goes before the others: what it is owed need not be taken back later from whoever got it first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.model.decision import RunRecord
from gpuctl.model.declared import DomainName
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run
from gpuctl.model.units import Instant
from gpuctl.schedule.accounts import Accounts, project_owner
from gpuctl.schedule.gang import Offer

Rank: TypeAlias = tuple[bool, int, Instant, JobId]
"""A job's place in its project's order: the least is first."""

Kind: TypeAlias = int | JobId
"""A number for all that are alike. One that ran before is of no kind but its own: who made way for it is remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A job that could start: since when it waits, the pools it could use, and the domain it is counted in.

    `record` is what is remembered of its run. Jobs of the same `kind` come to the same, whichever is asked.
    """

    job: Job
    run: Run | None
    queued_at_ms: Instant
    offers: tuple[Offer, ...]
    domain: DomainName
    record: RunRecord
    kind: Kind

    def in_domain(self, domain: DomainName) -> Waiting:
        """The same, counted in another domain."""
        return replace(self, domain=domain)

    @property
    def gpu_milli(self) -> int:
        """GPUs of all workers, in the pool it prefers."""
        return self.offers[0].request.total_milli if self.offers else self.job.total_gpu_milli


def likeness(job: Job, offers: tuple[Offer, ...], *, known: bool) -> tuple[object, ...]:
    """All of a waiting job, which has a run or not, that a turn may depend on."""
    return (
        job.id.project, known, job.type.value, job.priority, job.preemptible, job.gpu_milli, job.gpu_mem_bytes,
        job.workers, job.min_workers, job.cpu_milli, job.mem_bytes, job.max_duration_ms, job.pools,
        tuple((offer.pool.name, offer.request, offer.least) for offer in offers),
    )  # fmt: skip


def job_rank(job: Job, queued_at_ms: Instant) -> Rank:
    """The order inside a project: interactive and inference before training, priority, first queued, name."""
    return job.type is JobType.TRAINING, -job.priority, queued_at_ms, job.id


class Lane:
    """A project's waiting jobs of one domain, in order, and how they compare with other lanes right now."""

    __slots__ = ("accounts", "domain", "guarantee", "held", "jobs", "owed", "owner", "project", "share")

    def __init__(self, project: ProjectName, domain: DomainName, jobs: deque[Waiting], accounts: Accounts) -> None:
        self.project = project
        self.domain = domain
        self.jobs = jobs
        self.accounts = accounts
        self.owner = project_owner(project)
        portion = accounts.portion(domain, self.owner)
        self.guarantee = portion.guarantee_milli
        self.share = portion.share_milli
        self.held = 0
        self.owed = False
        self.refresh()

    def refresh(self) -> None:
        """Read what the project holds anew; call it whenever that or the next job changed."""
        self.held = self.accounts.held(self.domain, self.owner)
        self.owed = bool(self.jobs) and self.held + self.jobs[0].gpu_milli <= self.guarantee

    def __lt__(self, other: Lane) -> bool:
        if self.owed is not other.owed:
            return self.owed
        if (self.share > 0) is not (other.share > 0):
            return self.share > 0
        mine, theirs = (self.held * other.share, other.held * self.share) if self.share > 0 else (self.held, other.held)
        if mine != theirs:
            return mine < theirs
        since, others_since = self.jobs[0].queued_at_ms, other.jobs[0].queued_at_ms
        return (since, self.project, self.domain) < (others_since, other.project, other.domain)
