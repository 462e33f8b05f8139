"""The measurements of the loop, as values, and the port that takes them.

Labels are bounded by what is declared (projects, pools) or by gpuctl itself (codes, kinds, types). A job's name is
never a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Protocol

from gpuctl.app.cycle import CycleReport
from gpuctl.app.guarantees import unmet_guarantees
from gpuctl.compile import DeclaredSize
from gpuctl.diag.codes.pending import PAUSED
from gpuctl.engine.reasons import DEPENDENT
from gpuctl.k8s.workloads import job_of
from gpuctl.model.change import Action, Change, Outcome, OutcomeStatus
from gpuctl.model.decision import Admit, Decision, FairShare, Pending, Resize
from gpuctl.model.freeze import Frozen
from gpuctl.model.ids import DomainName, ObjectRef, PoolName, ProjectName, Revision
from gpuctl.model.pod_problem import OWN_EXIT
from gpuctl.model.state import Body, RunPhase
from gpuctl.model.units import DurationMs, GpuMilli, Instant
from gpuctl.model.utilisation import ProjectUse
from gpuctl.plan import Stage
from gpuctl.views.jobs import HOLDING, held_milli
from gpuctl.views.pod_problems import known_reason

WRITTEN = "ok"
"""The code of a write that took effect."""
_CODE_WIDTH = len("GPU7001")
PAUSES = tuple(entry.code for entry in PAUSED)
"""The reason codes with which a run is paused for other jobs, or because of a node."""


class Sort(NamedTuple):
    """The labels by which jobs are counted. The type is empty for a job that is no longer declared, the pool for a node
    in no pool."""

    project: ProjectName
    type: str
    pool: PoolName


class Amount(NamedTuple):
    """A number of jobs, and the GPUs that they hold or ask for."""

    jobs: int
    gpu_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """One cycle in numbers.

    - `decisions`: jobs by the decision's kind and reason code.
    - `queued`: waiting jobs by their first pool, without those that come after other jobs.
    - `running`: runs that hold GPUs, by the pool of their first node.
    - `problems`: runs whose pods do not run, by project and reason. `failures`: runs seen to fail, likewise.
    - `pauses`: pauses written, by project and reason code. `waits`: the waiting time of each run that was released.
    - `writes`: requests by action and by WRITTEN or the fault's code, without skipped writes.
    - `drift`: objects that were restored to what an earlier cycle had already written.
    - `forecast_errors`: for each released run with a forecast, how much later it started than its first forecast said;
      negative: earlier.
    - `unmet`: GPUs that waiting jobs could have within their project's quota.
    - `uses`: how each project's GPUs are used, as last measured at `used_at_ms`.
    - `size`: how much is declared, against what there is memory for.
    """

    duration_ms: DurationMs
    decisions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    shares: tuple[FairShare, ...] = ()
    unmet: Mapping[tuple[ProjectName, DomainName], GpuMilli] = field(default_factory=dict)
    queued: Mapping[Sort, Amount] = field(default_factory=dict)
    running: Mapping[Sort, Amount] = field(default_factory=dict)
    writes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    problems: Mapping[tuple[ProjectName, str], int] = field(default_factory=dict)
    failures: Mapping[tuple[ProjectName, str], int] = field(default_factory=dict)
    starts: int = 0
    waits: tuple[tuple[ProjectName, str, DurationMs], ...] = ()
    pauses: Mapping[tuple[ProjectName, str], int] = field(default_factory=dict)
    drift: int = 0
    forecast_errors: tuple[DurationMs, ...] = ()
    uses: Mapping[ProjectName, ProjectUse] = field(default_factory=dict)
    used_at_ms: Instant | None = None
    size: DeclaredSize = field(default_factory=DeclaredSize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStatus:
    """The status in JSON, and what is measured of it. An instant is None for what has not happened."""

    document: bytes = b""
    ready: bool = False
    fetched_ms: Instant | None = None
    cycled_ms: Instant | None = None
    frozen: tuple[Frozen, ...] = ()


class Meters(Protocol):
    """Takes the measurements. Called from the loop's thread; never raises and never waits."""

    def beat(self) -> None:
        """The loop is alive. Call it every turn, also while another replica leads. Without it /healthz fails."""
        ...

    def synced(self) -> None:
        """The cluster was read whole. Call it after every refresh that succeeded. Until the first call /readyz
        fails."""
        ...

    def fetched(self, *, well: bool) -> None:
        """Git was fetched. Call it after each fetch, failed or not."""
        ...

    def following(self, revision: Revision, at_ms: Instant) -> None:
        """A revision is in force since that time. Call it when the revision changes."""
        ...

    def cycle(self, measured: Measurements) -> None:
        """A cycle has ended. Call it for each cycle, with `measure` of its report."""
        ...

    def predicted(self, result: str, causes: Mapping[str, int]) -> None:
        """A prediction has ended. Call it with its result and how many differences each kind of cause explains."""
        ...

    def standing(self, codes: Mapping[str, int]) -> None:
        """How many problems of each code stand now. Call it with `Journal.codes` when they may have changed."""
        ...

    def enforced(self, *, well: bool) -> None:
        """Whether anything could be applied, if anything had to be. Where nothing can be applied for long, /readyz
        fails."""
        ...

    def status(self, told: ToldStatus) -> None:
        """The status. Call it whenever it has changed."""
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


