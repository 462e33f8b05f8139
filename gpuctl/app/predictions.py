"""Checks the predictions of `plan` after the merge: predicts a commit's effect when it is taken up, before the first
write, and compares once the cluster is at rest.

One prediction is kept, in memory, for a bounded time. A process that takes over does not know the earlier prediction,
and reports that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from gpuctl.app.cycle import CycleReport
from gpuctl.app.notes import note_of
from gpuctl.app.ports import Note
from gpuctl.app.rejections import that_hold
from gpuctl.app.report import Entry, FieldValue, Level
from gpuctl.diag.wording import message
from gpuctl.explain import (
    BUG_TEXT,
    Cause,
    CauseKind,
    Difference,
    Fate,
    Fates,
    Passed,
    Prediction,
    causes_since,
    compare,
    passed,
    predict,
    restless,
    touched,
)
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NodeName, ProjectName, Revision
from gpuctl.model.state import ClusterState, RunPhase
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import OWN

LONGEST_UNREST_MS: DurationMs = 900_000
"""A cluster that is not at rest by then is not compared: pods that pull large images start within it."""
_UNDER_WAY = frozenset({RunPhase.STARTING, RunPhase.STOPPING})
MOST_NAMED = 20
"""The most jobs, and the most differences, that one line names."""
MOST_CAUSES = 200
"""The most causes that are kept for one prediction."""
MOST_PASSED = 8
"""The most intermediate states that are kept for one prediction: the first ones, as differences begin there."""

_Enforced: TypeAlias = tuple[Mapping[ProjectName, str], frozenset[ProjectName], frozenset[str]]
"""The declarations by content digests, the projects that are left alone, and the confirmations."""


class Result(StrEnum):
    """How a prediction ended. EXPLAINED: there were differences, each with an observed cause. BUG: one has no cause."""

    AS_PREDICTED = "as-predicted"
    EXPLAINED = "explained"
    BUG = "bug"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The end of one prediction. `why`: the reason that it was not checked."""

    revision: Revision
    at_ms: Instant
    took_ms: DurationMs
    result: Result
    fates: Fates = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A prediction that waits for the cluster to be at rest, with the causes and intermediate states so far and the
    last cycle."""

    revision: Revision
    began_ms: Instant
    prediction: Prediction
    causes: frozenset[Cause] = frozenset()
    on_the_way: tuple[Passed, ...] = ()
    before: CycleReport | None = None


class Predictions:
    """Keeps the prediction of the newest commit that changes anything, until it is checked."""

    def __init__(self) -> None:
        self._enforced: _Enforced | None = None
        self._open: _Open | None = None

    def knows(self, declared: Declared, confirmed: frozenset[str]) -> bool:
        """Whether these declarations were taken up already, whichever commit they are from."""
        return self._enforced == _enforced(declared, confirmed)

    def take_up(
        self, declared: Declared, confirmed: frozenset[str], revision: Revision, foreseen: CycleReport
    ) -> Iterator[Checked]:
        """Predict the effect of a commit that is about to be enforced. Yields predictions that can't be checked now.

        `foreseen`: the first cycle's decisions. Parts that it refuses stay unchanged in the prediction. A commit
        that changes nothing keeps the earlier prediction.
        """
        if self.knows(declared, confirmed):
            return
        state, now_ms = foreseen.state, foreseen.at_ms
        is_first, self._enforced = self._enforced is None, _enforced(declared, confirmed)
        if self._open is not None:
            yield _unchecked(self._open, now_ms, f"commit {revision[:12]} was taken up before the cluster was at rest")
            self._open = None
        found = predict(foreseen.declared, state, now_ms)
        opened = _Open(revision=revision, began_ms=now_ms, prediction=found)
        if not is_first or not _was_taken_up(declared, revision, state):
            self._open = opened
        elif found.fates or any(run.phase in _UNDER_WAY for run in state.runs):
            yield _unchecked(opened, now_ms, "gpuctl was restarted, or another replica led, while it was taking effect")

    def note(self, report: CycleReport, now_ms: Instant) -> Checked | None:
        """Note a cycle that has ended. Returns the checked prediction, if it ends with this cycle."""
        if self._open is None:
            return None
        was = self._open.before
        seen = {*causes_since(self._open.prediction, report.state, report.schedule), *_refused(report)}
        if was is not None:
            seen |= set(touched((was.schedule, was.state), report.state))
        causes = self._open.causes | frozenset(sorted(seen, key=repr)[: MOST_CAUSES - len(self._open.causes)])
        opened = replace(self._open, causes=causes, before=_light(report))
        if was is not None and len(opened.on_the_way) < MOST_PASSED:
            state = passed(was.state, report.state, report.schedule.at_ms)
            opened = replace(opened, on_the_way=(*opened.on_the_way, *filter(None, [state])))
        self._open = opened
        waits_for = [str(job) for job in restless(report.schedule, report.state)]
        waits_for += [f"{ref.kind} {ref.name}" for ref in report.unwritten]
        if report.settled and not waits_for:
            self._open = None
            found = compare(opened.prediction, report.state, causes, now_ms, opened.on_the_way)
            return _checked(opened, found, now_ms)
        if now_ms - opened.began_ms >= LONGEST_UNREST_MS:
            self._open = None
            what = f": {', '.join(few(waits_for))}" if waits_for else ""
            return _unchecked(opened, now_ms, f"not at rest within {LONGEST_UNREST_MS // 60_000}m{what}")
        return None


def _enforced(declared: Declared, confirmed: frozenset[str]) -> _Enforced:
    return declared.project_contents, declared.pinned, confirmed


def _was_taken_up(declared: Declared, revision: Revision, state: ClusterState) -> bool:
    """Whether ledgers record the commit: an earlier process has begun to enforce it."""
    recorded = {owner: ledger.content for owner, ledger in state.ledgers.items()}
    begun = any(ledger.revision == revision for ledger in state.ledgers.values())
    return begun or recorded == dict(declared.project_contents)


def _light(report: CycleReport) -> CycleReport:
    """The report without the live objects, so that no copy of the cluster is kept."""
    return replace(report, state=ClusterState(runs=report.state.runs))


def _refused(report: CycleReport) -> Iterator[Cause]:
    """The writes that were not made, for good or in this cycle."""
    for refusal in report.plan.refusals:
        yield Cause(kind=CauseKind.REFUSED, text=f"a guard refuses a part of it ({refusal.code})")
    for job, reason in report.declared.blocked.items():
        yield Cause(kind=CauseKind.REFUSED, text=f"{job} is left as it is ({reason.code})", job=job)
    for ref in report.unwritten:  # the objects of other jobs existed before
        yield Cause(kind=CauseKind.REFUSED, text=f"the API server did not take {ref.kind} {ref.name} at once")
    for ref, rejection in that_hold(report.rejected).items():
        text = f"the API server refuses {ref.kind} {ref.name}"
        yield Cause(kind=CauseKind.REFUSED, text=text, job=rejection.run and rejection.run[0])


def _checked(opened: _Open, differences: tuple[Difference, ...], now_ms: Instant) -> Checked:
    kinds = {each.cause.kind for each in differences}
    result = Result.BUG if CauseKind.BUG in kinds else Result.EXPLAINED if kinds else Result.AS_PREDICTED
    return Checked(
        revision=opened.revision,
        at_ms=now_ms,
        took_ms=now_ms - opened.began_ms,
        result=result,
        fates=opened.prediction.fates,
        differences=differences,
    )


def _unchecked(opened: _Open, now_ms: Instant, why: str) -> Checked:
    return Checked(
        revision=opened.revision,
        at_ms=now_ms,
        took_ms=now_ms - opened.began_ms,
        result=Result.UNCHECKED,
        fates=opened.prediction.fates,
        why=why,
    )


def entry_of(checked: Checked) -> Entry:
    """The journal's line. Cost: linear in the predicted fates."""
    facts: dict[str, FieldValue] = {"revision": checked.revision[:12], "result": checked.result.value}
    if checked.result is Result.BUG:
        facts |= {"code": "GPU6012", "message": message("GPU6012", {"revision": checked.revision[:12]})}
    facts |= {"why": checked.why} if checked.why else {}
    for fate, jobs in _by_fate(checked):
        facts[f"predicted_{fate.value}"] = tuple(few(jobs))
    if checked.differences:
        facts["differences"] = tuple(few([told(each) for each in checked.differences]))
    level = Level.ERROR if checked.result is Result.BUG else Level.INFO
    return Entry(event="prediction", level=level, fields={**facts, "took_ms": checked.took_ms})


