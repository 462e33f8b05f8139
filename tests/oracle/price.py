"""The price: whether a legal set would have cost less than what a job, and what followed from it, took."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, PoolName
from gpuctl.model.job import Job

from .cluster import Loss as Lost
from .cluster import TinyCluster
from .enumeration import Price, Way, carried_out, growth, largest, ways
from .families import Disagreement, Kind, Need, need_of
from .rules import Right
from .taken import others_placed, place_of, taken_for
from .view import View
from .worlds import WorldSpec

FOLLOWS = "what follows"
ANOTHER = "another set"
POOL = "an earlier pool"
STRADDLED = "a move spares a guarantee"
OWN_INSTEAD = "own work instead of a loan"
"""A cheaper way that DESIGN may not want: own runs of the beneficiary's project leave although others hold more than
their guarantee."""


def dear(
    spec: WorldSpec, tree: Declared, before: TinyCluster, after: TinyCluster, made: Schedule
) -> Iterator[Disagreement]:
    """Whether a legal set costs less than what was taken and what followed, and nothing would follow from that set."""
    job = next(job for job in tree.jobs if str(job.id) == spec.wanted)
    placement = place_of({d.job: d for d in made.decisions}[job.id])
    if placement is None or others_placed(made, job.id):
        return
    view = View(tree, before.state(), before.now_ms)
    taken = taken_for(view, job, placement, made)
    paid = _paid(after, job.id, taken)
    if paid <= Price(straddles=False, milli=0, runs=0, moves=0):
        return
    may_move = bool(taken.moved) or paid.straddles
    pool = view.pool_of[placement.workers[0].node]
    mine = _rank(job, paid, pool)
    # A run that goes on elsewhere at once is as good as moved.
    beside_moves = _rank(job, _paid(after, job.id, taken, as_moves=True), pool)
    alike = (way for way in ways(view, job) if way.workers == taken.workers and (may_move or not way.moved))
    alike = (way for way in sorted(alike, key=lambda way: way.price) if job.pools_in_order or way.price[:3] < paid[:3])
    alike = (way for way in alike if _way_rank(way) < (beside_moves if way.moved else mine))
    found: dict[str, Way] = {}
    for way in alike:
        need = _why_dear(way, taken, paid)
        if need not in found and _is_closed(tree, before, way):
            found[need] = way
    if found:
        need = min(found, key=lambda need: (need == OWN_INSTEAD, list(found).index(need)))
        tells = f"{found[need].tells()}, not {taken.tells()}; paid {paid.milli}"
        yield Disagreement(Kind.DEAR, need, spec, str(job.id), tells)


def _rank(job: Job, price: Price, pool: PoolName) -> tuple[bool, int, int, int]:
    """The order of ways; the lowest is taken: a straddled guarantee comes last; then pools by the job's list, if it has
    one; then the cheapest (DESIGN 4.4, 4.6, 4.5).
    """
    return price.straddles, job.pools.index(pool) if job.pools_in_order else 0, price.milli, price.runs


def _way_rank(way: Way) -> tuple[bool, int, int, int]:
    """The rank of a way with places; a way without places ranks above all others."""
    if way.seats is None:
        return True, len(way.claim.job.pools), 0, 0
    return _rank(way.claim.job, way.price, way.claim.view.pool_of[way.seats.workers[0][0]])


def _why_dear(way: Way, taken: Way, paid: Price) -> str:
    """What the cheaper way needs that the engine did not find."""
    if way.is_idle:
        return Need.IDLE
    if way.price[:3] >= paid[:3]:
        return POOL
    if way.moved and not taken.moved:
        return STRADDLED
    if taken.price[:3] <= way.price[:3] and taken.price != paid:
        return FOLLOWS
    if Right.OWN in way.rights and Right.OWN not in taken.rights:
        return OWN_INSTEAD
    return Need.MIXED if need_of(way) is Need.MIXED else ANOTHER


def _paid(after: TinyCluster, job: JobId, taken: Way, *, as_moves: bool = False) -> Price:
    """What was lost until the cluster was at rest, for the job and for those that were paused for it. `as_moves`: a run
    that goes on elsewhere at once counts as moved.

    Not included: what an elastic job takes once it runs, for more workers than it started with.
    """
    losers: set[JobId | None] = set()
    lost: list[Lost] = []
    for loss in after.losses:
        if loss.beneficiary in losers or (loss.beneficiary == job and loss.cycle == 0):
            losers.add(loss.job)
            lost.append(loss)
    paused = [loss for loss in lost if loss.kind != "move" and not (as_moves and loss.goes_on)]
    milli, runs = sum(loss.milli for loss in paused), len({loss.job for loss in paused if loss.kind != "shrink"})
    return Price(taken.price.straddles, milli, runs, len(lost) - len(paused))


def _is_closed(tree: Declared, before: TinyCluster, way: Way) -> bool:
    """Whether no run would be paused after the way was carried out: no job that waits then, and no elastic run that
    lacks workers, has anything to take. If idle GPUs do, they are taken first, one after another: by jobs, then by
    elastic runs.
    """
    found = way.seats
    assert found is not None
    after = carried_out(before, way, found)
    while True:
        view = View(tree, after.state(), after.now_ms, way.claim.job.id)
        waiting = sorted(view.waiting, key=lambda job: (-job.priority, job.id))
        of_jobs = (ways(view, job) for job in waiting if view.most_workers(job))
        of_runs = (growth(view, held) for held in view.held)
        best = [each for each in map(largest, chain(of_jobs, of_runs)) if each is not None]
        if not all(each.is_idle for each in best):
            return False
        if not best or best[0].seats is None:
            return True
        after = carried_out(after, best[0], best[0].seats)
