"""Room for a job: the cheapest victims over all pools that it may use, with what follows from each set.

The price of a set counts what its runs would take once they wait. Each goes on where GPUs are idle, or has other runs
paused by its own rights, at their price, and so on. So each set that could be the cheapest is tried as a what-if, and
its runs look for room in the same way, in the order in which they would be attempted. An example: docs/concepts.md,
"The price of a victim".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from gpuctl.engine.capacity.gang import Assignment, PoolOption, options_of, place, place_in
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.jobs.under_scaled import UnderScaled
from gpuctl.engine.shares.entitlement import stays_within_share
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.eviction import Room, victims_of
from gpuctl.engine.victims.reclaim import ReclaimStrategy, over_allocated
from gpuctl.engine.victims.rules import Cost, VictimRule, rules_of
from gpuctl.engine.victims.search import find_victims, place_without
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.job import Job, JobType
from gpuctl.model.units import GpuMilli

MAX_EFFORT = 30_000
"""The most effort of a cycle: each set tried as a what-if counts 100, and 1 for each run that could be paused for the
job. Beyond it, what follows from a set is unknown and does not count."""
MAX_CHAIN = 10
"""The most sets that follow from each other, so that no tenant's jobs can make the search too deep."""

IsDue: TypeAlias = Callable[[PoolOption, Iterable[Allocation]], bool]
"""Whether a job may have room in an option's pool in this pass, once some victims have left."""


def find_room(snapshot: Snapshot, job: Job, options: Sequence[PoolOption], is_due: IsDue) -> Room | None:
    """The best room that can be made by pausing runs; None if there is none."""
    found: list[Room] = []
    for option in options:
        if any(not room.cost.price and room.assignment.option.order < option.order for room in found):
            break
        for rule in rules_of(snapshot, job, option):
            # Capacity that comes free by itself is for entitled jobs.
            with snapshot.searching(snapshot.future_idle if rule.is_entitled else snapshot.idle):
                found += _rooms(rule, is_due)
    return min(found, key=room_rank, default=None)


def find_room_in_place(snapshot: Snapshot, run: UnderScaled, count: int, is_due: IsDue) -> Room | None:
    """The best room for this many more workers of a run, where its pods can go."""
    found: list[Room] = []
    for rule in rules_of(snapshot, run.job, run.option.of(count)):
        some = replace(rule, only=_in_reach(run, rule))
        with snapshot.searching(run.usable(snapshot.future_idle)):
            found += _rooms(some, is_due)
    return min(found, key=room_rank, default=None)


def find_room_to_go_on(paused: Allocation, snapshot: Snapshot) -> Room | None:
    """The best room for all workers of a paused run, by the rights that it has once it waits."""
    job = paused.job
    if job is None or job.is_elastic or not _may_claim(paused, snapshot, paused.total_milli):
        return None
    options = [option for option in options_of(job, snapshot.capacity) if option.request.gpu_milli]
    return find_room(snapshot, job, [option for option in options if snapshot.is_open(job, option)], _always)


def _rooms(rule: VictimRule, is_due: IsDue) -> Iterator[Room]:
    found = find_victims(rule, lambda chosen: _what_follows(rule, victims_of(chosen)))
    victims = victims_of(found[1]) if found is not None else ()
    if found is not None and is_due(rule.option, victims):
        placement = place_without(rule, victims)
        if placement is not None:
            yield Room(Assignment(rule.option, placement), rule, victims, cost=found[0])


def room_rank(room: Room) -> tuple[int, int, Cost]:
    """The order of rooms, the lowest is made: guarantees are straddled last, listed pools go in order, then by cost."""
    return room.cost.price, room.assignment.option.order, room.cost


def _in_reach(run: UnderScaled, rule: VictimRule) -> tuple[Allocation, ...]:
    """The candidates on the nodes that a run's pods may use, and those elsewhere that make way for a ceiling.

    For anything else, own work elsewhere does not make way: if it were paused so that its project becomes
    entitled, it would go on where it was, and the project would not be entitled any more.
    """
    project, tree = run.allocation.project, rule.snapshot.accounts.tree
    limited = {owner for owner, _ in tree.limits(rule.domain, project)}

    def is_in_reach(each: Allocation) -> bool:
        if not run.nodes.isdisjoint(each.nodes()):
            return True
        return not (any(rule.strategies) if each.project == project else limited.isdisjoint(tree.chain(each.project)))

    return tuple(filter(is_in_reach, rule.candidates()))


# What follows


