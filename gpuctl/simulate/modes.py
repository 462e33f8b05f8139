"""Modes of a replay: the engine, and simple policies to compare it with.

The simple policies never pause a job. They place jobs with the engine's placement and skip a job that fits nowhere.
`floor` only counts GPUs and ignores nodes: no policy without pauses can place jobs better.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from heapq import heappop, heappush
from operator import attrgetter
from typing import TypeAlias, TypeGuard

from gpuctl.engine import reasons, schedule
from gpuctl.engine.cache.differences import differences
from gpuctl.engine.cache.engine_cache import EngineCache
from gpuctl.engine.capacity.fit import Request, request_on
from gpuctl.engine.capacity.free import FreeCapacity
from gpuctl.engine.capacity.gang import Assignment, PoolOption, place_in
from gpuctl.engine.capacity.nodes import survey
from gpuctl.engine.jobs.timing import min_runtime_ends
from gpuctl.engine.reasons import GUARDED
from gpuctl.model.decision import Admit, Decision, Keep, Move, Pending, Placement, Preempt, Reclaim, RunRecord, Schedule
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.simulate.replay import Mode, RunTransition
from gpuctl.simulate.workload import Workload

NOWHERE = Placement(workers=())


class ModeName(StrEnum):
    """The names of the modes.

    - FAIR: the engine.
    - FIFO: first come, first served, over all projects.
    - STATIC: the same within each project's quota; no GPU is lent.
    - DRF: the project that holds the fewest GPUs is next; quotas are ignored.
    - FLOOR: the project that holds the smallest part of its quota is next, and GPUs are only counted.
    """

    FAIR = "fair"
    FIFO = "fifo"
    STATIC = "static"
    DRF = "drf"
    FLOOR = "floor"


def mode_of(name: ModeName, workload: Workload) -> Mode:
    """Make the mode for a workload."""
    match name:
        case ModeName.FAIR:
            return Engine(workload)
        case ModeName.FIFO:
            return Simple(workload, _fifo)
        case ModeName.STATIC:
            return Simple(workload, _static)
        case ModeName.DRF:
            return Simple(workload, _drf)
        case ModeName.FLOOR:
            return Simple(workload, _weighted, count_only=True)


class Engine:
    """The engine: `schedule` over declarations and runs that the replay's events change.

    A cycle runs only while a job is queued or stopping: jobs of a trace have no limits and one size, so all others keep
    running. If only the starvation guard has become due for a job, no cycle runs while the pool's one reservation is
    taken. Only decisions that differ from the last cycle's are returned; `last` is the whole schedule.
    """

    last: Schedule | None = None

    def __init__(self, workload: Workload) -> None:
        self._declared = workload.declared
        self._state = ClusterState(nodes=workload.nodes)
        self._outlook = EngineCache()
        self._ids: list[JobId] = []
        self._jobs: list[Job] = []
        self._runs: list[Run] = []
        self._restless: set[JobId] = set()
        self._reserved: set[JobId] = set()
        self._ripe: list[Instant] = []
        self._declared_anew = self._changed = True

    def put(self, job: Job, run: Run) -> None:
        """Take over the job's present run."""
        self._changed = True
        if run.phase is RunPhase.RUNNING:
            self._restless.discard(job.id)
        else:
            self._restless.add(job.id)
        index = bisect_left(self._ids, job.id)
        if index < len(self._ids) and self._ids[index] == job.id:
            self._runs[index] = run
        else:
            self._ids.insert(index, job.id)
            self._jobs.insert(index, job)
            self._runs.insert(index, run)
            self._declared_anew = True

    def drop(self, job: JobId) -> None:
        """Remove a job that has ended from the declarations."""
        index = bisect_left(self._ids, job)
        del self._ids[index], self._jobs[index], self._runs[index]
        self._reserved.discard(job)
        self._declared_anew = self._changed = True

    def decide(self, now_ms: Instant) -> Sequence[RunTransition]:
        """Run one cycle, unless its outcome is known to equal the last one's."""
        while self._ripe and self._ripe[0] <= now_ms:
            heappop(self._ripe)
            self._changed = True
        if not self._restless or not (self._changed or self._has_no_guarded()):
            return ()
        self._changed = False
        if self._declared_anew:
            self._declared = replace(self._declared, jobs=tuple(self._jobs))
            self._declared_anew = False
        state = replace(self._state, runs=tuple(self._runs))
        before, self.last = self.last, schedule(self._declared, state, now_ms, self._outlook)
        known = () if before is None else before.decisions
        _, changed = differences(known, self.last.decisions, attrgetter("job"))
        return [decision for decision in changed if self._is_transition(decision)]

    def _has_no_guarded(self) -> bool:
        """Whether the last cycle made no reservation by the starvation guard."""
        return self.last is None or all(decision.reason.code != GUARDED for decision in self.last.decisions)

    def _is_transition(self, decision: Decision) -> TypeGuard[RunTransition]:
        """Whether the decision changes a run; keeps track of the jobs with a reservation."""
        match decision:
            case Keep():
                return False
            case Pending(job=job, reserved=None):
                reserved = job in self._reserved
                self._reserved.discard(job)
                return reserved
            case Admit(job=job) | Reclaim(job=job, reserved=None) | Preempt(job=job, reserved=None):
                self._reserved.discard(job)
            case Pending(job=job) | Move(job=job) | Reclaim(job=job) | Preempt(job=job):
                self._reserved.add(job)
            case _:
                raise AssertionError(f"a replay has no such decision: {decision}")
        return True

    def look_again_ms(self, run: Run) -> tuple[Instant, ...]:
        """When the starvation guard applies to a queued run, or a running run reaches a minRuntime."""
        policy = self._declared.cluster.scheduling
        if run.phase is RunPhase.QUEUED:
            return (run.queued_at_ms + policy.starvation_guard_ms,)
        ends = min_runtime_ends(run, policy.min_runtime) if run.phase is RunPhase.RUNNING else ()
        for end_ms in ends:
            heappush(self._ripe, end_ms)
        return ends


