"""One cycle of the engine: the table of contents of this package.

1. Snapshot: what there is, what each run does by itself, and which run holds what (`cache/`, `snapshot.py`).
2. Shares: what each project asks for, and what it may have (`jobs/`, `shares/`).
3. Admission: which jobs start, and which runs make way (`admit/`, `victims/`).
4. Rounds: 1 to 3 again, supposing that all of it has happened, until nothing follows (`rounds.py`).
5. Decisions: one decision with one reason for each job, retries last (`Cycle.decide`).

The phases share only what is written here: the snapshot and the other parts of `CarriedState`, which phase 1 brings up
to date, and the `Round` that phases 1 to 3 return. Nothing else of a cycle outlives it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from gpuctl.engine import reasons
from gpuctl.engine.admit.admission import Admission
from gpuctl.engine.admit.outcome import Outcome, Regained
from gpuctl.engine.admit.reservations import keep_moves
from gpuctl.engine.admit.retries import start_retries
from gpuctl.engine.admit.scale_up import ScaleUp
from gpuctl.engine.admit.start_conflicts import keep_apart
from gpuctl.engine.admit.under_scaled import count_growth, under_scaled
from gpuctl.engine.cache.carried_state import CarriedState
from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.capacity.gang import Assignment
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.counters import Counters
from gpuctl.engine.jobs.project_queue import JobClass
from gpuctl.engine.jobs.scaling import further_nodes
from gpuctl.engine.rounds import Rounds, is_elastic, started
from gpuctl.engine.shares.usage import next_usage, used_by
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.drain import draining
from gpuctl.engine.victims.settled import settled
from gpuctl.model.decision import Admit, Decision, Keep, Pending, Placement, Resize, Schedule, TraceStep
from gpuctl.model.declared import Declared, QuotaShrink
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.state import ClusterState, named
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.model.usage import full_use


def schedule(declared: Declared, state: ClusterState, now_ms: Instant, cache: EngineCache | None = None) -> Schedule:
    """Decide which declared jobs run, where, and which wait: one decision with one reason a job, and the trace.

    Pure, deterministic and independent of the order of its inputs; never raises, whatever state the cluster is in.
    `cache` saves work when the cycle before was over the same declarations and nodes; it changes no result.
    """
    cache = cache or EngineCache()
    declared, state = cache.dependencies.applied(declared, state, now_ms)
    declared = cache.scaled.applied(cache.sweeps.applied(declared, state), state)
    cycle, rounds = Cycle(declared, now_ms, cache), Rounds(state, now_ms)

    # 1. to 3. The first round, and elastic runs that change in place.
    last = cycle.round(state)
    resized = tuple(last.admission.scale_up.resizes())

    # 4. Rounds, until nothing follows. A round that can't be merged is repeated without attempts, for its reasons.
    is_over = bool(resized) or is_elastic(last.outcome)
    while rounds.take(last.outcome, last.carried) and not (is_over or rounds.is_over):
        last = cycle.round(rounds.state(), last)
        if not rounds.can_merge(last.outcome):
            last = cycle.round(rounds.state(), last, attempts=False)
            break

    # 5. Decisions.
    retry_steps = cycle.decide(last, rounds, resized)
    cache.keep(last.carried)
    shares = last.carried.shares(_only_claimed(rounds.reserved, last.outcome.regained, last.carried.snapshot))
    half_life_ms = declared.cluster.scheduling.fairness_half_life_ms
    return Schedule(
        at_ms=now_ms,
        decisions=last.carried.all_decisions(),
        shares=shares,
        trace=rounds.trace + retry_steps,
        pending_queues=rounds.still_pending(last.outcome.pending_queues),
        usage=next_usage(state.ledgers, shares, half_life_ms, now_ms),
    )


@dataclass(frozen=True, slots=True)
class Round:
    """The result of phases 1 to 3. `moving`: next places of runs that stop to move. `attempted`: attempts were due."""

    carried: CarriedState
    moving: Mapping[JobId, Placement]
    admission: Admission
    outcome: Outcome
    attempted: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """What all rounds of a cycle have in common."""

    declared: Declared
    now_ms: Instant
    cache: EngineCache

    def round(self, state: ClusterState, before: Round | None = None, *, attempts: bool = True) -> Round:
        """Do phases 1 to 3 over a cluster: the real one, or after the first round the supposed one.

        In later rounds elastic runs regain no workers. Without `attempts` no job starts but by its reservation.
        """
        cache, policy = self.cache, self.declared.cluster.scheduling
        earlier = Counters()
        if before is not None:
            earlier = cache.counters
            cache.keep(before.carried)

        # 1. Snapshot.
        carried = cache.over(self.declared, state, self.now_ms)
        snapshot = carried.snapshot
        snapshot.elastic = carried.elastic
        drains = policy.quota_shrink is QuotaShrink.DRAIN
        protected = draining(carried.allocations, cache.tree) if drains else frozenset()
        snapshot.protect(protected, settled(carried.pending_jobs, carried.beneficiaries()))
        moving = keep_moves(carried.moving.values(), cache.static_fit, snapshot)

        # 2. Shares.
        carried.pending_jobs.count(carried.demand)
        lacking = tuple(under_scaled(carried.changeable, cache.static_fit)) if carried.elastic else ()
        count_growth(lacking, cache.capacity, carried.demand)
        shares_changed = self._divide(carried, state)

        # 3. Admission. If no attempt of the last cycle succeeded and nothing has changed since, none would succeed now:
        # without this an unchanged cycle takes 3.6x.
        all_unschedulable = carried.all_unschedulable and carried.is_unchanged and not shares_changed
        scale_up = ScaleUp(snapshot, () if before else lacking, carried.allocations)
        admission = Admission(snapshot, policy, scale_up, attempts=attempts and not all_unschedulable)
        outcome = admission.run(carried.pending_jobs)
        outcome.pending_queues = carried.still_pending(outcome.started.keys() | outcome.reserved.keys())
        if before is None:
            keep_apart(outcome, carried.pending_jobs, snapshot)
        carried.all_unschedulable = attempts and outcome.all_unschedulable
        if attempts and not all_unschedulable:
            carried.cut_off = frozenset(outcome.cut_off)
        cache.counters.more(earlier)
        return Round(carried, moving, admission, outcome, attempted=not all_unschedulable)

    def _divide(self, carried: CarriedState, state: ClusterState) -> bool:
        """Divide each domain into portions; whether any portion has changed."""
        half_life_ms = self.declared.cluster.scheduling.fairness_half_life_ms
        used = used_by(state.ledgers, half_life_ms, self.now_ms)
        usable = {
            domain.name: carried.usable_milli[domain.name] + carried.adjustments.get(domain.name, 0)
            for domain in self.declared.domains
        }
        full = full_use(sum(usable.values()), half_life_ms or 0)
        changed = [carried.division.renew(domain, milli, full, used) for domain, milli in usable.items()]
        return any(changed)

    def decide(self, last: Round, rounds: Rounds, resized: Collection[Resize]) -> tuple[TraceStep, ...]:
        """Enter one decision for each job: by itself, by the reason it waits, or by what this cycle does with it.

        Returns the steps of retries, which are decided last: they take what all others leave.
        """
        carried, outcome, uuids = last.carried, last.outcome, self.cache.uuids
        overlay: dict[JobId, Decision] = dict(_still_moving(carried, last.moving))
        overlay.update(_reserved(carried, outcome.regained))
        overlay.update((each.job, replace(each, placement=named(each.placement, uuids))) for each in resized)
        overlay.update(rounds.decisions(carried.snapshot, uuids))
        for job, (assignment, reason) in outcome.kept.items():
            if job not in overlay:
                record = carried.pending_jobs.find(job).record
                overlay[job] = Pending(job=job, reason=reason, record=record, reserved=assignment.placement)
        changed: list[JobClass] = []
        is_as_before = not last.attempted and outcome.kept == carried.kept
        if (outcome.pending_queues or rounds.count > 1) and not is_as_before:
            reservations = last.admission.reservations
            changed = carried.pending_reasons.update(
                carried.pending_jobs, carried.snapshot, reservations, carried.cut_off
            )
        carried.kept = outcome.kept
        retried = Outcome(kept=outcome.kept)
        if all(isinstance(decision, Pending | Keep) for decision in overlay.values()):
            start_retries(carried.pending_jobs, carried.snapshot, retried)
        for job, (assignment, reason) in retried.started.items():
            overlay[job] = started(carried.pending_jobs.find(job), assignment, reason, uuids)
        overlay.update(_with_further_nodes(overlay, self.declared, self.cache.capacity))
        carried.decide(overlay, changed)
        return tuple(retried.trace)


def _still_moving(carried: CarriedState, moving: Mapping[JobId, Placement]) -> Iterator[tuple[JobId, Decision]]:
    """Runs that stop to go on elsewhere, with their next places, as far as those are still reserved."""
    for job, _ in carried.moving.values():
        decision = carried.decisions[job.id]
        reason = decision.reason if job.id in moving else reasons.still_stopping()
        yield job.id, Pending(job=job.id, reason=reason, record=decision.record, reserved=moving.get(job.id))


def _with_further_nodes(
    decisions: Mapping[JobId, Decision], declared: Declared, capacity: Capacity
) -> Iterator[tuple[JobId, Decision]]:
    """Starts of services that scale, with the nodes that further workers may go to."""
    starts = {job: decision for job, decision in decisions.items() if isinstance(decision, Admit)}
    for job in filter(lambda each: each.scaling is not None and each.id in starts, declared.jobs if starts else ()):
        start = starts[job.id]
        yield job.id, replace(start, further=further_nodes(job, start.placement, capacity))


def _reserved(carried: CarriedState, regained: Mapping[JobId, Regained]) -> Iterator[tuple[JobId, Decision]]:
    """Elastic runs that go on with places reserved for workers that they lack: those that others were paused for."""
    for job, places in regained.items():
        decision = carried.decisions.get(job)
        if places.paid and isinstance(decision, Keep):
            yield job, replace(decision, reserved=Placement(workers=places.paid))


def _only_claimed(
    assignments: Mapping[JobId, Assignment], regained: Mapping[JobId, Regained], snapshot: Snapshot
) -> Mapping[tuple[DomainName, ProjectName], GpuMilli]:
    """GPUs that are reserved for projects, or claimed by displaced runs: the snapshot counts them as held."""
    claimed: dict[tuple[DomainName, ProjectName], GpuMilli] = {}

    def add(domain: DomainName, project: ProjectName, milli: GpuMilli) -> None:
        claimed[domain, project] = claimed.get((domain, project), 0) + milli

    for job, assignment in assignments.items():
        add(assignment.option.domain, job.project, assignment.option.request.total_milli)
    for job, places in regained.items():
        add(places.domain, job.project, places.each_milli * len(places.workers))
    for run in snapshot.leaving_runs:
        if run.keeps_claim and run.domain is not None:
            add(run.domain, run.project, run.total_milli)
    return claimed
