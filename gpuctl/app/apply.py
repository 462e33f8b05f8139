"""Apply a plan wave by wave, and return the outcome of each change. No decision is made here.

The changes of a wave are independent: the cluster may make any number of them at once. A failed change stops only the
changes that depend on it, according to the plan's stages. If the API server can't be reached, all remaining changes
stop; the next cycle reads which ones were made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count, groupby

from gpuctl.app.ports import (
    ClusterUnavailable,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Taken,
    WebhookAway,
    WorldFault,
    Writable,
)
from gpuctl.k8s.annotations import decode_record
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import annotations_of
from gpuctl.k8s.workloads import is_workload, job_of
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus, Plan
from gpuctl.model.ids import JobId, ObjectRef
from gpuctl.plan.order import Stage, wave

_GROUND = Stage.SCOPE
"""Up to this stage a project's ledger and namespace are written. Its later writes are safe only after them."""
_SOON = 64
"""How many of the changes that can wait are made in a cycle, however late it is."""


def never() -> bool:
    """Never stop: the default `stop`."""
    return False


def in_time(change: Change) -> bool:
    """Never late, and never to rest: the default `late` and `rests`."""
    del change
    return False


def apply_plan(  # noqa: PLR0913 - by name, with defaults
    plan: Plan,
    cluster: Writable,
    stop: Callable[[], bool] = never,
    *,
    unread: Collection[ObjectRef] = (),
    rests: Callable[[Change], bool] = in_time,
    late: Callable[[Change], bool] = in_time,
    refused: Collection[ObjectRef] = (),
    doubted: Collection[ObjectRef] = (),
) -> ApplyResult:
    """Apply the plan in order. Returns one outcome a change.

    `stop` is asked before each write: once it says so, all later changes are skipped. Besides, these are skipped:

    - changes of `unread` objects, and changes that the policy `rests` leaves for later;
    - changes of objects that the server `refused` before. A ledger or a namespace among them stops its project, as when
      it was refused;
    - changes of objects whose refusal is `doubted`. Each stops the changes that depend on it, as when it was refused;
    - changes that can wait (new runs, updates of waiting runs) and are `late`, after the first few: the next cycle,
      which also decides on jobs that came meanwhile, makes them.
    """
    skips = _Skips()
    patient = count()

    def cause_of(change: Change) -> str:
        if stop():
            return "stopped"
        if change.ref in unread:
            return "it can't be read"
        if rests(change):
            return "written too often, and tried again later"
        if change.ref in refused or change.ref in doubted:
            return "refused before, and tried again later"
        return "left to the next cycle" if _can_wait(change) and next(patient) >= _SOON and late(change) else ""

    def attempt(change: Change) -> Outcome:
        cause = skips.cause(change) or cause_of(change)
        return _attempt(change, cluster, skips) if not cause else _skipped(change, cause)

    outcomes: list[Outcome] = []
    for _, changes in groupby(plan.changes, key=wave):
        made = cluster.each(attempt, tuple(changes))
        for outcome in made:
            ref = outcome.change.ref
            is_as_failed = ref in doubted or (ref in refused and outcome.change.stage <= _GROUND)
            if is_as_failed or outcome.status in {OutcomeStatus.FAILED, OutcomeStatus.CONFLICT}:
                skips.note(outcome.change)
            if outcome.status is not OutcomeStatus.APPLIED:
                skips.note_unwritten(outcome.change)
        outcomes.extend(made)
    return ApplyResult(outcomes=tuple(outcomes))


class _Skips:
    """The changes to skip after the failures so far.

    - A failed ledger or namespace stops its project.
    - Any other failure stops only the changes of the same name (a run and its claim template). Security: a tenant can
      have writes fail for as long as it likes, by its own objects in the place of gpuctl's, by using up a quota, or by
      making objects anew again and again.
    - A job whose claim, Service or the like failed is not started, but it is paused where that is planned, and objects
      removed from Git are deleted. Security: so a tenant keeps no GPUs by such a failure.
    - A run is not paused for a job whose objects could not be written: that job could not start, and each retry would
      pause the run again in vain.

    Failures are noted between waves; only an unreachable server also stops the rest of its wave. So does, for the
    objects of one kind in one namespace, an admission webhook that does not answer: each try may take the server many
    seconds. Security: a webhook for one namespace may be a tenant's, and stops no other's writes.
    """

    def __init__(self) -> None:
        self.unreachable = ""
        self.unanswered: dict[tuple[str, Kind], str] = {}
        """The namespaces and kinds for which a webhook does not answer, each with the server's words."""
        self._last_stages: dict[object, Stage | int] = {}
        self._unsupported: set[JobId | None] = set()
        self._unwritten: set[JobId | None] = set()

    def note(self, change: Change) -> None:
        """Remember a failure."""
        if change.stage <= _GROUND:
            self._last_stages.setdefault(_owner(change), change.stage)
        self._last_stages.setdefault(_place(change), change.stage)
        if change.stage == Stage.SUPPORT:
            self._unsupported.add(_job(change))

    def note_unwritten(self, change: Change) -> None:
        """Remember that a run's object is not as it was to be written, for whatever cause."""
        if is_workload(change.ref):
            self._unwritten.add(_job(change))

    def cause(self, change: Change) -> str:
        """Why the change has to be skipped; "" if it may be made."""
        if self.unreachable:
            return self.unreachable
        keys = (_owner(change),) if change.stage == Stage.PAUSE else (_owner(change), _place(change))
        last = min(self._last_stages.get(key, Stage.PRUNE) for key in keys)
        lacks = change.stage == Stage.ADMIT and _job(change) in self._unsupported
        if change.stage == Stage.PAUSE and self._is_in_vain(change):
            return "the run that it is paused for could not be written"
        return "an earlier write it depends on failed" if change.stage > last or lacks else ""

    def _is_in_vain(self, pause: Change) -> bool:
        beneficiary = decode_record(annotations_of(pause.body or {}), 0).paused_for
        if beneficiary is None:
            return False
        if beneficiary in self._unwritten or beneficiary in self._unsupported:
            return True
        return self._last_stages.get(beneficiary.project, Stage.PRUNE) < Stage.PAUSE


def _can_wait(change: Change) -> bool:
    return change.stage == Stage.QUEUE or (change.action is Action.CREATE and is_workload(change.ref))


def _owner(change: Change) -> object:
    return change.project


def _place(change: Change) -> object:
    return (change.ref.namespace, change.ref.name)


def _job(change: Change) -> JobId | None:
    return None if change.body is None else job_of(change.body)


def _attempt(change: Change, cluster: Writable, skips: _Skips) -> Outcome:
    where = (change.ref.namespace, (change.ref.api_version, change.ref.kind))
    if where in skips.unanswered:
        return Outcome(change=change, status=OutcomeStatus.FAILED, error=skips.unanswered[where], refused=True)
    try:
        if change.action is Action.DELETE:
            cluster.delete(change.ref, change.uid, change.resource_version)
        elif change.body is not None:
            cluster.apply(change.body, is_new=change.action is Action.CREATE)
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
        if isinstance(fault, WebhookAway):
            skips.unanswered[where] = f"{fault.code}: {fault}"
        refused = isinstance(fault, Invalid | Forbidden | Taken)
        return Outcome(change=change, status=OutcomeStatus.FAILED, error=f"{fault.code}: {fault}", refused=refused)
    return Outcome(change=change, status=OutcomeStatus.APPLIED)


def _skipped(change: Change, cause: str) -> Outcome:
    return Outcome(change=change, status=OutcomeStatus.SKIPPED, error=cause)