_NONE = Amount(0, 0)
_GOES_ON = Admit | Resize


def measure(report: CycleReport, previous: CycleReport | None, duration_ms: DurationMs) -> Measurements:
    """One cycle in numbers. `previous`: the report of this process's cycle before; it shows what drifted.

    Cost: linear in decisions; in objects too when something was written.
    """
    done = [o.change for o in report.result.outcomes if o.status is OutcomeStatus.APPLIED]
    decided = _decided(report, done)
    told = map(attrgetter("__class__.__name__", "reason.code"), report.schedule.decisions)
    return Measurements(
        duration_ms=duration_ms,
        decisions={(kind.lower(), code): count for (kind, code), count in Counter(told).items()},
        shares=report.schedule.shares,
        unmet=unmet_guarantees(report.declared, report.schedule),
        queued=_queued(report),
        writes=Counter(filter(None, map(_request, report.result.outcomes))),
        problems=Counter(
            (run.job.project, known_reason(run.problem))
            for run in report.state.runs
            if run.problem and not run.phase.final
        ),
        failures=Counter(_failures(report, previous)),
        running=_running(report),
        starts=sum(change.stage == Stage.ADMIT for change in done),
        waits=tuple(_waits(report, decided)),
        pauses=Counter((each.job.project, each.reason.code) for each in decided if not isinstance(each, _GOES_ON)),
        drift=0 if previous is None else sum(_drifted(done, report, previous)),
    )


def _failures(report: CycleReport, previous: CycleReport | None) -> Iterator[tuple[ProjectName, str]]:
    """Runs that have failed since the last cycle. A run that had failed before this process began is not among them."""
    failed = [run for run in report.state.runs if run.phase is RunPhase.FAILED]
    if not failed or previous is None:
        return
    went_on = {(run.job, run.digest) for run in previous.state.runs if not run.phase.final}
    for run in failed:
        if (run.job, run.digest) in went_on:
            yield run.job.project, OWN_EXIT if run.problem is None else known_reason(run.problem)


def _queued(report: CycleReport) -> Mapping[Sort, Amount]:
    waiting = {
        decision.job
        for decision in report.schedule.decisions
        if type(decision) is Pending and decision.reason.code not in DEPENDENT
    }
    jobs = (job for job in report.declared.jobs if job.id in waiting)
    return _summed(
        (Sort(job.id.project, job.type.value, next(iter(job.pools), PoolName(""))), job.total_gpu_milli) for job in jobs
    )


def _running(report: CycleReport) -> Mapping[Sort, Amount]:
    types = {job.id: job.type.value for job in report.declared.jobs}
    pools = {node.name: pool.name for pool in report.declared.cluster.pools for node in pool.nodes}
    return _summed(
        (
            Sort(run.job.project, types.get(run.job, ""), pools.get(run.placement.workers[0].node, PoolName(""))),
            held_milli(run),
        )
        for run in report.state.runs
        if run.phase in HOLDING and run.placement is not None and run.placement.workers
    )


def _summed(found: Iterable[tuple[Sort, GpuMilli]]) -> Mapping[Sort, Amount]:
    sums: dict[Sort, Amount] = {}
    for sort, gpu_milli in found:
        before = sums.get(sort, _NONE)
        sums[sort] = Amount(before.jobs + 1, before.gpu_milli + gpu_milli)
    return sums


def _decided(report: CycleReport, done: Iterable[Change]) -> Sequence[Decision]:
    """The decisions whose start or pause was written."""
    jobs = {job_of(each.body) for each in done if each.stage in {Stage.ADMIT, Stage.PAUSE} and each.body is not None}
    return [each for each in report.schedule.decisions if each.job in jobs] if jobs else []


def _waits(report: CycleReport, decided: Iterable[Decision]) -> Iterator[tuple[ProjectName, str, DurationMs]]:
    """How long each released run had waited."""
    admitted = {each.job: each.record.queued_at_ms for each in decided if isinstance(each, Admit)}
    for job in report.declared.jobs if admitted else ():
        if job.id in admitted:
            yield job.id.project, job.type.value, max(0, report.at_ms - admitted[job.id])


def _request(outcome: Outcome) -> tuple[str, str] | None:
    """The action of a request and its result; an outcome's error begins with its code."""
    action = outcome.change.action.value
    if outcome.status is OutcomeStatus.SKIPPED:
        return None
    return (action, WRITTEN if outcome.status is OutcomeStatus.APPLIED else outcome.error[:_CODE_WIDTH])


def _drifted(done: Iterable[Change], report: CycleReport, previous: CycleReport) -> Iterable[bool]:
    """For each write of an unplanned difference, whether the cycle before wanted the object exactly so."""
    changed = {change.ref for change in done if change.action is not Action.DELETE}
    settled = changed - {change.ref for change in previous.plan.changes}
    if not settled:
        return
    before, now = _wanted(previous, settled), _wanted(report, settled)
    for ref, body in now.items():
        yield before.get(ref) == body


def _wanted(report: CycleReport, refs: set[ObjectRef]) -> Mapping[ObjectRef, Body]:
    return {item.ref: item.body for item in report.manifests.items if item.ref in refs}
