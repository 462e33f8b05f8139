"""Every legal way in which a waiting job could run: sets of victims, surplus workers and moved runs, with places; and
the cluster after a way was carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName, PoolName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Run, RunPhase

from .cluster import TinyCluster, workers_of
from .rules import Claim, Loss, Right, makes_way, may_move_others, may_stop, rights, within_ceilings, within_share
from .view import Devices, Held, View, Worker, place

Reach = Mapping[str, frozenset[int]]
"""Devices by node."""


class Price(NamedTuple):
    """The cost of a way: a straddled guarantee comes last; then GPUs lost; then runs paused; then moves."""

    straddles: bool
    milli: int
    runs: int
    moves: int


@dataclass(frozen=True)
class Way:
    """A legal way for a job to run with so many workers; `seats` says whether it has places."""

    claim: Claim
    workers: int
    moved: tuple[Held, ...]
    rights: frozenset[Right]
    reach: Reach | None = None
    """For one more worker of a run that goes on: the devices it can have."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The runs, or parts of runs, that leave."""
        return self.claim.losses

    @property
    def price(self) -> Price:
        """The cost of the way by itself."""
        milli = sum(loss.milli for loss in self.losses)
        runs = sum(not loss.is_surplus for loss in self.losses)
        return Price(Right.STRADDLE in self.rights, milli, runs, len(self.moved))

    @property
    def is_idle(self) -> bool:
        """Whether the way touches no run."""
        return not self.losses and not self.moved

    @cached_property
    def seats(self) -> Seats | None:
        """Places for the job and for the moved runs; None if there are none."""
        gone = [(loss.held, loss.workers) for loss in self.losses] + [(held, len(held.workers)) for held in self.moved]
        if self.reach is None:
            return seats(self.claim.view, self.claim.job, self.workers, self.moved, gone)
        worker = seat_within(self.claim.view, self.claim.job, self.reach, gone)
        return None if worker is None else Seats((worker,), ())

    def tells(self) -> str:
        """The way in one line."""
        parts = [f"{loss.held.job.id}-{loss.workers}w" for loss in self.losses]
        parts += [f"{held.job.id} moves" for held in self.moved]
        return f"{self.workers}w for {', '.join(parts) or 'idle GPUs'} by {'+'.join(sorted(self.rights)) or '-'}"


@dataclass(frozen=True, slots=True)
class Seats:
    """The places of the job, and of each moved run."""

    workers: tuple[Worker, ...]
    moved: tuple[tuple[Held, tuple[Worker, ...]], ...]


def seats(view: View, job: Job, workers: int, moved: Sequence[Held], gone: Iterable[tuple[Held, int]]) -> Seats | None:
    """Places for a job and moved runs together, in what is free once some runs have left: each in one of its pools."""
    free = view.free(gone)
    asks = [(job, job.gpu_milli, workers)] + [(h.job, h.run.gpu_milli, len(h.workers)) for h in moved]
    able = [[pool for pool in each.pools if view.can_share(each, pool)] for each, _, _ in asks]
    for pools in product(*able):
        found = _seats_in(free, [(milli, count) for _, milli, count in asks], pools)
        if found is not None:
            return Seats(tuple(found[0]), tuple((h, tuple(w)) for h, w in zip(moved, found[1:], strict=True)))
    return None


def seat_within(view: View, job: Job, reach: Reach, gone: Iterable[tuple[Held, int]]) -> Worker | None:
    """A place for one worker on the devices it can have."""
    for nodes in view.free(gone).values():
        able = {
            node: tuple(milli if gpu in reach[node] else 0 for gpu, milli in enumerate(left))
            for node, left in nodes.items()
            if node in reach
        }
        found = place([(job.gpu_milli, 1)], able)
        if found is not None:
            return found[0][0]
    return None


def _seats_in(
    free: dict[PoolName, dict[str, Devices]], asks: Sequence[tuple[int, int]], pools: Sequence[PoolName]
) -> list[list[Worker]] | None:
    found: list[list[Worker]] = [[] for _ in asks]
    for pool in set(pools):
        here = [index for index, each in enumerate(pools) if each == pool]
        placed = place([asks[index] for index in here], free[pool])
        if placed is None:
            return None
        for index, workers in zip(here, placed, strict=True):
            found[index] = workers
    return found


def ways(view: View, job: Job) -> list[Way]:
    """All ways that the rules allow, for each number of workers that the job may run with; places are not checked.

    Cost: the product, over the runs that may stop, of what may happen to each.
    """
    found: list[Way] = []
    for workers in range(job.workers, job.min_workers - 1, -1):
        found += _ways_with(view, job, workers)
    return found


