"""One cycle of the engine, as numbered phases. Each returns its result; only the snapshot of the cycle are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpuctl.engine import reasons
from gpuctl.engine.admit.admission import Admission
from gpuctl.engine.admit.head_reservation import HeadReservations
from gpuctl.engine.admit.outcome import Outcome, Regained
from gpuctl.engine.admit.reservations import keep_moves
from gpuctl.engine.admit.scale_up import resizes
from gpuctl.engine.admit.start_conflicts import keep_apart
from gpuctl.engine.admit.under_scaled import UnderScaled, asked_by, count_growth, lacking
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.counters import Counters
from gpuctl.engine.fixpoint import nothing_follows
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.rounds import Rounds, is_elastic
from gpuctl.engine.shares.usage import next_usage, used_by
from gpuctl.engine.victims.drain import draining
from gpuctl.model.decision import Decision, Pending, Placement, Schedule
from gpuctl.model.declared import Declared, DomainName, QuotaShrink
from gpuctl.model.ids import JobId, PoolName, ProjectName
from gpuctl.model.state import ClusterState, named
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.model.usage import full_use


def schedule(declared: Declared, state: ClusterState, now_ms: Instant, outlook: EngineCache | None = None) -> Schedule:
    """Decide which declared jobs run, where, and which wait: one decision with one reason a job, and the trace.

    Pure, deterministic and independent of the order of its inputs; never raises, whatever state the cluster is in.
    `outlook` saves work when the cycle before was over the same declarations and nodes; it changes no result.
    """
    # 1. to 3. What is there, who may have what, who starts and who makes way; and what follows from that.
    outlook = outlook or EngineCache()
    cycle, foresight = Cycle(declared, now_ms, outlook), Rounds(state, now_ms)
    look = cycle.look(state)
    grown = tuple(resizes(look.outcome, look.smaller, look.standing.snapshot, look.standing.allocations))
    is_over = bool(grown) or is_elastic(look.outcome) or nothing_follows(look.outcome, look.standing)
    while foresight.take(look.outcome, look.standing) and not (is_over or foresight.is_over):
        look = cycle.look(foresight.state(), look)
        if not foresight.may_have(look.outcome):
            look = cycle.look(foresight.state(), look, asks=False)
            break

    # 4. One decision a job.
    standing, outcome = look.standing, look.outcome
    overlay = dict(_still_moving(standing, look.moving))
    overlay.update((resize.job, replace(resize, placement=named(resize.placement, outlook.uuids))) for resize in grown)
    overlay.update(foresight.decisions(standing.snapshot, outlook.uuids))
    for job, (seat, reason) in outcome.kept.items():
        if job not in overlay:
            record = standing.lineup.find(job)[0].record
            overlay[job] = Pending(job=job, reason=reason, record=record, reserved=seat.placement)
    told: list[JobClass] = []
    is_as_before = not look.attempted and outcome.kept == standing.kept
    if (outcome.lanes or foresight.looks > 1) and not is_as_before:  # Else all have a place, or their reason.
        told = standing.waitlist.shortages.tell(standing.lineup, standing.snapshot, look.guards)
    standing.kept = outcome.kept
    standing.decide(overlay, told)
    outlook.keep(standing)
    shares = standing.shares.tell(_promised(foresight.promised, outcome.regained, outlook.capacity.domain_of))
    half_life_ms = declared.cluster.scheduling.fairness_half_life_ms
    return Schedule(
        at_ms=now_ms,
        decisions=standing.verdicts.all(),
        shares=shares,
        trace=foresight.trace,
        lanes=foresight.without_place(outcome.lanes),
        usage=next_usage(state.ledgers, shares, half_life_ms, now_ms),
    )


@dataclass(frozen=True, slots=True)
class Round:
    """A cycle gone through as far as who starts and who makes way. `attempted`: whether any job could be attempted."""

    standing: CarriedState
    moving: Mapping[JobId, Placement]
    smaller: tuple[UnderScaled, ...]
    guards: HeadReservations
    outcome: Outcome
    attempted: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """What stays the same while a cycle is gone through."""

    declared: Declared
    now_ms: Instant
    outlook: EngineCache

    def look(self, state: ClusterState, before: Round | None = None, *, asks: bool = True) -> Round:
        """See who starts and who makes way; without `asks` only what those want for who wait.

        Not the first time it is the cluster as it will be; elastic runs don't get back then what they lack.
        """
        declared, now_ms, outlook = self.declared, self.now_ms, self.outlook
        effort = Counters()
        if before is not None:
            effort = outlook.effort
            outlook.keep(before.standing)
        # 1. What there is, what each run says by itself, and who holds what: as before, but for what has changed.
        standing = outlook.over(declared, state, now_ms)
        snapshot, capacity = standing.snapshot, outlook.capacity
        snapshot.elastic = standing.elastic
        drains = declared.cluster.scheduling.quota_shrink is QuotaShrink.DRAIN
        snapshot.spare(draining(standing.allocations, outlook.tree) if drains else frozenset())
        moving = keep_moves(standing.moving.values(), outlook.prospects, snapshot)

        # 2. Who wants what, and what each may have.
        demand = standing.demand
        standing.lineup.count(demand)
        smaller = tuple(lacking(standing.changeable, outlook.prospects)) if standing.elastic else ()
        asked = asked_by(smaller, demand)
        count_growth(smaller, capacity, demand)
        half_life_ms = declared.cluster.scheduling.fairness_half_life_ms
        used = used_by(state.ledgers, half_life_ms, now_ms)
        there = {
            domain.name: standing.usable_milli[domain.name] + standing.adjustments.get(domain.name, 0)
            for domain in declared.domains
        }
        full = full_use(sum(there.values()), half_life_ms or 0)
        shares_moved = False
        for domain, milli in there.items():
            shares_moved |= standing.division.renew(domain, milli, full, used)

        # 3. Who starts, who is paused for whom. Where all were asked in vain, so are those that came to stand behind.
        in_vain = standing.in_vain and standing.only_joined and not shares_moved
        admission = Admission(snapshot, declared.cluster.scheduling, asks=asks and not in_vain)
        outcome = admission.run(standing.waitlist, () if before else smaller, asked)
        if before is None:
            keep_apart(outcome, standing.lineup, snapshot)
        standing.in_vain = asks and outcome.in_vain
        outlook.effort.more(effort)
        return Round(standing, moving, smaller, admission.guards, outcome, attempted=not in_vain)


def _still_moving(standing: CarriedState, moving: Mapping[JobId, Placement]) -> Iterator[tuple[JobId, Decision]]:
    """Runs that stop to go on elsewhere, with the place that is kept for them, if it is."""
    for job, _ in standing.moving.values():
        decision = standing.decisions[job.id]
        yield (
            job.id,
            Pending(
                job=job.id,
                reason=decision.reason if job.id in moving else reasons.still_stopping(),
                record=decision.record,
                reserved=moving.get(job.id),
            ),
        )


def _promised(
    seats: Mapping[JobId, Assignment], regained: Mapping[JobId, Regained], domain_of: Mapping[PoolName, DomainName]
) -> Mapping[tuple[DomainName, ProjectName], GpuMilli]:
    """What is only reserved for projects: it is in the snapshot, and not held."""
    promised: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
    for job, seat in seats.items():
        key = domain_of[seat.option.pool.name], job.project
        promised[key] = promised.get(key, 0) + seat.option.request.total_milli
    for job, places in regained.items():
        key = places.domain, job.project
        promised[key] = promised.get(key, 0) + places.each_milli * len(places.now + places.coming)
    return promised
