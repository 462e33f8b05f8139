"""Jobs that may run with fewer workers: how many they start with, who gives up workers for whom, and who grows again.

In the books an elastic run is a holder of the workers it can't do without and one of each surplus worker. Workers leave
in the order in which their Job drops them, the highest index first, and whoever takes the others takes all. Surplus
workers go before any run is paused: first as many as may be are thought away, then runs are looked for besides them,
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


def parted(holders: Iterable[Allocation]) -> Iterator[Allocation]:
    """The holders, with each run that could give up workers in parts. A service is not: nobody knows which would go."""
    for holder in holders:
        job, workers = holder.job, holder.placement.workers
        divisible = job is not None and job.is_elastic and job.type is not JobType.INFERENCE and holder.preemptible
        if job is None or not divisible or holder.leaving or len(workers) <= job.min_workers:
            yield holder
            continue
        parts: tuple[Allocation, ...] = ()
        each = holder.charge.gpu_milli
        for worker in reversed(workers[job.min_workers :]):
            place = Placement(workers=(worker,))
            part = replace(holder, placement=place, total_milli=each, surplus=True, bound=parts)
            parts = (*parts, part)
            yield part
        base = Placement(workers=workers[: job.min_workers])
        yield replace(holder, placement=base, total_milli=each * job.min_workers, bound=parts)


def with_bound(books: Snapshot, holders: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """The holders, and those in place of the same runs that go when they go."""
    found = dict.fromkeys(holders)
    for holder in tuple(found):
        found.update(dict.fromkeys(other for other in holder.bound if books.stays(other)))
    return tuple(found)


def victims_for(books: Snapshot, offer: PoolOption, rule: Rule) -> tuple[Allocation, ...] | None:
    """As `find_victims`, surplus workers before all."""
    if not books.elastic:
        return find_victims(books, offer, rule)
    surplus = [holder for holder in rule.candidates() if holder.surplus and _is_in(books, holder, offer)]
    if not surplus:
        found = find_victims(books, offer, rule)
        return None if found is None else with_bound(books, found)
    tried: list[list[Allocation]] = []
    for most in (0, 1):
        given = _given(books, rule, surplus, most)
        if given not in tried:
            tried.append(given)
    for given in (*tried, []):
        found = _least(books, rule, partial(_besides, books, offer, rule, given))
        if found is not None:
            return found
    return None


def exchange_for(books: Snapshot, offer: PoolOption, rule: Rule, lost_milli: GpuMilli) -> tuple[Allocation, ...] | None:
    """As `find_exchange`, surplus workers before all."""
    surplus = [holder for holder in rule.candidates() if holder.surplus] if books.elastic else []
    if not surplus:
        found = find_exchange(books, offer, rule, lost_milli)
        return None if found is None else with_bound(books, found)
    return _least(books, rule, partial(_exchanged, books, offer, surplus, lost_milli))


def _exchanged(
    books: Snapshot, offer: PoolOption, surplus: Sequence[Allocation], lost_milli: GpuMilli, wholes: Rule
) -> tuple[Allocation, ...] | None:
    """Surplus workers and, where they are not enough, the fewest runs besides."""
    with books.without(surplus):
        besides = find_exchange(books, offer, wholes, lost_milli - gpu_milli_of(surplus))
    if besides is None:
        return None
    chosen = with_bound(books, besides)
    with books.without(chosen):
        left = [part for part in surplus if part not in chosen]
        chosen += _needed(books, offer, left, lost_milli - gpu_milli_of(chosen))
    return chosen


def smaller_offers(books: Snapshot, legal: Sequence[PoolOption], claimed: Sequence[PoolOption]) -> Iterator[PoolOption]:
    """Of the sizes a job may have, most first: those `claimed` that need room to be made, then the most that are idle.

    Cost: O(nodes).
    """
    idle = sum(seats(books.now, legal[0]).values()) if legal else 0
    yield from [offer for offer in claimed if offer.request.workers > idle][:MAX_SIZES]
    yield from [offer for offer in legal if offer.request.workers <= idle][:1]


def _least(
    books: Snapshot, rule: Rule, find: Callable[[Rule], tuple[Allocation, ...] | None]
) -> tuple[Allocation, ...] | None:
    """What is found among all that are stopped when they are taken. Where one of them takes surplus workers with it,
    which a search does not count, rather what is found without such, if that is less, or all that may be."""
    wholes = tuple(holder for holder in rule.candidates() if not holder.surplus)
    found = find(Among(rule, wholes))
    if not any(holder.bound and not holder.surplus for holder in (wholes if found is None else found)):
        return found
    other = find(Among(rule, tuple(holder for holder in wholes if not holder.bound)))
    if found is None or other is None:
        return other if found is None else found
    return found if _cost(books, rule, found) <= _cost(books, rule, other) else other


def _cost(books: Snapshot, rule: Rule, found: Sequence[Allocation]) -> tuple[int, GpuMilli]:
    return rule.price(tally_with_all({}, found, books)) or 0, gpu_milli_of(found)


def _is_in(books: Snapshot, holder: Allocation, offer: PoolOption) -> bool:
    room = books.soon.rooms.get(holder.placement.workers[0].node)
    return room is not None and room.pool == offer.pool.name


def _given(books: Snapshot, rule: Rule, surplus: Sequence[Allocation], most: int) -> list[Allocation]:
    """As many surplus workers as may be taken together at that price; none without those bound to it."""
    tally: VictimTotals = {}
    given: dict[Allocation, None] = {}
    for part in surplus:
        if not all(other in given for other in part.bound):
            continue
        after = tally_with(tally, part, books)
        price = rule.price(after)
        if price is not None and price <= most:
            tally = after
            given[part] = None
    return list(given)


def _besides(
    books: Snapshot, offer: PoolOption, rule: Rule, given: Sequence[Allocation], wholes: Rule
) -> tuple[Allocation, ...] | None:
    """Surplus workers of those given and, where they are not enough, the cheapest runs besides."""
    with books.without(given):
        enough = place_in(books.soon, offer) is not None
        found: tuple[Allocation, ...] | None = () if enough else find_victims(books, offer, wholes)
    if found is None:
        return None
    chosen = with_bound(books, found)
    with books.without(chosen):
        chosen += _needed(books, offer, [part for part in given if part not in chosen])
    return chosen if rule.price(tally_with_all({}, chosen, books)) is not None else None


def _needed(
    books: Snapshot, offer: PoolOption, given: Sequence[Allocation], lost_milli: GpuMilli = 0
) -> tuple[Allocation, ...]:
    """The fewest of the surplus workers given without which the offer has no place, those that mind least.

    So many GPUs leave with them at least, or all that do. Cost: a placement for each doubling of their number, and for
    each doubling of a run's.
    """
    first = _fewest(
        len(given), lambda n: gpu_milli_of(given[:n]) >= lost_milli and _fits_without(books, offer, given[:n])
    )
    by_run: dict[JobId, list[Allocation]] = {}
    for part in given[:first]:
        by_run.setdefault(part.run.job, []).append(part)
    over_milli = gpu_milli_of(given[:first]) - lost_milli
    needed: list[Allocation] = []
    spared: list[Allocation] = []
    with books.without(given[:first]):
        for parts in reversed(by_run.values()):
            must = len(parts) - over_milli // max(1, parts[0].total_milli)
            count = max(must, _fewest(len(parts), partial(_fits_beside, books, offer, parts)))
            over_milli -= gpu_milli_of(parts[count:])
            needed += parts[:count]
            spared += parts[count:]
            for part in parts[count:]:
                books.soon.take(part.placement, part.charge)
        for part in spared:
            books.soon.give_back(part.placement, part.charge)
    return tuple(needed)


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
    """The smallest number up to `most` that is enough; what is, stays so with more."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _fits_beside(books: Snapshot, offer: PoolOption, parts: Sequence[Allocation], gone: int) -> bool:
    """Whether the offer has a place when only the first of these stay away, and the others are where they were."""
    back = parts[gone:]
    for part in back:
        books.soon.take(part.placement, part.charge)
    fits = _fits(books, offer)
    for part in back:
        books.soon.give_back(part.placement, part.charge)
    return fits


def _fits_without(books: Snapshot, offer: PoolOption, gone: Collection[Allocation]) -> bool:
    with books.without(gone):
        return _fits(books, offer)


def _fits(books: Snapshot, offer: PoolOption) -> bool:
    """Whether all workers have a place; for several that is a count, and need not be dealt out."""
    if offer.request.workers == 1:
        return place_in(books.soon, offer) is not None
    return sum(seats(books.soon, offer).values()) >= offer.request.workers