def _what_follows(rule: VictimRule, victims: tuple[Allocation, ...]) -> tuple[int, int]:
    """The GPUs that others would lose to the victims once these wait, and how many runs stop by that."""
    snapshot = rule.snapshot
    lost_milli = Counter[ProjectName]()
    for victim in victims:
        lost_milli[victim.project] += victim.total_milli
    if not any(_may_take(rule, victim, lost_milli[victim.project]) for victim in victims):
        return 0, 0
    effort = 100 + len(rule.candidates())
    if snapshot.counters.supposed + effort > MAX_EFFORT or snapshot.depth >= MAX_CHAIN:
        return 0, 0
    placement = place_without(rule, victims)
    if placement is None:
        return 0, 0
    snapshot.counters.supposed += effort
    lost = stopped = 0
    stops = {victim.run.job for victim in victims if not victim.is_extra}
    once_each = (victim for victim in victims if not (victim.is_extra and victim.run.job in stops))
    with snapshot.supposing():
        snapshot.pause(victims)
        snapshot.occupy(rule.job, Assignment(rule.option, placement))
        for victim in in_precedence(once_each, snapshot):
            room = _regain(victim, snapshot) if victim.is_extra else _restart(victim, snapshot)
            if room is not None:
                lost, stopped = lost + room.cost.lost_milli, stopped + room.cost.stopped
    return lost, stopped


def _may_take(rule: VictimRule, victim: Allocation, lost_milli: GpuMilli) -> bool:
    """Whether a victim may have runs paused once it waits: it outranks a run of its project, or is entitled then.

    `lost_milli`: what its project loses, this victim included.
    """
    gained_milli = rule.milli if victim.project == rule.job.id.project else 0
    return _may_claim(victim, rule.snapshot, victim.total_milli + gained_milli - lost_milli)


def _may_claim(run: Allocation, snapshot: Snapshot, more_milli: GpuMilli) -> bool:
    """Whether a run outranks another of its project, or its project is entitled with this many more GPUs."""
    job, domain, project = run.job, run.domain, run.project
    if job is None or domain is None:
        return False
    return snapshot.lowest(domain, project) < job.priority or (
        stays_within_share(snapshot.accounts, domain, project, more_milli)
        and any(over_allocated(snapshot, domain, strategy) for strategy in ReclaimStrategy)
    )


def in_precedence(allocations: Iterable[Allocation], snapshot: Snapshot) -> list[Allocation]:
    """Runs in the order in which they are attempted once they wait: first those within their projects' shares.

    A run counts together with those of its project that outrank it, because they would take its place.
    """

    def rank(allocation: Allocation) -> tuple[bool, int, JobId]:
        job = allocation.job
        return job is None or job.type is JobType.TRAINING, -job.priority if job else 0, allocation.run.job

    held: Counter[tuple[DomainName | None, ProjectName]] = Counter()
    within, beyond = list[Allocation](), list[Allocation]()
    for each in sorted(allocations, key=rank):
        held[each.domain, each.project] += each.total_milli
        milli = held[each.domain, each.project]
        is_within = each.domain is not None and stays_within_share(snapshot.accounts, each.domain, each.project, milli)
        (within if is_within else beyond).append(each)
    return within + beyond


def _restart(victim: Allocation, snapshot: Snapshot) -> Room | None:
    """Start a run again on idle GPUs, or in room that is made for it. Returns that room."""
    job = victim.job
    if job is None:
        return None
    whole = [option for option in options_of(job, snapshot.capacity) if option.request.gpu_milli]
    for workers in range(job.workers, (job.min_workers if job.is_elastic else job.workers) - 1, -1):
        options = [sized for option in whole if (sized := option.sized(workers)) is not None]
        options = [option for option in options if snapshot.is_open(job, option)]
        idle = place(snapshot.idle, [option for option in options if snapshot.allows(job, option)])
        if idle is not None:
            snapshot.occupy(job, idle)
            return None
        room = find_room(snapshot, job, options, _always)
        if room is not None:
            return _take(room, job, snapshot)
    return None


def _regain(extra: Allocation, snapshot: Snapshot) -> Room | None:
    """Start surplus workers again where their run's pods can go, or in room made for them, which is returned."""
    job, made_with, workers = extra.job, extra.run.made_with, extra.placement.workers
    if job is None or made_with is None:
        return None
    for option in options_of(job, snapshot.capacity):
        if option.pool.name == snapshot.capacity.pool_of(extra.placement):
            run, all_of_them = UnderScaled(extra, job, made_with, option.of(1)), option.of(len(workers))
            idle = place_in(run.usable(snapshot.idle), all_of_them)
            if idle is not None and snapshot.allows(job, all_of_them):
                snapshot.occupy(job, Assignment(all_of_them, idle))
                return None
            room = find_room_in_place(snapshot, run, len(workers), _always)
            return None if room is None else _take(room, job, snapshot)
    return None


def _take(room: Room, job: Job, snapshot: Snapshot) -> Room:
    snapshot.pause(room.victims)
    snapshot.occupy(job, room.assignment)
    return room


def _always(_: PoolOption, __: Iterable[Allocation]) -> bool:
    return True
