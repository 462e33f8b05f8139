"""One cycle of the engine, as numbered phases. Each returns its result; only the books of the cycle are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from gpuctl.model.decision import (
    Admit,
    Decision,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Schedule,
)
from gpuctl.model.declared import Declared, DomainName, QuotaShrink
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName
from gpuctl.model.state import ClusterState, Run, named
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.model.usage import full_use
from gpuctl.schedule import reasons
from gpuctl.schedule.admission import Admission
from gpuctl.schedule.collisions import keep_apart
from gpuctl.schedule.demand import claims
from gpuctl.schedule.drain import draining
from gpuctl.schedule.fairshare import divide
from gpuctl.schedule.growth import resizes
from gpuctl.schedule.lacking import asked_by, count_growth, lacking
from gpuctl.schedule.lineup import Lineup
from gpuctl.schedule.outcome import Outcome
from gpuctl.schedule.outlook import Outlook
from gpuctl.schedule.reservation import keep_moves
from gpuctl.schedule.runs import paused_record
from gpuctl.schedule.standing import Standing
from gpuctl.schedule.usage import next_usage, used_by


def schedule(declared: Declared, state: ClusterState, now_ms: Instant, outlook: Outlook | None = None) -> Schedule:
    """Decide which declared jobs run, where, and which wait: one decision with one reason a job, and the trace.

    Pure, deterministic and independent of the order of its inputs; never raises, whatever state the cluster is in.
    `outlook` saves work when the cycle before was over the same declarations and nodes; it changes no result.
    """
    # 1. What there is, what each run says by itself, and who holds what: as before, but for what has changed.
    outlook = outlook or Outlook()
    standing = outlook.over(declared, state, now_ms)
    books, capacity, accounts = standing.books, outlook.capacity, standing.books.accounts
    books.elastic = standing.elastic
    drains = declared.cluster.scheduling.quota_shrink is QuotaShrink.DRAIN
    books.spare(draining(standing.holders, outlook.tree) if drains else frozenset())
    moving = keep_moves(standing.moving.values(), outlook.prospects, books)

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
    for domain in declared.domains:
        terms = there[domain.name], full, used
        if demand.has_changed(domain.name) or standing.terms.get(domain.name) != terms:
            claimed = claims(declared, domain.name, demand, accounts, used)
            shares_moved |= accounts.apportion(domain.name, divide(there[domain.name], claimed, full))
            standing.terms[domain.name] = terms

    # 3. Who starts, who is paused for whom. Where all were asked in vain, so are those that came to stand behind them.
    asks = not (standing.in_vain and standing.only_joined and not shares_moved)
    admission = Admission(books, declared.cluster.scheduling, asks=asks)
    outcome = admission.run(standing.waitlist, smaller, asked)
    keep_apart(outcome, standing.lineup, books)
    standing.in_vain = outcome.in_vain

    # 4. One decision a job.
    overlay = dict(_still_moving(standing, moving))
    overlay.update(_stopped(outcome, now_ms))
    for resize in resizes(outcome, smaller, books, standing.holders):
        overlay[resize.job] = replace(resize, placement=named(resize.placement, outlook.uuids))
    overlay.update(_placed(outcome, standing.lineup, outlook.uuids))
    standing.decide(overlay, outcome.told)
    outlook.keep(standing)
    shares = standing.shares.tell(_promised(outcome, capacity.domain_of))
    return Schedule(
        at_ms=now_ms,
        decisions=standing.verdicts.all(),
        shares=shares,
        trace=tuple(outcome.trace),
        lanes=outcome.lanes,
        usage=next_usage(state.ledgers, shares, half_life_ms, now_ms),
    )


def _stopped(outcome: Outcome, now_ms: Instant) -> Iterator[tuple[JobId, Decision]]:
    """Runs that make way: those that are paused, and those that are moved."""
    for victim, pause in outcome.pauses.items():
        kind = Preempt if pause.beneficiary.project == victim.project else Reclaim
        record = paused_record(pause.holder.run, now_ms, pause.beneficiary)
        yield victim, kind(job=victim, reason=pause.reason, record=record, beneficiary=pause.beneficiary)
    for mover, shift in outcome.shifts.items():
        yield (
            mover,
            Move(
                job=mover,
                reason=shift.reason,
                record=paused_record(shift.move.holder.run, now_ms, shift.beneficiary),
                beneficiary=shift.beneficiary,
                reserved=shift.move.seat.placement,
            ),
        )


def _still_moving(standing: Standing, moving: Mapping[JobId, Placement]) -> Iterator[tuple[JobId, Decision]]:
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


def _was_moved(run: Run) -> bool:
    return run.reason is not None and run.reason.code == reasons.MOVED


def _placed(
    outcome: Outcome, lineup: Lineup, uuids: Mapping[NodeName, tuple[str, ...]]
) -> Iterator[tuple[JobId, Decision]]:
    """Jobs that start, and jobs for which a place is held."""
    for job, (seat, reason) in outcome.started.items():
        waiting, _ = lineup.find(job)
        record = waiting.record
        moved_for = record.paused_for if waiting.run and _was_moved(waiting.run) else None
        record = record._replace(starts=record.starts + 1, paused_for=moved_for)
        yield job, Admit(job=job, reason=reason, record=record, placement=named(seat.placement, uuids))
    for job, (seat, reason) in chain(outcome.reserved.items(), outcome.kept.items()):
        record = lineup.find(job)[0].record
        yield job, Pending(job=job, reason=reason, record=record, reserved=seat.placement)


def _promised(
    outcome: Outcome, domain_of: Mapping[PoolName, DomainName]
) -> Mapping[tuple[DomainName, ProjectName], GpuMilli]:
    """What is only reserved for projects: it is in the books, and not held."""
    promised: dict[tuple[DomainName, ProjectName], GpuMilli] = {}
    for job, (seat, _) in outcome.reserved.items():
        key = domain_of[seat.offer.pool.name], job.project
        promised[key] = promised.get(key, 0) + seat.offer.request.total_milli
    for job, places in outcome.regained.items():
        key = places.domain, job.project
        promised[key] = promised.get(key, 0) + places.each_milli * len(places.now + places.coming)
    return promised
