"""Elastic runs that grow again: into what is idle once everybody has had a turn, the furthest below its share first.

The pods of a run are made with one placement as long as it runs, so it grows in place only where they can go: on the
nodes they name and, where GPUs are claimed by name, on those GPUs. Elsewhere it has all its workers at its next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuctl.model.decision import Placement, Reason, Resize, TraceStep, WorkerPlacement
from gpuctl.model.declared import Way
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import RunPhase
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.schedule import reasons
from gpuctl.schedule.accounts import project_owner
from gpuctl.schedule.books import Books
from gpuctl.schedule.capacity import Capacity
from gpuctl.schedule.demand import Demand, Prospects
from gpuctl.schedule.fit import Request, holds, of_its_kind, slots_in
from gpuctl.schedule.gang import Offer, Seat
from gpuctl.schedule.ordering import job_rank
from gpuctl.schedule.outcome import Outcome
from gpuctl.schedule.rights import forbidden, standing
from gpuctl.schedule.runs import Holder, record_of


class Growing:
    """A run that goes on with fewer workers than it asks for, and what one worker more would be."""

    __slots__ = ("holder", "job", "made_with", "offer", "workers")

    def __init__(self, holder: Holder, job: Job, made_with: Placement, offer: Offer) -> None:
        self.holder = holder
        self.job = job
        self.made_with = made_with
        self.offer = offer
        self.workers = list(holder.placement.workers)

    @property
    def nodes(self) -> set[NodeName]:
        """Where its pods can go."""
        return {worker.node for worker in self.made_with.workers}

    @property
    def is_claimed(self) -> bool:
        """Whether its pods ask for GPUs by name."""
        return self.offer.pool.way is not Way.COUNT

    def most(self, capacity: Capacity) -> int:
        """With how many workers it could go on, were nothing else there."""
        if self.is_claimed:
            return min(self.job.workers, len(self.made_with.workers))
        request = self.offer.request._replace(workers=self.job.workers)
        most = 0
        for node in self.nodes:
            space = capacity.nodes.get(node)
            if space is not None and space.usable and space.pool == self.offer.pool.name:
                devices = of_its_kind(space.gpu_milli, space.profiles, request)
                most += slots_in(devices, space.cpu_milli, space.mem_bytes, request)
        return min(self.job.workers, most)

    def next_worker(self, books: Books) -> WorkerPlacement | None:
        """A place for one worker more that is free now."""
        request = self.offer.request
        asked: dict[str, set[int]] = {}
        for worker in self.made_with.workers:
            asked.setdefault(worker.node, set()).update(worker.gpus)
        for node in sorted(self.nodes):
            room = books.now.rooms.get(node)
            if room is None or room.pool != self.offer.pool.name or not holds(room, request):
                continue
            kind = [i for i in range(len(room.gpu_milli)) if room.profile_of(i) == request.profile]
            free = [(room.gpu_milli[i], i) for i in kind if not self.is_claimed or i in asked[node]]
            devices = _devices(free, request)
            if devices is not None:
                return WorkerPlacement(node=node, gpus=devices)
        return None


def growing(holders: Iterable[Holder], prospects: Prospects) -> Iterator[Growing]:
    """The runs that could have more workers. One whose last workers still leave waits until they have left."""
    for holder in holders:
        job, run = holder.job, holder.run
        if job is None or run.phase is not RunPhase.RUNNING or len(holder.placement.workers) >= job.workers:
            continue
        offers = prospects.offers(job)
        if run.made_with is None or run.leaving is not None or not isinstance(offers, tuple):
            continue
        for offer in offers:
            if prospects.pool_of(holder.placement) == offer.pool.name:
                each = Offer(offer.pool, offer.request._replace(workers=1))
                yield Growing(holder, job, run.made_with, each)


def count_growth(runs: Iterable[Growing], capacity: Capacity, demand: Demand) -> None:
    """What they could use besides is demand of their projects."""
    for run in runs:
        more = run.most(capacity) - len(run.workers)
        if more > 0 and run.holder.domain is not None:
            demand.more(run.holder.domain, run.holder.project, more * run.offer.request.gpu_milli)


def grow(runs: Iterable[Growing], books: Books, restless: set[NodeName]) -> list[Growing]:
    """Give them workers one by one, within every ceiling; those that grew.

    A new pod may go to any node its run's pods name, so nothing else may be about to start on one of these.
    """
    left = [run for run in runs if restless.isdisjoint(run.nodes)]
    grown: dict[JobId, Growing] = {}

    def rank(run: Growing) -> tuple[GpuMilli, tuple[bool, int, int, JobId]]:
        holder = run.holder
        over = 0 if holder.domain is None else books.accounts.over_share(holder.domain, holder.project)
        return over, job_rank(run.job, holder.run.queued_at_ms)

    while left:
        first = min(left, key=rank)
        others = {node for run in grown.values() if run is not first for node in run.nodes}
        may_grow = others.isdisjoint(first.nodes) and not _is_forbidden(first, books)
        worker = first.next_worker(books) if may_grow else None
        if worker is None:
            left.remove(first)
            continue
        books.occupy(first.job, Seat(first.offer, Placement(workers=(worker,))))
        first.workers.append(worker)
        grown[first.job.id] = first
        if len(first.workers) >= first.job.workers:
            left.remove(first)
    return list(grown.values())


def _is_forbidden(run: Growing, books: Books) -> bool:
    domain = run.holder.domain
    return domain is None or forbidden(books.accounts, run.job, domain, run.offer.request.gpu_milli) is not None


def _devices(free: Sequence[tuple[GpuMilli, int]], request: Request) -> tuple[int, ...] | None:
    """Whole devices, or the one with the least room that is enough."""
    if request.fraction_milli:
        enough = sorted(entry for entry in free if entry[0] >= request.fraction_milli)
        return (enough[0][1],) if enough else None
    whole = [index for milli, index in free if milli >= WHOLE_GPU][: request.devices]
    return tuple(whole) if len(whole) == request.devices else None


def resizes(outcome: Outcome, smaller: Iterable[Growing], books: Books, holders: Iterable[Holder]) -> Iterator[Resize]:
    """Who goes on with fewer workers, for the first that some were given up for; and who grows into what is left.

    `holders` are all runs in place.
    """
    for job, gone in outcome.given_up.items():
        if job in outcome.pauses:
            continue
        run, declared = gone[0].holder.run, gone[0].holder.job
        workers = run.placement.workers[: -len(gone)] if run.placement else ()
        most = declared.workers if declared else len(workers)
        yield Resize(
            job=job,
            reason=reasons.gave_up_workers(gone[0].beneficiary, len(workers), most),
            record=record_of(run, books.now_ms),
            placement=Placement(workers=workers),
            beneficiary=gone[0].beneficiary,
        )
    busy = outcome.pauses.keys() | outcome.given_up.keys() | outcome.shifts.keys()
    left = [run for run in smaller if run.job.id not in busy]
    for grown in grow(left, books, _restless(outcome, holders) if left else set()):
        numbers = {"from": len(grown.holder.placement.workers), "to": len(grown.workers)}
        outcome.trace.append(TraceStep(job=grown.job.id, rule="grow", numbers=numbers))
        yield Resize(
            job=grown.job.id,
            reason=_standing(grown, books),
            record=record_of(grown.holder.run, books.now_ms),
            placement=Placement(workers=tuple(grown.workers)),
        )


def _restless(outcome: Outcome, holders: Iterable[Holder]) -> set[NodeName]:
    """Nodes on which somebody starts, is promised a place, or is leaving one."""
    seats = [seat.placement for seat, _ in (*outcome.started.values(), *outcome.reserved.values())]
    moved = [shift.move.seat.placement for shift in outcome.shifts.values()]
    going = [h.placement for h in holders if h.leaving or h.run.phase is RunPhase.STARTING]
    return {worker.node for placement in (*seats, *moved, *going) for worker in placement.workers}


def _standing(grown: Growing, books: Books) -> Reason:
    """Why it may run with all it has now."""
    domain, project = grown.holder.domain, grown.holder.project
    if domain is None or not grown.offer.request.gpu_milli:
        return reasons.runs_without_gpu()
    return standing(books.accounts, domain, project, books.accounts.held(domain, project_owner(project)))