def growth(view: View, held: Held) -> list[Way]:
    """All legal ways to one more worker for an elastic run that lacks some; no run is moved for it."""
    if not view.lacks(held):
        return []
    one = replace(held.job, workers=1, min_workers=1)
    reach = view.reach(held)
    able = (way for way in ways(view, one) if not way.moved and not _leaves_elsewhere(way, reach))
    return [replace(way, reach=reach) for way in able]


def _leaves_elsewhere(way: Way, reach: Reach) -> bool:
    """Whether the project's own runs out of reach leave together with others' runs: they would start there again, and
    nothing would be gained."""
    project = way.claim.job.id.project
    own = [loss.held for loss in way.losses if loss.held.job.id.project == project]
    return len(own) < len(way.losses) and any(all(node not in reach for node, _ in held.workers) for held in own)


def _ways_with(view: View, job: Job, workers: int) -> Iterator[Way]:
    milli = job.gpu_milli * workers
    domain = view.domain_for(job)
    able = [held for held in view.held if held.domain == domain and held.job.preemptible]
    own = tuple(Loss(h, len(h.workers)) for h in able if h.job.id.project == job.id.project and makes_way(h.job, job))
    # The most that own runs can leave: if the project is above its share even then, it takes nothing from others.
    best = within_share(Claim(view, job, milli, own))
    choices = [list(_choices(view, job, held, is_entitled=best)) for held in able]
    for chosen in product(*choices):
        losses = tuple(Loss(h, count) for h, count in zip(able, chosen, strict=True) if count > 0)
        moved = tuple(h for h, count in zip(able, chosen, strict=True) if count < 0)
        claim = Claim(view, job, milli, losses)
        if not within_ceilings(claim) or (moved and not may_move_others(claim, moved)):
            continue
        by = rights(claim)
        if by is not None:
            yield Way(claim, workers, moved, frozenset(by.values()))


MOVED = -1


def _choices(view: View, job: Job, held: Held, *, is_entitled: bool) -> Iterator[int]:
    """How many workers of a run may leave; MOVED: it goes on elsewhere."""
    yield 0
    is_own = held.job.id.project == job.id.project
    if makes_way(held.job, job) if is_own else is_entitled:
        if held.job.type is not JobType.INFERENCE:  # Which of its replicas goes is not ours to choose.
            yield from range(1, len(held.workers) - held.job.min_workers + 1)
        if may_stop(held, view):
            yield len(held.workers)
    may_move = is_entitled and may_stop(held, view) and held.run.paused_for != job.id
    if may_move and view.tree.cluster.scheduling.consolidation:
        yield MOVED


def feasible(found: Iterable[Way]) -> Iterator[Way]:
    """The ways that have places."""
    return (way for way in found if way.seats is not None)


def largest(found: Sequence[Way]) -> Way | None:
    """The way with places for the most workers; of these, the one with the lowest price."""
    return next(feasible(sorted(found, key=lambda way: (-way.workers, way.price))), None)


def carried_out(before: TinyCluster, way: Way, found: Seats) -> TinyCluster:
    """The cluster after a way was carried out: the job runs, its victims wait, moved runs are at their new places."""
    after = before.copy()
    job = way.claim.job
    for loss in way.losses:
        run = loss.held.run
        if loss.is_surplus and run.placement is not None:
            kept = run.placement.workers[: workers_of(run) - loss.workers]
            after.runs[run.job] = replace(run, placement=Placement(workers=kept))
        else:
            after.runs[run.job] = replace(
                run,
                phase=RunPhase.QUEUED,
                placement=None,
                queued_at_ms=before.now_ms,
                started_at_ms=None,
                paused_for=job.id,
            )
    for held, workers in ((None, found.workers), *found.moved):
        placement = Placement(workers=tuple(WorkerPlacement(node=NodeName(n), gpus=g) for n, g in workers))
        if held is None and way.reach is not None:
            after.runs[job.id] = _grown(after.runs[job.id], placement)
            continue
        run = after.runs[job.id] if held is None else held.run
        milli = job.gpu_milli if held is None else run.gpu_milli
        after.runs[run.job] = replace(
            run, phase=RunPhase.RUNNING, placement=placement, gpu_milli=milli, started_at_ms=before.now_ms
        )
    return after


def _grown(run: Run, more: Placement) -> Run:
    """A run that goes on with more workers."""
    kept = () if run.placement is None else run.placement.workers
    return replace(run, placement=Placement(workers=(*kept, *more.workers)))
