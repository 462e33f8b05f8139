"""Looking ahead: a schedule for which runs make way is carried out in advance, as values, before it is decided.

A cycle decides job by job, and what follows from its pauses other jobs decide, in later cycles. So a job for which a
run has stopped could lose its place again, and a run that has gone on could be stopped a second time. Such a schedule
is made anew under restraints: no run makes way for that job; or that run is not moved, or makes way for no job at all,
provided that all jobs that would have run in the end still do.

Example: `a` could pause `b` of its own project. `b` would go on elsewhere, so that its project is above its fair share
with `a`, and `c` of another project would take `a`'s place by fairness: `b` would stop, and `a` would wait as before.

Invariant: restraints only take stops back. They delay no start, so that a cluster comes to rest with them as without.

Cost: nothing where no run makes way, or no job could take what it leaves from the job that it leaves it to. Else mostly
three cycles, of what has changed.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.cycle import decide
from gpuctl.engine.restraints import UNRESTRAINED, Restraints
from gpuctl.model.decision import Displace, Move, Preempt, Reclaim, Resize, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE, ClusterState
from gpuctl.model.steps import Steps
from gpuctl.model.units import Instant

MAX_AIDED = 20
"""Jobs for which runs make way in a cycle, at the most: beyond them nothing is foreseen. Of 10,000 waiting gangs 31 are
given room at once, and looking ahead takes as long again as the cycle, or twice as long."""
MAX_TRIES = 4
"""Schedules with further restraints, at the most."""
MAX_CYCLES = 10
"""Cycles that are looked ahead, at the most: few schedules cause more than three."""


class Outlook(NamedTuple):
    """What comes of a schedule. `running`: the jobs that run in the end. `in_vain`: those for which runs make way, and
    that do not run in the end, or go on with no more workers than before. `twice`: those whose run is stopped, and
    later again.

    Where the cluster does not rest within MAX_CYCLES, only `twice` is known.
    """

    running: frozenset[JobId] = frozenset()
    in_vain: frozenset[JobId] = frozenset()
    twice: frozenset[JobId] = frozenset()

    def is_better_than(self, other: Outlook) -> bool:
        """Whether all jobs still run, each run makes way for one that runs, and other runs, or none, stop twice."""
        return self.running >= other.running and not self.in_vain and self.twice != other.twice


def schedule(declared: Declared, state: ClusterState, now_ms: Instant, cache: EngineCache | None = None) -> Schedule:
    """Decide which declared jobs run, where, and which wait: one decision with one reason a job, and the trace.

    Pure, deterministic and independent of the order of its inputs; never raises, whatever state the cluster is in.
    `cache` saves work when the cycle before was over the same declarations and nodes; it changes no result.
    """
    cache = cache or EngineCache()
    cache.begin()
    decided = decide(declared, state, now_ms, cache)
    if cache.may_be_undone and len(_aided(decided)) <= MAX_AIDED:
        decided = _foreseen(declared, state, decided, cache)
        cache.settle_on(decided)
    return decided


def _foreseen(declared: Declared, state: ClusterState, decided: Schedule, cache: EngineCache) -> Schedule:
    """The schedule, or the one that is decided in its place."""
    steps, restraints, is_last = Steps(declared), UNRESTRAINED, True
    outlook = _outlook(declared, state, decided, cache, steps)
    choices = _choices(decided, outlook)
    for _ in range(MAX_TRIES):
        if not choices:
            break
        further = restraints | choices.pop(0)
        other = decide(declared, state, decided.at_ms, cache, further)
        others = _outlook(declared, state, other, cache, steps)
        is_last = bool(outlook.in_vain) or others.is_better_than(outlook)
        if is_last:
            decided, restraints, outlook, choices = other, further, others, _choices(other, others)
    if not is_last:
        decided = decide(declared, state, decided.at_ms, cache, restraints)
        cache.note()
    return decided


def _choices(decided: Schedule, outlook: Outlook) -> list[Restraints]:
    """What a schedule may be made anew with, because of its outlook: the first that is better is taken."""
    if outlook.in_vain:
        return [Restraints(unaided=outlook.in_vain)]
    moved = outlook.twice.intersection(each.job for each in decided.decisions if isinstance(each, Move))
    found = Restraints(unmoved=moved), Restraints(untouched=outlook.twice)
    return [each for each in found if each != UNRESTRAINED]


def _outlook(declared: Declared, state: ClusterState, decided: Schedule, cache: EngineCache, steps: Steps) -> Outlook:
    """Carry the last cycle's schedule out, and those that follow from it, until nothing changes."""
    cache.note()
    aided, stopped, again = _aided(decided), _stopped(decided), set[JobId]()
    had = {job: workers for job, workers in _workers(state).items() if job not in stopped}
    for _ in range(MAX_CYCLES):
        after = steps.settled(steps.carried_out(state, decided), decided.at_ms)
        if after is state:
            has = _workers(state)
            in_vain = frozenset(job for job in aided if has.get(job, 0) <= had.get(job, 0))
            return Outlook(frozenset(has), in_vain, frozenset(again))
        state, decided = after, decide(declared, after, decided.at_ms, cache)
        again |= stopped & _stopped(decided)
    return Outlook(twice=frozenset(again))


def _workers(state: ClusterState) -> dict[JobId, int]:
    """The jobs that run, each with its workers."""
    return {run.job: len(run.placement.workers) for run in state.runs if run.phase in ACTIVE and run.placement}


def _aided(decided: Schedule) -> frozenset[JobId]:
    """The jobs for which runs make way."""
    makes_way = (each for each in decided.decisions if isinstance(each, Reclaim | Preempt | Move | Resize))
    return frozenset(each.beneficiary for each in makes_way if each.beneficiary is not None)


def _stopped(decided: Schedule) -> frozenset[JobId]:
    """The jobs whose runs are stopped or moved."""
    return frozenset(d.job for d in decided.decisions if isinstance(d, Reclaim | Preempt | Move | Displace))
