"""The pending jobs of each project, in order and by class, carried from cycle to cycle.

If all jobs of a project can be paused and count in only one domain, the project demands their sum. Otherwise they are
counted job by job. Cost: O(log jobs) for each job that is added or removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from operator import attrgetter
from typing import TypeAlias

from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.dirty import DirtyProjects
from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.jobs.project_queue import JobClass, JobOptions, Kind, PendingJob, ProjectQueue, kind_of, rank_of
from gpuctl.engine.jobs.runs import record_of
from gpuctl.engine.jobs.static_fit import StaticFit
from gpuctl.engine.jobs.timing import is_retry, reason_to_wait
from gpuctl.model.decision import Decision, Pending, Reason, RunRecord
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Run
from gpuctl.model.units import Instant

QueueKey: TypeAlias = tuple[ProjectName, DomainName]

_id_of: Callable[[PendingJob], JobId] = attrgetter("job.id")


def pending_decisions(job_classes: Iterable[JobClass]) -> dict[JobId, Decision]:
    """The decision to wait for each job of the classes that have a reason."""
    return {
        pending.job.id: Pending(job=pending.job.id, reason=job_class.reason, record=pending.record)
        for job_class in job_classes
        if job_class.reason is not None
        for pending in job_class.jobs
    }


class PendingJobs:
    """All pending jobs: those that could start, by project, and those that can't, each with its reason.

    `retries`: those that may take only idle GPUs. They are in no queue, so they demand, reserve and reclaim nothing.
    `paused_for`: for each beneficiary, how many of the pending jobs were paused for it.
    """

    def __init__(self, capacity: Capacity, static_fit: StaticFit, dirty: DirtyProjects) -> None:
        self.capacity = capacity
        self._static_fit = static_fit
        self._dirty = dirty
        self.domains = tuple(dict.fromkeys(capacity.domain_of.values()))
        self._pending: dict[JobId, PendingJob] = {}
        self._with_reservation: set[JobId] = set()
        self.paused_for: Counter[JobId] = Counter()
        self.queues: dict[QueueKey, ProjectQueue] = {}
        self.retries: dict[JobId, PendingJob] = {}
        self.unable: dict[JobId, tuple[Job, Run | None, Reason]] = {}

    def __bool__(self) -> bool:
        """Whether any job is pending."""
        return bool(self._pending or self.unable)

    def __contains__(self, job: JobId) -> bool:
        """Whether a job is pending."""
        return job in self._pending or job in self.unable

    def why(self, job: JobId, now_ms: Instant) -> tuple[RunRecord, Reason]:
        """The record and the last reason of a pending job without a place. Raises KeyError for any other."""
        retry = self.retries.get(job)
        if retry is not None and retry.run is not None:
            return retry.record, reason_to_wait(retry.run)
        unable = self.unable.get(job)
        if unable is not None:
            return record_of(unable[1], now_ms), unable[2]
        job_class = self.class_of(job)
        if job_class.reason is None:
            raise KeyError(job)
        return self.find(job).record, job_class.reason

    def refit(self, capacity: Capacity, nodes: Collection[NodeName]) -> set[JobId]:
        """Take over changed nodes. Returns the jobs whose options may differ because of them."""
        self.capacity = capacity
        others = set(self.unable)
        if self._static_fit.refit(capacity, nodes):
            others.update(self._pending)
        return others

    def job_classes(self) -> Iterator[JobClass]:
        """The classes of all jobs that could start."""
        return (job_class for queue in self.queues.values() for job_class in queue.job_classes.values())

    def left(self, decided: Collection[JobId]) -> Iterator[PendingJob]:
        """The first job of each class that is not decided."""
        for job_class in self.job_classes():
            yield from islice((pending for pending in job_class.jobs if pending.job.id not in decided), 1)

    @property
    def sorts(self) -> tuple[PoolOption, ...]:
        """One option of each sort that jobs ask for. Cost: O(queues and their sorts)."""
        sorts = chain.from_iterable(queue.sorts.values() for queue in self.queues.values())
        fewest = (option.fewest for job_sort in sorts for option in job_sort.first.options)
        return tuple({option.sort: option for option in fewest}.values())

    def queues_of(self, project: ProjectName) -> list[ProjectQueue]:
        """A project's queues, at most one for each domain."""
        found = (self.queues.get((project, domain)) for domain in self.domains)
        return [queue for queue in found if queue is not None]

    def join(self, jobs: Iterable[tuple[Job, Run | None]], now_ms: Instant) -> None:
        """Add pending jobs; a job without a run is queued from now. Cost: what a class has in common is read once."""
        alike: defaultdict[Kind, list[PendingJob]] = defaultdict(list)
        for job, run in jobs:
            job_options = self._static_fit.of(job)
            if isinstance(job_options, JobOptions):
                since, is_idle_only = run.queued_at_ms if run else now_ms, is_retry(run, now_ms)
                pending = PendingJob(job, run, since, job_options, job_options.domain, is_idle_only)
                if is_idle_only:
                    self._pending[job.id] = self.retries[job.id] = pending
                    continue
                alike[kind_of(pending)].append(pending)
                if run is not None and run.placement is not None:
                    self._with_reservation.add(job.id)
                if run is not None and run.paused_for is not None:
                    self.paused_for[run.paused_for] += 1
            else:
                self.unable[job.id] = job, run, job_options
        for kind, members in alike.items():
            self._enter(kind, members)

    def is_queued(self, job: JobId) -> bool:
        """Whether a job could start and is in a queue, so that `class_of` finds it."""
        return job in self._pending and job not in self.retries

    def find(self, job: JobId) -> PendingJob:
        """A job that could start. Raises KeyError for any other."""
        return self._pending[job]

    def class_of(self, job: JobId) -> JobClass:
        """The class of a job that could start, and is in a queue. Raises KeyError for any other."""
        pending = self._pending[job]
        return self.queues[job.project, pending.domain].job_classes[kind_of(pending)]

    def leave(self, job: JobId) -> None:
        """Remove a job, if it is pending."""
        self.unable.pop(job, None)
        if self.retries.pop(job, None) is not None:
            del self._pending[job]
        pending = self._pending.get(job)
        if pending is not None:
            self._with_reservation.discard(job)
            beneficiary = pending.run.paused_for if pending.run is not None else None
            if beneficiary is not None:
                self.paused_for -= Counter((beneficiary,))
            self._exit(pending)

    def count(self, demand: Demand, stopping: Iterable[Job]) -> None:
        """Count all pending jobs as demand, each in its domain, and those whose runs are stopping, which wait from then
        on.

        Cost: the dirty projects; a project with a stopping run is dirty until that run has stopped.
        """
        for project in demand.renew():
            classes = [each for queue in self.queues_of(project) for each in queue.job_classes.values()]
            if all(each.first.job_options.is_plain for each in classes):
                for each in classes:
                    demand.more(each.queue.domain, project, each.first.gpu_milli * len(each.jobs))
                continue
            for pending in sorted(chain.from_iterable([each.jobs for each in classes]), key=rank_of):
                domain = demand.count(pending.job, pending.job_options, self._reserved_in(pending))
                if domain != pending.domain:
                    self._exit(pending)
                    self._enter(kind_of(pending), [replace(pending, domain=domain)])
        for job in stopping:
            options = self._static_fit.of(job)
            if isinstance(options, JobOptions):
                demand.count(job, options)
                self._dirty.of(job.id.project)

    def _reserved_in(self, pending: PendingJob) -> DomainName | None:
        place = pending.run.placement if pending.run is not None else None
        pool = None if place is None else self.capacity.pool_of(place)
        return None if pool is None else self.capacity.domain_of.get(pool)

    def reserved_before(self) -> list[PendingJob]:
        """The jobs with a reservation, in order."""
        return sorted(map(self._pending.__getitem__, self._with_reservation), key=rank_of)

    def _enter(self, kind: Kind, alike: list[PendingJob]) -> None:
        """Add jobs of one kind and domain to their queue."""
        project, domain = alike[0].job.id.project, alike[0].domain
        self._dirty.of(project)
        queue = self.queues.get((project, domain))
        if queue is None:
            queue = self.queues[project, domain] = ProjectQueue(project, domain)
        queue.join(kind, alike)
        self._pending.update(zip(map(_id_of, alike), alike, strict=True))

    def _exit(self, pending: PendingJob) -> None:
        job = pending.job.id
        job_class = self.class_of(job)
        queue = job_class.queue
        self._dirty.of(queue.project)
        queue.leave(pending, job_class)
        del self._pending[job]
        if not queue.job_classes:
            del self.queues[queue.project, queue.domain]
