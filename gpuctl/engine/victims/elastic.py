"""Jobs that may run with fewer workers: how many they start with, who gives up workers for whom, and who grows again.

In the snapshot an elastic run is one allocation of the workers it can't do without, and one of each surplus worker.
Workers leave in the order in which their Job drops them, the highest index first; with the others all leave. Surplus
workers go before any run is paused: first as many as may be are supposed gone, then runs are looked for besides them,
and what was not needed after all is spared. How they grow again is `growth`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from gpuctl.engine.capacity.gang import PoolOption, place_in, seats
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.exchange import find_exchange
from gpuctl.engine.victims.rules import Among, Rule, VictimTotals, tally_with, tally_with_all
from gpuctl.engine.victims.search import find_victims
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
        each = allocation.charge.gpu_milli
        for worker in reversed(workers[job.min_workers :]):
            place = Placement(workers=(worker,))
            part = replace(allocation, placement=place, total_milli=each, surplus=True, bound=parts)
            parts = (*parts, part)
            yield part
        base = Placement(workers=workers[: job.min_workers])
        yield replace(allocation, placement=base, total_milli=each * job.min_workers, bound=parts)


def with_bound(snapshot: Snapshot, allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """The allocations, and those in place of the same runs that go when they go."""
    found = dict.fromkeys(allocations)
    for allocation in tuple(found):
        found.update(dict.fromkeys(other for other in allocation.bound if snapshot.stays(other)))
    return tuple(found)


def victims_for(snapshot: Snapshot, option: PoolOption, rule: Rule) -> tuple[Allocation, ...] | None:
    """As `find_victims`, surplus workers before all."""
    if not snapshot.elastic:
        return find_victims(snapshot, option, rule)
    surplus = [
        allocation for allocation in rule.candidates() if allocation.surplus and _is_in(snapshot, allocation, option)
    ]
    if not surplus:
        found = find_victims(snapshot, option, rule)
        return None if found is None else with_bound(snapshot, found)
    tried: list[list[Allocation]] = []
    for most in (0, 1):
        given = _given(snapshot, rule, surplus, most)
        if given not in tried:
            tried.append(given)
    for given in (*tried, []):
        found = _least(snapshot, rule, partial(_besides, snapshot, option, rule, given))
        if found is not None:
            return found
    return None


def exchange_for(
    snapshot: Snapshot, option: PoolOption, rule: Rule, lost_milli: GpuMilli
) -> tuple[Allocation, ...] | None:
    """As `find_exchange`, surplus workers before all."""
    surplus = [allocation for allocation in rule.candidates() if allocation.surplus] if snapshot.elastic else []
    if not surplus:
        found = find_exchange(snapshot, option, rule, lost_milli)
        return None if found is None else with_bound(snapshot, found)
    return _least(snapshot, rule, partial(_exchanged, snapshot, option, surplus, lost_milli))


def _exchanged(
    snapshot: Snapshot, option: PoolOption, surplus: Sequence[Allocation], lost_milli: GpuMilli, wholes: Rule
) -> tuple[Allocation, ...] | None:
    """Surplus workers and, where they are not enough, the fewest runs besides."""
    with snapshot.without(surplus):
        besides = find_exchange(snapshot, option, wholes, lost_milli - gpu_milli_of(surplus))
    if besides is None:
        return None
    chosen = with_bound(snapshot, besides)
    with snapshot.without(chosen):
        left = [part for part in surplus if part not in chosen]
        chosen += _needed(snapshot, option, left, lost_milli - gpu_milli_of(chosen))
    return chosen


def smaller_options(
    snapshot: Snapshot, legal: Sequence[PoolOption], claimed: Sequence[PoolOption]
) -> Iterator[PoolOption]:
    """Of the sizes a job may have, most first: those `claimed` that need room to be made, then the most that are idle.

    Cost: O(nodes).
    """
    idle = sum(seats(snapshot.idle, legal[0]).values()) if legal else 0
    yield from [option for option in claimed if option.request.workers > idle][:MAX_SIZES]
    yield from [option for option in legal if option.request.workers <= idle][:1]


def _least(
    snapshot: Snapshot, rule: Rule, find: Callable[[Rule], tuple[Allocation, ...] | None]
) -> tuple[Allocation, ...] | None:
    """What is found among all that are stopped when they are taken. Where one of them takes surplus workers with it,
    which a search does not count, rather what is found without such, if that is less, or all that may be."""
    wholes = tuple(allocation for allocation in rule.candidates() if not allocation.surplus)
    found = find(Among(rule, wholes))
    if not any(allocation.bound and not allocation.surplus for allocation in (wholes if found is None else found)):
        return found
    other = find(Among(rule, tuple(allocation for allocation in wholes if not allocation.bound)))
    if found is None or other is None:
        return other if found is None else found
    return found if _cost(snapshot, rule, found) <= _cost(snapshot, rule, other) else other


def _cost(snapshot: Snapshot, rule: Rule, found: Sequence[Allocation]) -> tuple[int, GpuMilli]:
    return rule.price(tally_with_all({}, found, snapshot)) or 0, gpu_milli_of(found)


def _is_in(snapshot: Snapshot, allocation: Allocation, option: PoolOption) -> bool:
    room = snapshot.future_idle.rooms.get(allocation.placement.workers[0].node)
    return room is not None and room.pool == option.pool.name


def _given(snapshot: Snapshot, rule: Rule, surplus: Sequence[Allocation], most: int) -> list[Allocation]:
    """As many surplus workers as may be taken together at that price; none without those bound to it."""
    tally: VictimTotals = {}
    given: dict[Allocation, None] = {}
    for part in surplus:
        if not all(other in given for other in part.bound):
            continue
        after = tally_with(tally, part, snapshot)
        price = rule.price(after)
        if price is not None and price <= most:
            tally = after
            given[part] = None
    return list(given)


def _besides(
    snapshot: Snapshot, option: PoolOption, rule: Rule, given: Sequence[Allocation], wholes: Rule
) -> tuple[Allocation, ...] | None:
    """Surplus workers of those given and, where they are not enough, the cheapest runs besides."""
    with snapshot.without(given):
        enough = place_in(snapshot.future_idle, option) is not None
        found: tuple[Allocation, ...] | None = () if enough else find_victims(snapshot, option, wholes)
    if found is None:
        return None
    chosen = with_bound(snapshot, found)
    with snapshot.without(chosen):
        chosen += _needed(snapshot, option, [part for part in given if part not in chosen])
    return chosen if rule.price(tally_with_all({}, chosen, snapshot)) is not None else None


def _needed(
    snapshot: Snapshot, option: PoolOption, given: Sequence[Allocation], lost_milli: GpuMilli = 0
) -> tuple[Allocation, ...]:
    """The fewest of the surplus workers given without which the option has no place, those that mind least.

    So many GPUs leave with them at least, or all that do. Cost: a placement for each doubling of their number, and for
    each doubling of a run's.
    """
    first = _fewest(
        len(given), lambda n: gpu_milli_of(given[:n]) >= lost_milli and _fits_without(snapshot, option, given[:n])
    )
    by_run: dict[JobId, list[Allocation]] = {}
    for part in given[:first]:
        by_run.setdefault(part.run.job, []).append(part)
    over_milli = gpu_milli_of(given[:first]) - lost_milli
    needed: list[Allocation] = []
    spared: list[Allocation] = []
    with snapshot.without(given[:first]):
        for parts in reversed(by_run.values()):
            must = len(parts) - over_milli // max(1, parts[0].total_milli)
            count = max(must, _fewest(len(parts), partial(_fits_beside, snapshot, option, parts)))
            over_milli -= gpu_milli_of(parts[count:])
            needed += parts[:count]
            spared += parts[count:]
            for part in parts[count:]:
                snapshot.future_idle.take(part.placement, part.charge)
        for part in spared:
            snapshot.future_idle.give_back(part.placement, part.charge)
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
        snapshot.future_idle.take(part.placement, part.charge)
    fits = _fits(snapshot, option)
    for part in back:
        snapshot.future_idle.give_back(part.placement, part.charge)
    return fits


def _fits_without(snapshot: Snapshot, option: PoolOption, gone: Collection[Allocation]) -> bool:
    with snapshot.without(gone):
        return _fits(snapshot, option)


def _fits(snapshot: Snapshot, option: PoolOption) -> bool:
    """Whether all workers have a place; for several that is a count, and need not be dealt out."""
    if option.request.workers == 1:
        return place_in(snapshot.future_idle, option) is not None
    return sum(seats(snapshot.future_idle, option).values()) >= option.request.workers
