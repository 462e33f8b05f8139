"""Makes and publishes the leader's overview: beside the loop, seldom, and only when it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from gpuctl.app.cycle import CycleReport
from gpuctl.app.ports import Background, Clock, Underway, WorldFault
from gpuctl.app.status import REPEAT_MS
from gpuctl.explain import start_forecasts
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import uid
from gpuctl.k8s.overview import digest_of, encode_overview, newest_removals
from gpuctl.model.decision import Admit, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ObjectRef, ProjectName
from gpuctl.model.overview import (
    DepartmentOverview,
    NodeOverview,
    Overview,
    ProjectOverview,
    position_ticket,
    removal_ticket,
    start_ticket,
)
from gpuctl.model.state import Body, ClusterState, Removal
from gpuctl.model.turns import in_turns
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant
from gpuctl.views.jobs import HOLDING, held_milli
from gpuctl.views.nodes import NodeView, node_views

SOONEST_MS: DurationMs = 5_000
"""The shortest time between two overviews."""
SHARE = 20
"""At most 1/SHARE of the time is spent on making overviews: forecasting a large queue takes seconds."""
MOST_REMOVED = 1_000
"""The most removed jobs, of all projects, that are published: of each project in turn, the newest."""
_MINUTE_MS = 60_000


class OverviewBoard:
    """Publishes overviews as they change. `offer` it every cycle's report; the work is done in the background.

    Call `take_over` after a cycle before its `errors`. `publish` writes the object, and may raise WorldFault; None:
    nothing is published.
    """

    def __init__(self, publish: Callable[[Body], object] | None, background: Background, clock: Clock) -> None:
        self._publish = publish
        self._background = background
        self._clock = clock
        self._underway: Underway[_Made] | None = None
        self.begin()

    def begin(self) -> None:
        """Forget what was published: another replica may have led."""
        self._published = ""
        self._forecast: dict[JobId, Instant] = {}
        """The first forecast of each waiting job's start."""
        self._started: dict[JobId, Instant] = {}
        """Starts that are not yet compared with a forecast: the overview that is being made may forecast them."""
        self._basis: tuple[object, ...] = ()
        self._repeat_ms = self._clock.now_ms() + REPEAT_MS
        self._due_ms = self._began_ms = self._clock.now_ms()

    def offer(self, report: CycleReport) -> None:
        """Begin to make and publish an overview if one is due and something has changed since the last.

        It is repeated every REPEAT_MS: the leader does not watch the object, so a deleted one comes back.
        """
        if self._publish is None:
            return
        self.take_over()
        if self._underway is not None:
            return
        now_ms, basis = self._clock.now_ms(), _basis(report)
        if now_ms >= self._repeat_ms:
            self._published, self._basis, self._repeat_ms = "", (), now_ms + REPEAT_MS
        if now_ms >= self._due_ms and basis != self._basis:
            self._basis, self._began_ms = basis, now_ms
            work = partial(_published, report, self._publish, self._published)
            self._underway = self._background.start(work)
            self.take_over()

    def take_over(self) -> None:
        """Take over the overview that was being made, if it is ready. If it could not be written, it is made again when
        the next one is due."""
        if self._underway is None or not self._underway.done():
            return
        ended, self._underway = self._underway, None
        now_ms = self._clock.now_ms()
        self._due_ms = now_ms + max(SOONEST_MS, SHARE * (now_ms - self._began_ms))
        try:
            made = ended.result()
        except WorldFault:
            self._basis = ()
        else:
            self._published = made.mark
            waiting = {job: at_ms for job, at_ms in self._forecast.items() if job in made.jobs}
            self._forecast = {**made.starts, **waiting}

    def errors(self, report: CycleReport) -> tuple[DurationMs, ...]:
        """How much later each run was released than the first forecast of its start said, once for each start. A start
        that comes while an overview is being made is reported after it.

        Cost: linear in the decisions.
        """
        self._started.update({each.job: report.at_ms for each in report.schedule.decisions if isinstance(each, Admit)})
        if self._underway is not None:
            return ()
        started, self._started = self._started, {}
        return tuple(at_ms - self._forecast.pop(job) for job, at_ms in started.items() if job in self._forecast)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """An overview's digest, the starts that it forecasts, and all declared jobs."""

    mark: str
    jobs: frozenset[JobId]
    starts: Mapping[JobId, Instant]


