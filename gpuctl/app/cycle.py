"""One reconcile cycle, and cycles until nothing is left to do. All of gpuctl, in the order in which data flows.

A cycle reads everything, decides once and applies the plan. All state that must survive is in the cluster: a cycle
hands the next one only the writes that the server refused, and caches. So a cycle may be killed at any point, and run
at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gpuctl.app.apply import apply_plan, never
from gpuctl.app.caches import CycleCaches
from gpuctl.app.incidents import NO_INCIDENTS, Incidents
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.other_engine import left_to, written_for
from gpuctl.app.ports import Clock
from gpuctl.app.rejections import (
    Rejections,
    checked_again,
    still_refused,
    that_are_doubted,
    that_are_sure,
    waiting_for,
    with_new,
    with_refused_starts,
)
from gpuctl.engine import schedule
from gpuctl.k8s.kinds import OF_DEVICES, Kind, in_words, is_of_others
from gpuctl.k8s.workloads import kind_of
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus, Plan
from gpuctl.model.decision import Reason, Schedule
from gpuctl.model.declared import Declared, Sharing
from gpuctl.model.ids import JobId, ObjectRef, RunKey
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState, RawObjects
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe import unexplained_runs, with_idle, with_problems
from gpuctl.plan import Stage, excluded_projects, make_plan, mass_stop, obstacles
from gpuctl.render import render
from gpuctl.targets import Engine

CYCLES_TO_A_FIXED_POINT = 64
"""More cycles than any change needs: one each to create a run, see it, admit it, take its place and give it back."""

LONGEST_MAKING_MS: DurationMs = 1_000
"""The time for creating new runs in one cycle. Those left are created in the next one, which also releases the
first."""

LONGEST_TELLING_MS: DurationMs = 250
"""The time for updating waiting runs in one cycle. Updates left go to the next one: the end of a job comes first."""

_LEADS_NOWHERE = frozenset({Stage.LEDGER, Stage.ADMIT, Stage.RECORD, Stage.QUEUE})
"""Stages whose updates cause no write of the next cycle: the cluster has to act on them first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw, decided and wrote. `state` was observed before the writes; `result` is empty if there were
    none.

    `declared`: the declarations as enforced, with the projects that stay as they are whatever is declared.
    """

    at_ms: Instant
    declared: Declared
    state: ClusterState
    schedule: Schedule
    manifests: Manifests
    plan: Plan
    result: ApplyResult = field(default_factory=ApplyResult)
    rejected: Rejections = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether the cycle wrote nothing, so that another cycle would see the same."""
        return self.result.writes == 0

    @property
    def calm(self) -> bool:
        """Whether another cycle is sure to write nothing until something happens in the cluster."""
        return self.settled or all(map(_leads_nowhere, self.result.outcomes))

    @property
    def faults(self) -> tuple[Outcome, ...]:
        """Writes that failed: refused by the cluster, not answered, or made for an older version of the object than is
        there."""
        failed = {OutcomeStatus.FAILED, OutcomeStatus.CONFLICT}
        return tuple(o for o in self.result.outcomes if o.status in failed)

    @property
    def unwritten(self) -> tuple[ObjectRef, ...]:
        """Objects whose write failed but may soon succeed: the next cycles write them again."""
        return tuple(outcome.change.ref for outcome in self.faults if not outcome.refused)


def _leads_nowhere(outcome: Outcome) -> bool:
    change = outcome.change
    updated = outcome.status is OutcomeStatus.APPLIED and change.action is Action.UPDATE
    return updated and change.stage in _LEADS_NOWHERE


def at_rest(report: CycleReport) -> bool:
    """End condition for cycles that go on until one has written nothing."""
    return report.settled


def until_calm(report: CycleReport) -> bool:
    """End condition for the cycles of a loop that runs again a moment later."""
    return report.calm


def nothing() -> None:
    """Do nothing: the default `settle`, for a cluster that moves on by itself."""


def none_rests(change: Change, now_ms: Instant) -> bool:
    """Make all changes: the default `rests`."""
    del change, now_ms
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleContext:
    """What a cycle works with: the cluster, the clock, and what earlier cycles found.

    - `settle` makes everything happen that is due in the cluster; `stop` is asked before every write.
    - `rests`: which changes are left for later. `rejected`: writes that the server refused and would refuse again.
    - `caches` come from the cycles before.
    - `incidents`: why runs do not start, where no pod says so.
    - `idle`: since when idle runs are idle; None: nothing measures that.
    - `engine`: the other engine that decides which jobs run; None: gpuctl's own.
    """

    object_cache: ObjectCache
    clock: Clock
    settle: Callable[[], None] = nothing
    stop: Callable[[], bool] = never
    rests: Callable[[Change, Instant], bool] = none_rests
    rejected: Rejections = field(default_factory=dict)
    caches: CycleCaches = field(default_factory=CycleCaches)
    incidents: Incidents = NO_INCIDENTS
    idle: Mapping[RunKey, Instant] | None = None
    engine: Engine | None = None


def foresee(declared: Declared, context: CycleContext, confirmations: frozenset[str] = frozenset()) -> CycleReport:
    """Read and decide: a cycle without its writes. Raises ClusterUnavailable or Forbidden if the cluster can't be
    read."""
    context.object_cache.read_also(declared.cluster.workload_kinds)
    context.object_cache.refresh()
    if any(pool.sharing is Sharing.DRA for pool in declared.cluster.pools):
        context.object_cache.require(OF_DEVICES)  # else devices would be given out twice
    return foreseen(
        declared,
        context.object_cache.objects(),
        context.clock.now_ms(),
        context.caches,
        context.rejected,
        confirmations,
        context.incidents,
        context.idle,
        context.engine,
        context.object_cache.lacking,
    )


