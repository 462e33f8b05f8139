"""Do what a plan says, wave by wave, and say what became of each change. No choices are made here.

The changes of a wave do not depend on each other: the cluster makes as many of them at once as it likes. A fault of one
change never stops another that does not depend on it: what depends on what is the plan's stages. The API server being
away stops everything that is left; the next cycle looks at what was done.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, groupby

from gpuctl.app.ports import ClusterUnavailable, Conflict, Forbidden, Invalid, NotFound, WorldFault, Writable
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus, Plan
from gpuctl.model.ids import ObjectRef
from gpuctl.plan.order import Stage, wave

_GROUND = Stage.SCOPE
"""Up to here a project's ledger and namespace are written: without them none of its later writes is safe."""
_SOON = 64
"""So many of the changes that can wait are made, however late it is."""


def never() -> bool:
    """The stop that never comes."""
    return False


def in_time(change: Change) -> bool:
    """Late for no change."""
    del change
    return False


def apply_plan(
    plan: Plan,
    cluster: Writable,
    stop: Callable[[], bool] = never,
    spared: frozenset[ObjectRef] = frozenset(),
    late: Callable[[Change], bool] = in_time,
) -> ApplyResult:
    """Apply in order, one outcome a change. `stop` is asked before each write; what is left is skipped, as are `spared`
    objects. New runs, and what runs that wait are told, are left to the next cycle when it is `late` for them, all but
    a few: what is new may start then, and whoever has come meanwhile is answered first."""
    skips = _Skips()
    patient = count()

    def cause_of(change: Change) -> str:
        if stop():
            return "stopped"
        if change.ref in spared:
            return "left unchanged"
        return "left to the next cycle" if _can_wait(change) and next(patient) >= _SOON and late(change) else ""

    def attempt(change: Change) -> Outcome:
        cause = skips.cause(change) or cause_of(change)
        return _attempt(change, cluster, skips) if not cause else _skipped(change, cause)

    outcomes: list[Outcome] = []
    for _, changes in groupby(plan.changes, key=wave):
        made = cluster.each(attempt, tuple(changes))
        for outcome in made:
            if outcome.status in {OutcomeStatus.FAILED, OutcomeStatus.CONFLICT}:
                skips.note(outcome.change)
        outcomes.extend(made)
    return ApplyResult(outcomes=tuple(outcomes))


class _Skips:
    """What may not be done any more after the failures so far.

    A failed ledger or namespace stops its project. Any other failure stops what shares the object's name (a run and its
    claim template) and the project's deletions: one broken job does not keep the others of its project from starting.
    Failures are noted between waves; only that the server is away is seen by the rest of a wave.
    """

    def __init__(self) -> None:
        self.unreachable = ""
        self._last_stages: dict[object, Stage | int] = {}

    def note(self, change: Change) -> None:
        """Remember a failure."""
        self._last_stages.setdefault(_owner(change), change.stage if change.stage <= _GROUND else Stage.QUEUE)
        self._last_stages.setdefault(_place(change), change.stage)

    def cause(self, change: Change) -> str:
        """Why the change is not to be made, or "" when it may be."""
        if self.unreachable:
            return self.unreachable
        last = min(self._last_stages.get(key, Stage.PRUNE) for key in (_owner(change), _place(change)))
        return "an earlier write it depends on failed" if change.stage > last else ""


def _can_wait(change: Change) -> bool:
    return change.stage == Stage.QUEUE or (change.action is Action.CREATE and is_workload(change.ref))


def _owner(change: Change) -> object:
    return change.project


def _place(change: Change) -> object:
    return (change.ref.namespace, change.ref.name)


def _attempt(change: Change, cluster: Writable, skips: _Skips) -> Outcome:
    try:
        if change.action is Action.DELETE:
            cluster.delete(change.ref, change.uid, change.resource_version)
        elif change.body is not None:
            cluster.apply(change.body)
    except ClusterUnavailable as fault:
        skips.unreachable = f"{fault.code}: {fault}"
        return Outcome(change=change, status=OutcomeStatus.FAILED, error=skips.unreachable)
    except NotFound as fault:
        gone = change.action is Action.DELETE
        status = OutcomeStatus.APPLIED if gone else OutcomeStatus.FAILED
        return Outcome(change=change, status=status, error="" if gone else f"{fault.code}: {fault}")
    except Conflict as fault:
        return Outcome(change=change, status=OutcomeStatus.CONFLICT, error=f"{fault.code}: {fault}")
    except WorldFault as fault:
        refused = isinstance(fault, Invalid | Forbidden) and change.body is not None
        return Outcome(change=change, status=OutcomeStatus.FAILED, error=f"{fault.code}: {fault}", refused=refused)
    return Outcome(change=change, status=OutcomeStatus.APPLIED)


def _skipped(change: Change, cause: str) -> Outcome:
    return Outcome(change=change, status=OutcomeStatus.SKIPPED, error=cause)
