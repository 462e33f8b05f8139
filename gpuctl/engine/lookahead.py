"""Looking ahead: a schedule in which runs make way is carried out in advance, as values, before it is decided.

A cycle decides job by job, and later cycles decide about the jobs that its pauses affect. A schedule that those cycles
would undo is made again under restraints (`_choices`). The rules, with an example: docs/concepts.md, "Looking ahead".
Invariant: restraints only prevent stops, and prevent or move starts that would be stopped again before the cluster is
at rest. All other starts stay as they are, so the cluster comes to rest with restraints as without.
Cost: nothing if no run makes way or starts again, or if no job could take the freed GPUs from the job that they are
for. Otherwise mostly three cycles, each over what has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from types import MappingProxyType
from typing import NamedTuple

from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.counters import Counters
from gpuctl.engine.cycle import decide
from gpuctl.engine.jobs.runs import NOWHERE
from gpuctl.engine.restraints import UNRESTRAINED, Restraints
from gpuctl.model.decision import Admit, Displace, Move, Placement, Preempt, Reclaim, Resize, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE, ClusterState, Run
from gpuctl.model.steps import Steps
from gpuctl.model.units import GpuMilli, Instant

MAX_AIDED = 20
"""The most jobs for which runs make way in a cycle that is looked ahead. With more, nothing is foreseen: of 10,000
waiting gangs 31 are given room at once, and looking ahead takes as long again as the cycle, or twice as long."""
MAX_TRIES = 4
"""The most schedules that are made under further restraints."""
MAX_CYCLES = 10
"""The most cycles that are looked ahead; few schedules cause more than three."""
MAX_CONSIDERED, MAX_TRIED = 100_000, 10_000
"""The most runs listed in searches for victims, and the most placements tried beside moved runs, in all (`Counters`).
Beyond them no more is foreseen, so that no tenant's jobs can make it take long."""


class Price(NamedTuple):
    """What runs lose by some schedules; the lowest price is best. `gpu_milli`: the GPUs of runs that stop and of
    workers that are given up. `stopped`: how many runs stop. A run that goes on elsewhere at once does not count."""

    gpu_milli: GpuMilli = 0
    stopped: int = 0


class Outlook(NamedTuple):
    """The results of a schedule once the cluster is at rest. If the bounds are met before, only `twice` is known.

    `running`: the jobs that run in the end. `gained`: how many more workers each has then than before. `in_vain`: jobs
    for which runs make way, and that do not run in the end, or go on with no more workers than before. `twice`: jobs
    whose run is stopped, or starts again, and is stopped later; `places`: where those run in the end. `resumed`: jobs
    whose runs make way for a job that lists no pools, and that have as many workers again in the end; those with most
    GPUs first. `price`: the price of this schedule and of all that follow.
    """

    running: frozenset[JobId] = frozenset()
    gained: Mapping[JobId, int] = MappingProxyType({})
    in_vain: frozenset[JobId] = frozenset()
    twice: frozenset[JobId] = frozenset()
    places: Mapping[JobId, Placement] = MappingProxyType({})
    resumed: tuple[JobId, ...] = ()
    price: Price = Price()

    def is_better_than(self, other: Outlook) -> bool:
        """Whether each run makes way for a job that runs in the end, and less is lost than by the other outlook.

        If the other one stops a run twice: all its jobs still run, and other runs, or none, stop twice. Otherwise: no
        run stops twice, each job gains as many workers, and the price is lower.
        """
        if other.twice:
            return not self.in_vain and self.running >= other.running and self.twice != other.twice
        return not (self.in_vain or self.twice) and self.gains_as_much_as(other) and self.price < other.price

    def gains_as_much_as(self, other: Outlook) -> bool:
        """Whether each job gains at least as many workers as by the other outlook."""
        return all(self.gained.get(job, 0) >= workers for job, workers in other.gained.items())


def schedule(declared: Declared, state: ClusterState, now_ms: Instant, cache: EngineCache | None = None) -> Schedule:
    """Decide which declared jobs run, where, and which wait: one decision with one reason for each job, and the trace.

    Pure, deterministic and independent of the order of its inputs; never raises, whatever the state of the cluster.
    `cache` saves work if the cycle before was over the same declarations and nodes; it changes no result.
    """
    cache = cache or EngineCache()
    cache.begin()
    decided = decide(declared, state, now_ms, cache)
    if cache.may_be_undone and len(set(_victims(decided).values())) <= MAX_AIDED:
        decided = _foreseen(declared, state, decided, cache)
    return decided


def _foreseen(declared: Declared, state: ClusterState, decided: Schedule, cache: EngineCache) -> Schedule:
    """Look ahead from a schedule. Returns this schedule, or the one that is decided in its place."""
    # A run that starts meanwhile counts as old enough to make way for a guarantee. Otherwise two jobs that each have a
    # right over the other's run would take turns, one `minRuntime` each.
    steps = Steps(declared, aged_ms=declared.cluster.scheduling.min_runtime.guarantee_ms)
    restraints, is_last = UNRESTRAINED, True
    outlook = _outlook(steps, state, decided, cache)
    choices = _choices(decided, outlook)
    for _ in range(MAX_TRIES):
        if not choices or _is_over(cache.counters):
            break
        further = restraints | choices.pop(0)
        other = decide(declared, state, decided.at_ms, cache, further)
        paused = further.delayed.intersection(_victims(other))
        others = _outlook(steps, state, other, cache, Restraints(delayed=paused))
        if further.delayed and not others.gained:
            is_last = False  # nothing else would change meanwhile, so the start would be delayed for ever
            continue
        is_last = bool(outlook.in_vain) or others.is_better_than(outlook)
        if is_last:
            decided, restraints, outlook, choices = other, further, others, _choices(other, others)
        elif others.gains_as_much_as(outlook) and others.resumed:
            choices.insert(0, Restraints(untouched=frozenset(others.resumed)) | further)
    if not is_last:
        decided = decide(declared, state, decided.at_ms, cache, restraints)
        cache.note()
    return decided


