"""Jobs that may run with fewer workers: with how many they start, and which runs give up workers for other jobs.

In the snapshot an elastic run is one allocation of the workers it can't do without, and one of each surplus worker.
Workers leave in the order in which their Job drops them, the highest index first; with the others all leave. Surplus
workers go before any run is paused: first as many as may be are supposed gone, then runs are searched besides them,
and what was not needed after all is spared. How they get workers back is `admit/regain_workers` and
`admit/scale_up`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from gpuctl.engine.capacity.gang import PoolOption, place_in, slots_by_node
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Eviction, paused, victims_of
from gpuctl.engine.victims.reclaim import VictimTotals
from gpuctl.engine.victims.rules import VictimRule, totals_with, totals_with_all, with_leaving
from gpuctl.engine.victims.search import MAX_CANDIDATES, cheapest_of_few, find_victims
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId
from gpuctl.model.job import JobType
from gpuctl.model.units import GpuMilli

MAX_SIZES = 8
"""Numbers of workers for which room is made by pausing others, at most."""


def parted(allocations: Iterable[Allocation]) -> Iterator[Allocation]:
    """The allocations, with each run that could give up workers in parts. A service is not divided."""
    for allocation in allocations:
        job, workers = allocation.job, allocation.placement.workers
        divisible = job is not None and job.is_elastic and job.type is not JobType.INFERENCE and allocation.preemptible
        if job is None or not divisible or allocation.leaving or len(workers) <= job.min_workers:
            yield allocation
            continue
        parts: tuple[Allocation, ...] = ()
        each = allocation.per_worker.gpu_milli
        for worker in reversed(workers[job.min_workers :]):
            place = Placement(workers=(worker,))
            part = replace(allocation, placement=place, total_milli=each, is_extra=True, leaves_with=parts)
            parts = (*parts, part)
            yield part
        base = Placement(workers=workers[: job.min_workers])
        yield replace(allocation, placement=base, total_milli=each * job.min_workers, leaves_with=parts)


def victims_for(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """The runs and the extra workers to pause so that an option fits, and the rule allows it; None when there are none.

    Cost: as `find_victims`; where that need not be exact, and candidates are few, a search of all sets besides.
    """
    is_plain = rule.is_plain
    found = _with_extra_workers(snapshot, option, rule) if is_plain else _with_amounts(snapshot, option, rule)
    is_exact = is_plain and option.request.workers == 1 and (found is not None or not snapshot.elastic)
    if is_exact or len(rule.candidates()) > MAX_CANDIDATES:
        return found
    return _of_all_sets(snapshot, option, rule, found)


def _of_all_sets(
    snapshot: Snapshot, option: PoolOption, rule: VictimRule, found: tuple[Allocation, ...] | None
) -> tuple[Allocation, ...] | None:
    """The cheapest of all sets. One that was found stays the best of equals where only room was missing, for the walk
    knows which nodes are close together."""
    first = None
    cost = rule.cost(found) if found else None
    if found and cost is not None:
        first = cost._replace(preferences=()) if rule.is_plain else cost, (paused(rule, found),)
    evictions = [paused(rule, with_leaving(snapshot, (allocation,))) for allocation in rule.candidates()]
    best = cheapest_of_few(option, rule, evictions, lambda chosen: _is_allowed(rule, chosen), first)
    return None if best is None else victims_of(best[1])


def _is_allowed(rule: VictimRule, chosen: Iterable[Eviction]) -> bool:
    return rule.cost(victims_of(chosen)) is not None


def _with_amounts(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """The cheapest runs that make room, and the fewest others with which the rule allows it."""
    wholes = rule.among(allocation for allocation in rule.candidates() if not allocation.is_extra)
    is_free = place_in(snapshot.future_idle, option) is not None
    found = () if is_free else find_victims(snapshot, option, wholes)
    found = None if found is None else wholes.complete(found)
    return None if found is None else with_leaving(snapshot, found)


def _with_extra_workers(snapshot: Snapshot, option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """As `find_victims`, extra workers before all."""
    if not snapshot.elastic:
        return find_victims(snapshot, option, rule)
    extra = [
        allocation for allocation in rule.candidates() if allocation.is_extra and _is_in(snapshot, allocation, option)
    ]
    if not extra:
        found = find_victims(snapshot, option, rule)
        return None if found is None else with_leaving(snapshot, found)
    tried: list[list[Allocation]] = []
    for most in (0, 1):
        given = _given(snapshot, rule, extra, most)
        if given not in tried:
            tried.append(given)
    for given in (*tried, []):
        found = _least(snapshot, rule, partial(_besides, snapshot, option, rule, given))
        if found is not None:
            return found
    return None


def smaller_options(
    snapshot: Snapshot, startable: Sequence[PoolOption], claimed: Sequence[PoolOption]
) -> Iterator[PoolOption]:
    """Of the sizes a job may have, most first: those `claimed` that need room to be made, then the most that can start.

    Cost: O(nodes).
    """
    idle = sum(slots_by_node(snapshot.idle, startable[0]).values()) if startable else 0
    can_start = [option for option in startable if option.request.workers <= idle]
    yield from [option for option in claimed if option not in can_start][:MAX_SIZES]
    yield from can_start[:1]


def _least(
    snapshot: Snapshot, rule: VictimRule, find: Callable[[VictimRule], tuple[Allocation, ...] | None]
) -> tuple[Allocation, ...] | None:
    """What is found among all that are stopped when they are taken. Where one of them takes surplus workers with it,
    which a search does not count, rather what is found without such, if that is less, or all that may be."""
    wholes = tuple(allocation for allocation in rule.candidates() if not allocation.is_extra)
    found = find(rule.among(wholes))
    if not any(
        allocation.leaves_with and not allocation.is_extra for allocation in (wholes if found is None else found)
    ):
        return found
    other = find(rule.among(allocation for allocation in wholes if not allocation.leaves_with))
    if found is None or other is None:
        return other if found is None else found
    return found if _cost(snapshot, rule, found) <= _cost(snapshot, rule, other) else other


def _cost(snapshot: Snapshot, rule: VictimRule, found: Sequence[Allocation]) -> tuple[int, GpuMilli]:
    return rule.price(totals_with_all({}, found, snapshot)) or 0, gpu_milli_of(found)


def _is_in(snapshot: Snapshot, allocation: Allocation, option: PoolOption) -> bool:
    room = snapshot.future_idle.rooms.get(allocation.placement.workers[0].node)
    return room is not None and room.pool == option.pool.name


def _given(snapshot: Snapshot, rule: VictimRule, extra: Sequence[Allocation], most: int) -> list[Allocation]:
    """As many surplus workers as may be taken together at that price; none without those bound to it."""
    totals: VictimTotals = {}
    given: dict[Allocation, None] = {}
    for part in extra:
        if not all(other in given for other in part.leaves_with):
            continue
        after = totals_with(totals, part, snapshot)
        price = rule.price(after)
        if price is not None and price <= most:
            totals = after
            given[part] = None
    return list(given)


def _besides(
    snapshot: Snapshot, option: PoolOption, rule: VictimRule, given: Sequence[Allocation], wholes: VictimRule
) -> tuple[Allocation, ...] | None:
    """Surplus workers of those given and, where they are not enough, the cheapest runs besides."""
    with snapshot.without(given):
        enough = place_in(snapshot.future_idle, option) is not None
        found: tuple[Allocation, ...] | None = () if enough else find_victims(snapshot, option, wholes)
    if found is None:
        return None
    chosen = with_leaving(snapshot, found)
    with snapshot.without(chosen):
        chosen += _needed(snapshot, option, [part for part in given if part not in chosen])
    return chosen if rule.price(totals_with_all({}, chosen, snapshot)) is not None else None


def _needed(snapshot: Snapshot, option: PoolOption, given: Sequence[Allocation]) -> tuple[Allocation, ...]:
    """The fewest of some extra workers without which the option has no place, the first in order of preference.

    Cost: a placement for each doubling of their number, and for each doubling of a run's.
    """
    first = _fewest(len(given), lambda count: _fits_without(snapshot, option, given[:count]))
    by_run: dict[JobId, list[Allocation]] = {}
    for part in given[:first]:
        by_run.setdefault(part.run.job, []).append(part)
    needed: list[Allocation] = []
    kept: list[Allocation] = []
    with snapshot.without(given[:first]):
        for parts in reversed(by_run.values()):
            count = _fewest(len(parts), partial(_fits_beside, snapshot, option, parts))
            needed += parts[:count]
            kept += parts[count:]
            for part in parts[count:]:
                snapshot.future_idle.take(part.placement, part.per_worker)
        for part in kept:
            snapshot.future_idle.give_back(part.placement, part.per_worker)
    return tuple(needed)


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
    """The smallest number up to `most` that is enough; what is, stays so with more."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _fits_beside(snapshot: Snapshot, option: PoolOption, parts: Sequence[Allocation], gone: int) -> bool:
    """Whether the option has a place when only the first of these stay away, and the others are where they were."""
    back = parts[gone:]
    for part in back:
        snapshot.future_idle.take(part.placement, part.per_worker)
    fits = _fits(snapshot, option)
    for part in back:
        snapshot.future_idle.give_back(part.placement, part.per_worker)
    return fits


def _fits_without(snapshot: Snapshot, option: PoolOption, gone: Collection[Allocation]) -> bool:
    with snapshot.without(gone):
        return _fits(snapshot, option)


def _fits(snapshot: Snapshot, option: PoolOption) -> bool:
    """Whether all workers have a place; for several that is a count, and need not be dealt out."""
    if option.request.workers == 1:
        return place_in(snapshot.future_idle, option) is not None
    return sum(slots_by_node(snapshot.future_idle, option).values()) >= option.request.workers