def _published(report: CycleReport, publish: Callable[[Body], object], before: str) -> _Made:
    """Make the overview, and write it if it differs from the last one."""
    decided = report.schedule
    starts = start_forecasts(report.declared, report.state, decided.at_ms, frozenset(decided.queue))
    overview = overview_of(report.declared, report.state, decided, starts)
    mark = digest_of(overview)
    if mark != before:
        publish(encode_overview(overview))
    return _Made(mark=mark, starts=starts, jobs=frozenset(job.id for job in report.declared.jobs))


def _basis(report: CycleReport) -> tuple[object, ...]:
    """The inputs of an overview. Cost: cheap to compare, as unchanged parts are the same objects."""
    state, schedule = report.state, report.schedule
    return (
        report.declared.projects,
        report.declared.departments,
        report.declared.cluster.workload_kinds,
        state.nodes,
        state.runs,
        schedule.queue,
        schedule.shares,
        tuple(ledger.removed for ledger in state.ledgers.values()),
    )


def overview_of(
    declared: Declared, state: ClusterState, schedule: Schedule, starts: Mapping[JobId, Instant]
) -> Overview:
    """The overview after a cycle. `starts`: the forecast starts of the queue. Cost: linear."""
    queue = schedule.queue
    uids = {own.run[0]: uid(state.live.get(ref, {})) for ref, own in state.own.items()}
    return Overview(
        at_ms=schedule.at_ms,
        projects=tuple(_projects(declared, state, schedule)),
        departments=tuple(
            DepartmentOverview(name=each.name, parent=each.parent or "", allowances=each.allowances)
            for each in declared.departments
        ),
        nodes=tuple(map(_node, node_views(state))),
        positions={
            position_ticket(uids[job]): position for position, job in enumerate(queue, start=1) if uids.get(job)
        },
        starts=dict(_starts(starts, uids)),
        removed=dict(in_turns(_removed(declared, state), 1)[:MOST_REMOVED]),
        workload_kinds=declared.cluster.workload_kinds,
    )


def _removed(declared: Declared, state: ClusterState) -> Iterator[tuple[ProjectName, tuple[str, Removal]]]:
    """The removed jobs on record by project, with their tickets, the newest of each project first. A ticket is made
    from values that only readers of the project's objects can see."""
    for project in declared.projects:
        ledger = state.ledgers.get(project.name)
        quota = uid(state.live.get(ObjectRef(*kinds.RESOURCE_QUOTA, project.namespace, names.QUOTA_NAME), {}))
        for job, removal in newest_removals(ledger.removed) if ledger is not None and quota else ():
            yield project.name, (removal_ticket(JobId(project.name, job), quota), removal)


def _starts(starts: Mapping[JobId, Instant], uids: Mapping[JobId, str]) -> Iterator[tuple[str, Instant]]:
    for job, start_ms in starts.items():
        if uids.get(job):
            yield start_ticket(uids[job]), -(-start_ms // _MINUTE_MS) * _MINUTE_MS


def _projects(declared: Declared, state: ClusterState, schedule: Schedule) -> Iterator[ProjectOverview]:
    jobs = {job.id: job for job in declared.jobs}
    held: Counter[ProjectName] = Counter()
    running: Counter[ProjectName] = Counter()
    for run in state.runs:
        held[run.job.project] += held_milli(run)
        running[run.job.project] += run.phase in HOLDING
    waiting = Counter(job.project for job in schedule.queue)
    asked: dict[ProjectName, GpuMilli] = {}
    for job in schedule.queue:
        asked[job.project] = asked.get(job.project, 0) + jobs[job].total_gpu_milli
    shares = {(row.project, row.domain): row.share_milli for row in schedule.shares}
    for project in declared.projects:
        name = project.name
        yield ProjectOverview(
            name=name,
            namespace=project.namespace,
            department=project.department or "",
            allowances=project.allowances,
            share_milli={domain: shares[name, domain] for domain in project.allowances if (name, domain) in shares},
            allocated_milli=held[name],
            running=running[name],
            waiting=waiting[name],
            waiting_milli=asked.get(name, 0),
        )


def _node(view: NodeView) -> NodeOverview:
    """The node's overview, without its address and roles, and without the jobs that share its GPUs."""
    return NodeOverview(
        name=view.name,
        status=view.status,
        job_milli=tuple(min(WHOLE_GPU, device.allocated_milli - device.foreign_milli) for device in view.devices),
        foreign_milli=tuple(device.foreign_milli for device in view.devices),
        lost=frozenset(device.index for device in view.devices if device.lost),
        cpu_milli=view.cpu_milli,
        cpu_requested_milli=view.cpu_requested_milli,
        mem_bytes=view.mem_bytes,
        mem_requested_bytes=view.mem_requested_bytes,
    )