def _choices(decided: Schedule, outlook: Outlook) -> list[Restraints]:
    """The restraints to make a schedule again with, given its outlook; the first that gives a better one is kept."""
    if outlook.in_vain:
        return [Restraints(unaided=outlook.in_vain)]
    if outlook.twice:
        begun = outlook.twice.intersection(each.job for each in decided.decisions if isinstance(each, Admit))
        goes_on = outlook.twice.intersection(
            each.job for each in decided.decisions if isinstance(each, Preempt | Reclaim) and each.reserved
        )
        moved = outlook.twice.intersection(each.job for each in decided.decisions if isinstance(each, Move))
        placed = frozenset((job, place) for job, place in outlook.places.items() if job in begun)
        ways = (
            Restraints(delayed=begun.difference(outlook.places), placed=placed),
            Restraints(delayed=begun | goes_on),
            Restraints(unmoved=moved),
            Restraints(untouched=outlook.twice - begun),
        )
        return [each for each in dict.fromkeys(ways) if each != UNRESTRAINED]
    if outlook.price == Price():
        return []
    each_alone = map(frozenset, zip(outlook.resumed, strict=True))
    return [Restraints(untouched=jobs) for jobs in dict.fromkeys([frozenset(outlook.resumed), *each_alone]) if jobs]


def _outlook(
    steps: Steps, state: ClusterState, decided: Schedule, cache: EngineCache, later: Restraints = UNRESTRAINED
) -> Outlook:
    """Carry out the last cycle's schedule, and those that follow from it, until nothing changes.

    `later`: the restraints of the schedules that follow.
    """
    cache.note()
    before, victims, stopped = _running(state), _victims(decided), _stopped(decided)
    started = {each.job for each in decided.decisions if isinstance(each, Admit)}
    begun = frozenset(run.job for run in state.runs if run.starts and run.job in started)
    twice, price = set[JobId](), _price(state, decided)
    for _ in range(MAX_CYCLES):
        after = steps.settled(steps.carried_out(state, decided), decided.at_ms)
        if after is state:
            has = _running(state)
            gained = {job: more for job in has if (more := _workers(has, job) - _workers(before, job)) > 0}
            again = (job for job in victims.keys() & has.keys() if _workers(has, job) >= _workers(before, job))
            freely = (job for job in again if not steps.lists_pools(victims[job]))
            return Outlook(
                running=frozenset(has),
                gained=gained,
                in_vain=frozenset(victims.values()) - gained.keys() - (stopped & has.keys()),
                twice=frozenset(twice),
                places={job: run.placement for job, run in has.items() if job in twice and run.placement is not None},
                resumed=tuple(sorted(freely, key=lambda job: (-_gpu_milli(before[job]), job))),
                price=price,
            )
        if _is_over(cache.counters):
            break
        state, decided = after, decide(steps.declared, after, decided.at_ms, cache, later)
        twice |= (stopped | begun) & _stopped(decided)
        price = Price(*map(add, price, _price(state, decided)))
    return Outlook(twice=frozenset(twice))


def _is_over(counters: Counters) -> bool:
    """Whether so much was searched that no more is foreseen."""
    return counters.considered > MAX_CONSIDERED or counters.tried > MAX_TRIED


def _price(state: ClusterState, decided: Schedule) -> Price:
    """What runs lose by one schedule."""
    stopped, victims = _stopped(decided), _victims(decided)
    if not stopped and not victims:
        return Price()
    left: dict[JobId, Placement] = {}
    for each in decided.decisions:
        if isinstance(each, Resize):
            left[each.job] = each.placement
        elif isinstance(each, Move | Preempt | Reclaim) and each.reserved is not None:
            left[each.job] = each.reserved
            stopped -= {each.job}
    runs = (run for run in state.runs if run.job in stopped or run.job in victims)
    lost = (_gpu_milli(run) - run.gpu_milli * len(left.get(run.job, NOWHERE).workers) for run in runs)
    return Price(sum(max(0, milli) for milli in lost), len(stopped))


def _running(state: ClusterState) -> dict[JobId, Run]:
    """The runs that have a place and are not stopping, by job."""
    return {run.job: run for run in state.runs if run.phase in ACTIVE and run.placement}


def _workers(runs: Mapping[JobId, Run], job: JobId) -> int:
    run = runs.get(job)
    return 0 if run is None or run.placement is None else len(run.placement.workers)


def _gpu_milli(run: Run) -> GpuMilli:
    return 0 if run.placement is None else run.gpu_milli * len(run.placement.workers)


def _victims(decided: Schedule) -> dict[JobId, JobId]:
    """The jobs whose runs make way, each with its beneficiary."""
    makes_way = (each for each in decided.decisions if isinstance(each, Reclaim | Preempt | Move | Resize))
    return {each.job: each.beneficiary for each in makes_way if each.beneficiary is not None}


def _stopped(decided: Schedule) -> frozenset[JobId]:
    """The jobs whose runs are stopped or moved."""
    return frozenset(d.job for d in decided.decisions if isinstance(d, Reclaim | Preempt | Move | Displace))
