"""One reconcile cycle, and cycles until nothing is left to do. All of gpuctl in the order in which data flows.

A cycle reads everything, decides once and applies the plan. What must survive is in the cluster; all that a cycle
hands to the next is what the server refused to take. So it may be killed anywhere, and called as often as one likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpuctl.app.apply import apply_plan, never
from gpuctl.app.caches import CycleCaches
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Clock
from gpuctl.app.rejections import Rejections, still_refused, with_new
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus, Plan
from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState, RawObjects
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import Stage, excluded_projects, make_plan, mass_stop, taken_names, unreadable_jobs
from gpuctl.render import render
from gpuctl.schedule import schedule

CYCLES_TO_A_FIXED_POINT = 64
"""More than any change needs: made suspended, seen, admitted, its place taken and given back are a cycle each."""

LONGEST_MAKING_MS: DurationMs = 1_000
"""New runs that are not made by then are left to the next cycle, which lets go those that are."""

LONGEST_TELLING_MS: DurationMs = 250
"""What runs that wait are not told by then is left to the next cycle: a job that has ended need not wait for it."""

_LEADS_NOWHERE = frozenset({Stage.LEDGER, Stage.ADMIT, Stage.RECORD, Stage.QUEUE})
"""Stages whose updates let no write of a later cycle be made: what follows from them is the cluster's to do first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw, decided and did. `state` is as observed before the writes; no `result`: none were made."""

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
        """Whether it wrote nothing, so that another cycle would see the same."""
        return self.result.writes == 0

    @property
    def calm(self) -> bool:
        """Whether another cycle would write nothing before something happens in the cluster, as far as that is sure."""
        return self.settled or all(map(_leads_nowhere, self.result.outcomes))

    @property
    def faults(self) -> tuple[Outcome, ...]:
        """Writes the cluster refused, or did not answer, or that met a newer object than was read."""
        failed = {OutcomeStatus.FAILED, OutcomeStatus.CONFLICT}
        return tuple(o for o in self.result.outcomes if o.status in failed)


def _leads_nowhere(outcome: Outcome) -> bool:
    change = outcome.change
    updated = outcome.status is OutcomeStatus.APPLIED and change.action is Action.UPDATE
    return updated and change.stage in _LEADS_NOWHERE


def at_rest(report: CycleReport) -> bool:
    """The end of cycles that go on until one has written nothing."""
    return report.settled


def until_calm(report: CycleReport) -> bool:
    """The end of cycles where somebody looks again a moment later."""
    return report.calm


def nothing() -> None:
    """A world that needs no help to settle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleContext:
    """What a cycle works with: the cluster, the clock, and what earlier cycles found.

    `settle` lets what is due happen in the world; `stop` is asked before every write.

    `protected` objects are not written now, nor those that the server has `rejected` and would reject again. `caches`
    are those of the cycles before.
    """

    object_cache: ObjectCache
    clock: Clock
    settle: Callable[[], None] = nothing
    stop: Callable[[], bool] = never
    protected: frozenset[ObjectRef] = frozenset()
    rejected: Rejections = field(default_factory=dict)
    caches: CycleCaches = field(default_factory=CycleCaches)


def foresee(declared: Declared, context: CycleContext, confirmations: frozenset[str] = frozenset()) -> CycleReport:
    """Read and decide: a cycle without its writes. Raises ClusterUnavailable or Forbidden when it can't be read."""
    context.object_cache.refresh()
    return foreseen(
        declared,
        context.object_cache.objects(),
        context.clock.now_ms(),
        context.caches,
        context.rejected,
        confirmations,
    )


def foreseen(  # noqa: PLR0913, PLR0917 - all that a cycle knows, and nothing behind it
    declared: Declared,
    raw: RawObjects,
    now_ms: Instant,
    caches: CycleCaches,
    rejected: Rejections,
    confirmations: frozenset[str] = frozenset(),
) -> CycleReport:
    """What a cycle decides on these objects. Never raises, whatever is in them."""
    state = caches.state_of(raw, declared.tenancy)
    rejected = still_refused(rejected, declared, state, now_ms)
    stops = mass_stop(declared, state, confirmations, caches.plan)
    blocked = {
        **dict.fromkeys(stops.jobs, "GPU5071"),
        **{found.run[0]: "GPU5070" for found in rejected.values()},
        **dict.fromkeys(taken_names(declared, state, caches.plan), "GPU5072"),
        **dict.fromkeys(unreadable_jobs(state), "GPU5073"),
    }
    declared = replace(declared, pinned=excluded_projects(declared, state), blocked=blocked)
    decided = schedule(declared, state, now_ms, caches.outlook)
    manifests = render(declared, decided, caches.render)
    plan = make_plan(declared, decided, manifests, state, confirmations, stops=stops, cache=caches.plan)
    return CycleReport(
        at_ms=now_ms,
        declared=declared,
        state=state,
        schedule=decided,
        manifests=manifests,
        plan=plan,
        rejected=rejected,
    )


def cycle(declared: Declared, context: CycleContext, confirmations: frozenset[str] = frozenset()) -> CycleReport:
    """Read, decide, apply. Raises ClusterUnavailable or Forbidden when the cluster can't be read."""
    foreseen = foresee(declared, context, confirmations)
    began_ms = context.clock.now_ms()
    result = apply_plan(
        foreseen.plan,
        context.object_cache,
        context.stop,
        context.protected | foreseen.rejected.keys(),
        late=lambda change: context.clock.now_ms() - began_ms > _longest_ms(change),
    )
    rejected = with_new(foreseen.rejected, result, declared, foreseen.state, foreseen.at_ms)
    return replace(foreseen, result=result, rejected=rejected)


def _longest_ms(change: Change) -> DurationMs:
    return LONGEST_MAKING_MS if change.action is Action.CREATE else LONGEST_TELLING_MS


def converge(
    declared: Declared,
    context: CycleContext,
    confirmations: frozenset[str] = frozenset(),
    done: Callable[[CycleReport], bool] = at_rest,
) -> tuple[CycleReport, ...]:
    """The reports of `cycles`, all of them at once: each holds the cluster as it was then."""
    return tuple(cycles(declared, context, confirmations, done))


def cycles(
    declared: Declared,
    context: CycleContext,
    confirmations: frozenset[str] = frozenset(),
    done: Callable[[CycleReport], bool] = at_rest,
) -> Iterator[CycleReport]:
    """Cycles until one is `done`: wrote nothing. The world settles after each that wrote something.

    The last report is the fixed point, unless a stop or the bound ended it first: then it is not `settled`.
    """
    for _ in range(CYCLES_TO_A_FIXED_POINT):
        report = cycle(declared, context, confirmations)
        news = report.rejected != context.rejected
        yield report
        if (done(report) and not news) or context.stop():
            return
        context.settle()
        context = replace(context, rejected=report.rejected)
