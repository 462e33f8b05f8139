"""Jobs that may run with fewer workers: with how many they start, and which runs give up workers for other jobs.

In the snapshot an elastic run is one allocation of the workers it can't do without, and one of each extra worker.
Workers leave in the order in which their Job drops them, the highest index first; with the others all leave. So the
searches see an elastic run as several evictions, of its last worker, of its last two, and so on, and of the whole run;
a set holds one of them. Surplus first: of sets that lose as many GPUs, one that stops no run is the cheapest.
How they get workers back is `admit/regain_workers` and
`admit/scale_up`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuctl.engine.capacity.gang import PoolOption, place_in, slots_by_node
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Eviction, paused, victims_of
from gpuctl.engine.victims.rules import VictimRule
from gpuctl.engine.victims.search import MAX_CANDIDATES, cheapest_of_few, find_victims
from gpuctl.model.decision import Placement
from gpuctl.model.job import JobType

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


def victims_for(option: PoolOption, rule: VictimRule) -> tuple[Allocation, ...] | None:
    """The runs and the extra workers to pause so that an option fits, and the rule allows it; None when there are none.

    Cost: as `find_victims`; where that need not be exact, and candidates are few, a search of all sets besides.
    """
    is_plain = rule.is_plain
    is_free = not is_plain and place_in(rule.snapshot.future_idle, option) is not None
    found = () if is_free else find_victims(option, rule)
    if found is not None and not is_plain:
        found = rule.complete(found)
    if (is_plain and option.request.workers == 1) or len(rule.candidates()) > MAX_CANDIDATES:
        return found
    return _of_all_sets(option, rule, found)


def _of_all_sets(
    option: PoolOption, rule: VictimRule, found: tuple[Allocation, ...] | None
) -> tuple[Allocation, ...] | None:
    """The cheapest of all sets. One that was found stays the best of equals where only room was missing, for the walk
    knows which nodes are close together."""
    first = None
    cost = rule.cost(found) if found else None
    if found and cost is not None:
        first = cost._replace(preferences=()) if rule.is_plain else cost, (Eviction(found),)
    evictions = [paused(rule, allocation) for allocation in rule.candidates()]
    best = cheapest_of_few(option, rule, evictions, lambda chosen: _is_allowed(rule, chosen), first)
    return None if best is None else victims_of(best[1])


def _is_allowed(rule: VictimRule, chosen: Iterable[Eviction]) -> bool:
    return rule.cost(victims_of(chosen)) is not None


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
