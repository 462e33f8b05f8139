"""One cycle of the engine: the table of contents of this package.

1. Snapshot: the capacity, what each run does on its own, and which run holds what (`cache/`, `snapshot.py`).
2. Shares: what each project asks for, and what it may have (`jobs/`, `shares/`).
3. Admission: which jobs start, and which runs make way (`admit/`, `victims/`).
4. Decisions: one decision with one reason for each job, retries last.

A run that is paused here also gets its next place reserved here, if its own rights give it one. All other consequences
of a decision are left to the next cycle; `lookahead.py` makes those cycles in advance when runs make way.
The phases share only what `decide` shows: the snapshot and the other parts of `CarriedState`, which phase 1 updates.
Nothing else of a cycle outlives it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuctl.engine import reasons
from gpuctl.engine.admit.admission import Admission
from gpuctl.engine.admit.attempts import still_pending
from gpuctl.engine.admit.outcome import Outcome, compete_afterwards, decisions_of
from gpuctl.engine.admit.reservations import keep_moves
from gpuctl.engine.admit.retries import start_retries
from gpuctl.engine.admit.scale_up import ScaleUp
from gpuctl.engine.admit.start_conflicts import keep_apart
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.jobs.pending_jobs import PendingJobs
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.jobs.under_scaled import UnderScaled, count_growth, under_scaled
from gpuctl.engine.restraints import UNRESTRAINED, Restraints
from gpuctl.engine.shares.usage import next_usage, used_by
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.settled import draining, settled
from gpuctl.model.decision import Decision, Keep, Pending, Placement, Schedule
from gpuctl.model.declared import Declared, QuotaShrink
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.state import ClusterState, named
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.model.usage import full_use


def decide(
    declared: Declared,
    state: ClusterState,
    now_ms: Instant,
    cache: EngineCache,
    restraints: Restraints = UNRESTRAINED,
) -> Schedule:
    """Make the schedule of one cycle by itself; `lookahead` finds the restraints under which it is decided."""
    policy = declared.cluster.scheduling
    declared, state = cache.effective.of(declared, state, now_ms)

    # 1. Snapshot.
    carried = cache.over(declared, state, now_ms)
    snapshot = carried.snapshot
    drains = policy.quota_shrink is QuotaShrink.DRAIN
    protected = draining(carried.allocations, carried.tree) if drains else frozenset()
    lacking = tuple(under_scaled(carried.changeable, carried.static_fit)) if carried.elastic else ()
    gave_up_for = (run.allocation.run.paused_for for run in lacking)
    against = settled(carried.pending_jobs, carried.beneficiaries(gave_up_for))
    rights_changed = snapshot.protect(protected, against, restraints)
    moving = keep_moves(carried.moving.values(), carried.static_fit, snapshot)

    # 2. Shares.
    carried.pending_jobs.count(carried.demand, carried.stopping(moving))
    count_growth(lacking, carried.capacity, carried.demand)
    shares_changed = _divide(declared, state, now_ms, carried)

    # 3. Admission. If no attempt of the last cycle succeeded and nothing has changed since, none would succeed now, so
    # none is made: without this an unchanged cycle takes 3.6x.
    is_unchanged = carried.is_unchanged and not (rights_changed or shares_changed)
    all_unschedulable = carried.all_unschedulable and is_unchanged
    scale_up = ScaleUp(snapshot, lacking, carried.allocations)
    admission = Admission(snapshot, policy, scale_up, attempts=not all_unschedulable)
    outcome = admission.run(carried.pending_jobs)
    decided = outcome.started.keys() | outcome.reserved.keys()
    outcome.pending_queues = still_pending(carried.pending_jobs, snapshot.accounts, decided)
    keep_apart(outcome, carried.pending_jobs, snapshot)
    carried.all_unschedulable = outcome.all_unschedulable

    # 4. Decisions.
    overlay: dict[JobId, Decision] = dict(_still_moving(carried, moving))
    resized = tuple(scale_up.resizes())
    overlay.update(_with_reservation(carried, outcome.regained))
    overlay.update((each.job, replace(each, placement=named(each.placement, carried.uuids))) for each in resized)
    overlay.update(decisions_of(outcome, carried.pending_jobs, now_ms, carried.uuids))
    retried = _decide(carried, admission, overlay, now_ms)
    others_wait = bool(outcome.pending_queues or lacking or any(snapshot.leaving_runs))
    makes_way = bool(outcome.pauses or outcome.given_up)
    may_be_undone = makes_way and (others_wait or compete_afterwards(outcome, snapshot))
    cache.keep(carried, may_be_undone=may_be_undone or (others_wait and _starts_again(outcome, carried.pending_jobs)))
    shares = tuple(carried.division.rows(_only_claimed(outcome, snapshot)))
    return Schedule(
        at_ms=now_ms,
        decisions=carried.all_decisions(),
        shares=shares,
        trace=(*outcome.trace, *retried.trace),
        pending_queues=outcome.pending_queues,
        usage=next_usage(state.ledgers, shares, policy.fairness_half_life_ms, now_ms),
    )


def _starts_again(outcome: Outcome, pending_jobs: PendingJobs) -> bool:
    """Whether a job that has run before starts in this cycle."""
    runs = (pending_jobs.find(job).run for job in outcome.started)
    return any(run is not None and run.starts for run in runs)


def _decide(carried: CarriedState, admission: Admission, overlay: dict[JobId, Decision], now_ms: Instant) -> Outcome:
    """Enter one decision for each job: from `overlay`, or the reason why it waits, or its decision by itself.

    Returns the outcome of the retries. They are decided last: they take only what all other jobs leave.
    """
    outcome, snapshot = admission.outcome, carried.snapshot
    changed: list[JobClass] = []
    if admission.attempts:
        carried.cut_off = frozenset(outcome.cut_off)
        carried.unaided = snapshot.restraints.unaided | snapshot.restraints.delayed
    if outcome.pending_queues and (admission.attempts or outcome.kept != carried.kept):
        changed = carried.pending_reasons.update(
            carried.pending_jobs, snapshot, admission.reservations, carried.cut_off, carried.unaided
        )
    carried.kept = outcome.kept
    retried = Outcome(kept=outcome.kept)
    if carried.pending_jobs.retries and all(isinstance(each, Pending | Keep) for each in overlay.values()):
        start_retries(carried.pending_jobs, snapshot, retried)
        overlay.update(decisions_of(retried, carried.pending_jobs, now_ms, carried.uuids))
    carried.decide(overlay, changed)
    return retried


def _divide(declared: Declared, state: ClusterState, now_ms: Instant, carried: CarriedState) -> bool:
    """Divide each domain into portions. Returns whether any portion has changed."""
    half_life_ms = declared.cluster.scheduling.fairness_half_life_ms
    used = used_by(state.ledgers, half_life_ms, now_ms)
    usable = {
        domain.name: carried.usable_milli[domain.name] + carried.adjustments.get(domain.name, 0)
        for domain in declared.domains
    }
    full = full_use(sum(usable.values()), half_life_ms or 0)
    changed = [carried.division.renew(domain, milli, full, used) for domain, milli in usable.items()]
    return any(changed)


def _still_moving(carried: CarriedState, moving: Mapping[JobId, Placement]) -> Iterator[tuple[JobId, Decision]]:
    """Runs that stop in order to go on elsewhere. Each has its next place, if that is still reserved."""
    for job, _ in carried.moving.values():
        decision = carried.decisions[job.id]
        reason = decision.reason if job.id in moving else reasons.STILL_STOPPING
        yield job.id, Pending(job=job.id, reason=reason, record=decision.record, reserved=moving.get(job.id))


def _with_reservation(carried: CarriedState, regained: Mapping[JobId, UnderScaled]) -> Iterator[tuple[JobId, Decision]]:
    """Elastic runs that go on with reserved places for missing workers: the places that other runs were paused for."""
    for job, run in regained.items():
        decision = carried.decisions.get(job)
        if run.paid and isinstance(decision, Keep):
            yield job, replace(decision, reserved=Placement(workers=tuple(run.paid)))


def _only_claimed(outcome: Outcome, snapshot: Snapshot) -> Mapping[tuple[DomainName, ProjectName], GpuMilli]:
    """GPUs reserved for projects, or claimed by displaced runs. The snapshot counts them as held."""
    claimed = Counter[tuple[DomainName, ProjectName]]()
    for job, (assignment, _) in outcome.reserved.items():
        claimed[assignment.option.domain, job.project] += assignment.option.request.total_milli
    for job, run in outcome.regained.items():
        claimed[run.option.domain, job.project] += run.option.request.gpu_milli * len(run.gained)
    for each in snapshot.leaving_runs:
        if each.keeps_claim and each.domain is not None:
            claimed[each.domain, each.project] += each.total_milli
    return claimed