def foreseen(  # noqa: PLR0913, PLR0917 - all that a cycle knows, and nothing behind it
    declared: Declared,
    raw: RawObjects,
    now_ms: Instant,
    caches: CycleCaches,
    rejected: Rejections,
    confirmations: frozenset[str] = frozenset(),
    incidents: Incidents = NO_INCIDENTS,
    idle: Mapping[RunKey, Instant] | None = None,
    engine: Engine | None = None,
    unread: Collection[Kind] = (),
) -> CycleReport:
    """Decide on these objects, and plan the writes. Never raises, whatever the objects contain.

    `unread`: kinds that the server lacks or can't read now, or that gpuctl has no rights on. No job of such a kind is
    created: its ledger would name an object that cannot be seen. An existing one is left as it is.
    """
    state = with_idle(caches.state_of(raw, declared.tenancy), idle)
    state = with_problems(state, incidents.of(unexplained_runs(state, now_ms)))
    rejected = still_refused(rejected, declared, state, now_ms)
    state = with_refused_starts(state, rejected)
    stops = mass_stop(declared, state, confirmations, caches.plan)
    blocked = {
        **dict.fromkeys(stops.jobs, Reason(code="GPU5071")),
        **waiting_for(rejected, declared, state),
        **obstacles(declared, state, caches.plan).reasons(declared),
        **(unseen := _of_unread_kinds(declared, unread)),
    }
    declared = replace(declared, pinned=excluded_projects(declared, state), blocked=blocked)
    if engine is None:
        decided = schedule(declared, state, now_ms, caches.engine_cache)
        manifests = render(declared, decided, caches.render)
    else:
        decided, manifests = left_to(engine, declared, state, now_ms), written_for(engine, declared)
    if unseen:
        seen = (item for item in manifests.items if _kind(item.ref) not in unread or item.ref in state.live)
        manifests = replace(manifests, items=tuple(seen))
    plan = make_plan(
        declared, decided, manifests, state, confirmations, stops=stops, cache=caches.plan, admits=engine is None
    )
    return CycleReport(
        at_ms=now_ms,
        declared=replace(declared, pinned=declared.pinned | plan.kept) if plan.kept else declared,
        state=state,
        schedule=decided,
        manifests=manifests,
        plan=plan,
        rejected=rejected,
    )


def _of_unread_kinds(declared: Declared, unread: Collection[Kind]) -> Mapping[JobId, Reason]:
    """The jobs whose object has a kind that can't be read, with the reason. Cost: nothing where all kinds can be
    read."""
    if not unread:
        return {}
    kinds = ((job.id, kind_of(job)) for job in declared.jobs)
    return {
        job: Reason(code="GPU5074", params=(("kind", in_words(kind)),))
        for job, kind in kinds
        if kind in unread and is_of_others(kind)
    }


def _kind(ref: ObjectRef) -> Kind:
    return ref.api_version, ref.kind


def cycle(declared: Declared, context: CycleContext, confirmations: frozenset[str] = frozenset()) -> CycleReport:
    """Read, decide, apply. Raises ClusterUnavailable or Forbidden when the cluster can't be read."""
    rejected = checked_again(context.rejected, context.object_cache, context.clock.now_ms())
    foreseen = foresee(declared, replace(context, rejected=rejected), confirmations)
    context.object_cache.drop_gone(partial(_is_on_record, foreseen.state))
    began_ms = context.clock.now_ms()
    # A write of a kind that can't be read fails as if the server were away, which would end all other writes of the
    # cycle.
    unread = {each.ref for each in foreseen.plan.changes if _kind(each.ref) in context.object_cache.unread}
    result = apply_plan(
        foreseen.plan,
        context.object_cache,
        context.stop,
        unread=unread,
        rests=lambda change: context.rests(change, began_ms),
        late=lambda change: context.clock.now_ms() - began_ms > _longest_ms(change),
        refused=that_are_sure(foreseen.rejected).keys(),
        doubted=that_are_doubted(foreseen.rejected).keys(),
    )
    rejected = with_new(foreseen.rejected, result, declared, foreseen.state, foreseen.at_ms)
    return replace(foreseen, result=result, rejected=rejected)


def _is_on_record(state: ClusterState, ref: ObjectRef) -> bool:
    """Whether an object may be forgotten: the end of its run is in the ledger, or does not belong there."""
    own = state.own.get(ref)
    ledger = None if own is None else state.ledgers.get(own.run[0].project)
    return own is None or ledger is None or own.run in ledger.finished or own.run not in ledger.seen


def _longest_ms(change: Change) -> DurationMs:
    return LONGEST_MAKING_MS if change.action is Action.CREATE else LONGEST_TELLING_MS


def converge(
    declared: Declared,
    context: CycleContext,
    confirmations: frozenset[str] = frozenset(),
    done: Callable[[CycleReport], bool] = at_rest,
) -> tuple[CycleReport, ...]:
    """Run `cycles` and return all their reports. Each report holds the cluster as it was then."""
    return tuple(cycles(declared, context, confirmations, done))


def cycles(
    declared: Declared,
    context: CycleContext,
    confirmations: frozenset[str] = frozenset(),
    done: Callable[[CycleReport], bool] = at_rest,
) -> Iterator[CycleReport]:
    """Run cycles until one is `done`: by default, until one wrote nothing. The cluster settles between two cycles.

    The last report is the fixed point, unless a stop or the bound of cycles came first: then it is not `settled`.
    """
    for _ in range(CYCLES_TO_A_FIXED_POINT):
        report = cycle(declared, context, confirmations)
        news = report.rejected != context.rejected
        yield report
        if (done(report) and not news) or context.stop():
            return
        context.settle()
        context = replace(context, rejected=report.rejected)
