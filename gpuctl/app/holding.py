"""Holds the newest commit back: while an open freeze window of the declarations in force forbids its effect, or while
objects exist of a workload kind that it no longer declares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from gpuctl.app.caches import CycleCaches
from gpuctl.app.cycle import CycleReport, foreseen
from gpuctl.app.revisions import Desired
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.wording import all_of, message
from gpuctl.explain import Fate, predict
from gpuctl.k8s.kinds import Kind, in_words, is_declared
from gpuctl.k8s.names import names_a_run
from gpuctl.k8s.workload_table import rows_of
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.declared import Declared
from gpuctl.model.freeze import Forbidden, open_until
from gpuctl.model.ids import JobId
from gpuctl.model.state import Ledger, RawObjects
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import Doing, frozen, is_confirmed, removed, says_otherwise

LOOK_AGAIN_MS: DurationMs = 60_000
"""How long the computed effect of a commit is used: jobs end meanwhile, so that the commit may come to pause none."""
_MOST_NAMED = 3
_INTERRUPTED = frozenset({Fate.PAUSED, Fate.MOVED, Fate.STOPPED})


class Held:
    """Remembers for a minute what the newest commit would do, so that most cycles only read the clock."""

    def __init__(self) -> None:
        self._of: tuple[Desired, Desired] | None = None
        self._due_ms: Instant = 0
        self._doing = Doing()

    def refusal(self, in_force: Desired, newest: Desired, objects: RawObjects, now_ms: Instant) -> Diagnostic | None:
        """Why the newest commit may not be enforced while a window is open; None if it may.

        Cost: two cycles without their writes and two predictions a minute; four where jobs are left as they are; one
        cycle more where the commit confirms something.
        """
        before, after = in_force.declared, newest.declared
        if before is None or after is None:
            return None
        is_known = self._of is not None and self._of[0] is in_force and self._of[1] is newest
        if not is_known or now_ms >= self._due_ms:
            self._of, self._due_ms = (in_force, newest), now_ms + LOOK_AGAIN_MS
            said = in_force.confirmations, newest.confirmations
            self._doing = _doing(before, after, said, objects, now_ms)
        refusal = frozen(before, after, self._doing, now_ms)
        return None if refusal is None or is_confirmed(refusal, newest.confirmations) else refusal


def lost_kinds(newest: Declared, ledgers: Iterable[Ledger]) -> Diagnostic | None:
    """Why the newest commit may not be enforced: it no longer declares a kind that still has runs.

    An object whose name is neither that of a run nor beside one is not a run: a newer version of gpuctl made it.
    """
    rows = rows_of(newest.cluster.workload_kinds)
    kept: dict[Kind, list[str]] = defaultdict(list)
    for ledger in ledgers:
        unknown = [ref for ref in ledger.inventory if is_declared((ref.api_version, ref.kind))]
        others = {ref.name for ref in ledger.inventory.difference(unknown) if is_workload(ref)} if unknown else set()
        for ref in unknown:
            if names_a_run(ref.name) and ref.name not in others:
                kept[ref.api_version, ref.kind].append(f"{ref.namespace}/{ref.name}")
    for kind in sorted(kept.keys() - rows.keys()):
        params = {"kind": in_words(kind), "jobs": all_of(sorted(kept[kind])[:_MOST_NAMED])}
        return Diagnostic(
            code="GPU3133", message=message("GPU3133", params), span=newest.cluster.span, severity=Severity.ERROR,
            help=CODES["GPU3133"].fix,
        )  # fmt: skip
    return None


def is_frozen(declared: Declared, now_ms: Instant) -> bool:
    """Whether a freeze window is open."""
    return any(open_until(declared.cluster.freeze, each, now_ms) for each in Forbidden)


def _doing(
    before: Declared, after: Declared, said: tuple[frozenset[str], frozenset[str]], objects: RawObjects, now_ms: Instant
) -> Doing:
    """What a commit does, beyond what happens without it. `said`: the confirmations in force, and those with it."""
    old, new = (
        foreseen(declared, objects, now_ms, CycleCaches(), {}, confirmed)
        for declared, confirmed in zip((before, after), said, strict=True)
    )
    lifted = [refusal for refusal in old.plan.refusals if is_confirmed(refusal, said[1])]
    if lifted:
        without = foreseen(after, objects, now_ms, CycleCaches(), {}, said[0]).plan.refusals
        lifted = [refusal for refusal in without if refusal.help in {each.help for each in lifted}]
    pauses = _interrupted(new, now_ms) & {job.id for job in after.jobs}
    if pauses:
        pauses -= _interrupted(old, now_ms)
    return Doing(
        pauses=tuple(sorted(pauses)),
        deletes=removed(before, after),
        changes=says_otherwise(before, after),
        lifts=tuple(refusal.code for refusal in lifted),
    )


def _interrupted(cycle: CycleReport, now_ms: Instant) -> set[JobId]:
    """The jobs that this cycle interrupts. A refused change stays undone, and its GPUs spare no other job a pause. Jobs
    whose restart is refused count too: the commit would be in force when the refusal ends."""
    looks = [cycle.declared, replace(cycle.declared, blocked={})] if cycle.declared.blocked else [cycle.declared]
    found = (predict(each, cycle.state, now_ms) for each in looks)
    return {job for each in found for job, fate in each.fates if fate in _INTERRUPTED}