def predicted(checked: Checked) -> Iterator[str]:
    """What was predicted, a line for each fate."""
    for fate, jobs in _by_fate(checked):
        yield f"{fate.value}: {', '.join(few(jobs))}"


def _by_fate(checked: Checked) -> Iterator[tuple[Fate, list[str]]]:
    for fate in Fate:
        jobs = [str(job) for job, each in sorted(checked.fates) if each is fate]
        if jobs:
            yield fate, jobs


def note_on_ledger(checked: Checked, declared: Declared, state: ClusterState) -> Note:
    """The event of the prediction's end, on the cluster's own ledger."""
    words = {
        Result.AS_PREDICTED: ("AsPredicted", "did what was predicted"),
        Result.EXPLAINED: ("NotAsPredicted", "did something else than was predicted, with known causes"),
        Result.BUG: ("NotAsPredicted", "did something else than was predicted"),
        Result.UNCHECKED: ("NotChecked", "was not checked against its prediction"),
    }
    reason, text = words[checked.result]
    more = checked.why or "; ".join(told(each) for each in checked.differences[:3])
    return note_of(
        ledger_ref(declared.cluster.name, OWN),
        state,
        reason,
        f"commit {checked.revision[:12]} {text}" + (f": {more}" if more else ""),
        checked.at_ms,
        is_warning=checked.result is Result.BUG,
    )


def causes_of(checked: Checked) -> Mapping[str, int]:
    """How many differences each kind of cause explains."""
    found: dict[str, int] = {}
    for each in checked.differences:
        found[each.cause.kind.value] = found.get(each.cause.kind.value, 0) + 1
    return found


def told(difference: Difference) -> str:
    """One difference in words."""
    job, fate, cause = difference.job, difference.fate.value, difference.cause
    why = BUG_TEXT if cause.kind is CauseKind.BUG else cause.text
    if difference.happened is None:
        return f"{job} was not {fate}{_where(difference.predicted)}: {why}"
    if difference.predicted is None:
        return f"{job} was {fate}{_where(difference.happened)}, which was not predicted: {why}"
    return f"{job} was {fate}{_where(difference.happened)}, not{_where(difference.predicted)}: {why}"


def _where(nodes: tuple[NodeName, ...] | None) -> str:
    return f" on {', '.join(sorted(set(nodes)))}" if nodes else ""


def few(words: Iterable[str]) -> list[str]:
    """The first MOST_NAMED words, and how many more there are."""
    listed = list(words)
    more = len(listed) - MOST_NAMED
    return [*listed[:MOST_NAMED], f"and {more} more"] if more > 0 else listed
