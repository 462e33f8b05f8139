"""The measurements of the loop, as values, and the port that takes them.

Labels are bounded by what is declared (projects, pools) or by gpuctl itself (codes, kinds): never a job's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from gpuctl.app.cycle import CycleReport
from gpuctl.model.change import Action, Change, Outcome, OutcomeStatus
from gpuctl.model.decision import FairShare, Pending
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import ObjectRef, PoolName, ProjectName, Revision
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.plan import Stage
from gpuctl.views.pod_problems import known_reason

WRITTEN = "ok"
"""The code of a write that took effect."""
_CODE_WIDTH = len("GPU7001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """One cycle in numbers.

    `decisions` counts jobs by the decision's kind and reason code, `queued` waiting jobs by project and their first
    pool, `problems` runs whose pods do not run by project and reason. `writes` counts requests by action and WRITTEN or
    the fault's code, without skipped writes. `drift` counts objects that were put back to what had been wanted before.
    """

    duration_ms: DurationMs
    decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    shares: tuple[FairShare, ...] = ()
    queued: Mapping[tuple[ProjectName, PoolName], int] = field(default_factory=dict)
    writes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    problems: Mapping[tuple[ProjectName, str], int] = field(default_factory=dict)
    starts: int = 0
    pauses: int = 0
    drift: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStatus:
    """The status in JSON, and what is measured of it. Instants are None for what has not happened."""

    document: bytes = b""
    ready: bool = False
    fetched_ms: Instant | None = None
    cycled_ms: Instant | None = None
    frozen: tuple[Frozen, ...] = ()


class Meters(Protocol):
    """Takes the measurements. Called from the loop's thread; never raises and never waits."""

    def beat(self) -> None:
        """The loop is alive: call it every turn, also while another replica leads. Without it /healthz fails."""
        ...

    def synced(self) -> None:
        """The cluster was read whole: call it after every refresh that succeeded. Until the first /readyz fails."""
        ...

    def fetched(self, *, well: bool) -> None:
        """Git was fetched: call it after each fetch, failed or not."""
        ...

    def following(self, revision: Revision, at_ms: Instant) -> None:
        """A revision is in force since that time: call it when the revision changes."""
        ...

    def cycle(self, measured: Measurements) -> None:
        """A cycle has ended: call it for each, with `measure` of its report."""
        ...

    def predicted(self, result: str, causes: Mapping[str, int]) -> None:
        """A prediction has ended: call it with its result and how many differences each kind of cause explains."""
        ...

    def standing(self, codes: Mapping[str, int]) -> None:
        """How many problems of each code stand now: call it with `Journal.codes` when they may have changed."""
        ...

    def enforced(self, *, well: bool) -> None:
        """Whether something could be applied, if anything had to be. Where nothing can for long, /readyz fails."""
        ...

    def status(self, told: ToldStatus) -> None:
        """The status: call it whenever it has changed."""
        ...


class Unmeasured:
    """Implements the port Meters where no measurements are wanted."""

    def beat(self) -> None:
        """Nothing."""

    def synced(self) -> None:
        """Nothing."""

    def fetched(self, *, well: bool) -> None:
        """Nothing."""

    def following(self, revision: Revision, at_ms: Instant) -> None:
        """Nothing."""

    def cycle(self, measured: Measurements) -> None:
        """Nothing."""

    def predicted(self, result: str, causes: Mapping[str, int]) -> None:
        """Nothing."""

    def standing(self, codes: Mapping[str, int]) -> None:
        """Nothing."""

    def enforced(self, *, well: bool) -> None:
        """Nothing."""

    def status(self, told: ToldStatus) -> None:
        """Nothing."""


def measure(report: CycleReport, previous: CycleReport | None, duration_ms: DurationMs) -> Measurements:
    """One cycle in numbers. `previous`, the report of the cycle before in this process, tells what drifted.

    Cost: linear in decisions; in objects too when something was written.
    """
    done = [o.change for o in report.result.outcomes if o.status is OutcomeStatus.APPLIED]
    told = map(attrgetter("__class__.__name__", "reason.code"), report.schedule.decisions)
    return Measurements(
        duration_ms=duration_ms,
        decisions={(kind.lower(), code): count for (kind, code), count in Counter(told).items()},
        shares=report.schedule.shares,
        queued=_queued(report),
        writes=Counter(filter(None, map(_request, report.result.outcomes))),
        problems=Counter((run.job.project, known_reason(run.problem)) for run in report.state.runs if run.problem),
        starts=sum(change.stage == Stage.ADMIT for change in done),
        pauses=sum(change.stage == Stage.PAUSE for change in done),
        drift=0 if previous is None else sum(_drifted(done, report, previous)),
    )


def _queued(report: CycleReport) -> Mapping[tuple[ProjectName, PoolName], int]:
    waiting = {decision.job for decision in report.schedule.decisions if type(decision) is Pending}
    jobs = (job for job in report.declared.jobs if job.id in waiting)
    return Counter((job.id.project, next(iter(job.pools), PoolName(""))) for job in jobs)


def _request(outcome: Outcome) -> tuple[str, str] | None:
    """The action of a request and its result; an outcome's error begins with its code."""
    action = outcome.change.action.value
    if outcome.status is OutcomeStatus.SKIPPED:
        return None
    return (action, WRITTEN if outcome.status is OutcomeStatus.APPLIED else outcome.error[:_CODE_WIDTH])


def _drifted(done: Iterable[Change], report: CycleReport, previous: CycleReport) -> Iterable[bool]:
    """For each write, whether the cycle before wanted the object the same and found it so."""
    changed = {change.ref for change in done if change.action is not Action.DELETE}
    settled = changed - {change.ref for change in previous.plan.changes}
    if not settled:
        return
    before, now = _wanted(previous, settled), _wanted(report, settled)
    for ref, body in now.items():
        yield before.get(ref) == body


def _wanted(report: CycleReport, refs: set[ObjectRef]) -> Mapping[ObjectRef, Body]:
    return {item.ref: item.body for item in report.manifests.items if item.ref in refs}