Level: TypeAlias = Callable[[GpuMilli, GpuMilli, GpuMilli], int | None]
"""A project's level, by what it holds, what it would hold with the job, and its quota: the lowest level is next. None:
the job may not start."""

_PARTS = 1_000_000


def _fifo(_held: GpuMilli, _after: GpuMilli, _quota: GpuMilli) -> int | None:
    return 0


def _static(_held: GpuMilli, after: GpuMilli, quota: GpuMilli) -> int | None:
    return 0 if after <= quota else None


def _drf(held: GpuMilli, _after: GpuMilli, _quota: GpuMilli) -> int | None:
    return held


def _weighted(held: GpuMilli, _after: GpuMilli, quota: GpuMilli) -> int | None:
    return held * _PARTS // max(1, quota)


class Simple:
    """First come, first served among the projects at the lowest level. Jobs with equal requests share one queue."""

    def __init__(self, workload: Workload, level: Level, *, count_only: bool = False) -> None:
        capacity = survey(workload.declared, workload.nodes)
        self._pool = workload.declared.cluster.pools[0]
        self._ledger = None if count_only else FreeCapacity.of(capacity)
        self._free_milli = workload.capacity_milli
        self._level = level
        self._quotas = workload.quotas
        self._held = dict.fromkeys(self._quotas, 0)
        self._lines: dict[tuple[ProjectName, Request], OrderedDict[JobId, Run]] = {}
        self._placed: dict[JobId, tuple[Request, Placement]] = {}

    def put(self, job: Job, run: Run) -> None:
        """Queue the job's run if it waits."""
        request = request_on(job, self._pool)
        if run.phase is RunPhase.QUEUED and request is not None:
            self._lines.setdefault((job.id.project, request), OrderedDict())[job.id] = run

    def drop(self, job: JobId) -> None:
        """Release the GPUs of a job that has ended."""
        request, placement = self._placed.pop(job)
        self._hold(job.project, request, placement, -1)

    def look_again_ms(self, run: Run) -> tuple[Instant, ...]:  # noqa: ARG002 - the mode's shape
        """None: these policies decide differently only after an event."""
        return ()

    def decide(self, now_ms: Instant) -> Sequence[RunTransition]:  # noqa: ARG002 - the mode's shape
        """Start the next job that has a place, until no queued job has one."""
        starts: list[RunTransition] = []
        refused: set[Request] = set()
        while (following := self._following(refused)) is not None:
            project, request = following
            placement = self._place(request)
            if placement is None:
                refused.add(request)
                continue
            job, run = self._lines[following].popitem(last=False)
            self._placed[job] = request, placement
            self._hold(project, request, placement, 1)
            record = RunRecord(queued_at_ms=run.queued_at_ms, starts=run.starts + 1, ran_ms=run.ran_ms)
            starts.append(Admit(job=job, reason=reasons.runs_on_idle(project), record=record, placement=placement))
        return starts

    def _following(self, refused: set[Request]) -> tuple[ProjectName, Request] | None:
        """The queue whose first job is next."""
        best: tuple[int, Instant, JobId] | None = None
        chosen = None
        for key, line in self._lines.items():
            project, request = key
            if not line or request in refused:
                continue
            held = self._held[project]
            level = self._level(held, held + request.total_milli, self._quotas[project])
            job, run = next(iter(line.items()))
            if level is not None and (best is None or (level, run.queued_at_ms, job) < best):
                best, chosen = (level, run.queued_at_ms, job), key
        return chosen

    def _place(self, request: Request) -> Placement | None:
        if self._ledger is None:
            return NOWHERE if request.total_milli <= self._free_milli else None
        return place_in(self._ledger, PoolOption(self._pool, request))

    def _hold(self, project: ProjectName, request: Request, placement: Placement, sign: int) -> None:
        self._held[project] += sign * request.total_milli
        self._free_milli -= sign * request.total_milli
        if self._ledger is not None and sign > 0:
            self._ledger.take((Assignment(PoolOption(self._pool, request), placement),))
        elif self._ledger is not None:
            self._ledger.give_back((Assignment(PoolOption(self._pool, request), placement),))
