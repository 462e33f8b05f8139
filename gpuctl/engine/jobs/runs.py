"""What each run says by itself, before anybody competes: it has ended, is suspended, lost, timed out, stopping, goes on
or waits. Also who holds which place.

It decides about one run at a time; only devices given out twice are looked at together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gpuctl.engine import reasons
from gpuctl.engine.capacity.free import WorkerRequest
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.jobs import interactive
from gpuctl.model.columns import of_columns, of_rows
from gpuctl.model.decision import (
    Decision,
    Displace,
    Finished,
    JobState,
    Keep,
    Pending,
    Placement,
    Reason,
    RunRecord,
    Suspended,
    TimeOut,
)
from gpuctl.model.declared import Declared, DomainName
from gpuctl.model.ids import JobId, NodeName, ProjectName, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase, remembered
from gpuctl.model.units import WHOLE_GPU, CpuMilli, DurationMs, GpuMilli, Instant, MemBytes

NOWHERE = Placement(workers=())
STOPPING = RunPhase.STOPPING
IN_PLACE = frozenset((*ACTIVE, STOPPING))
"""Phases of runs that hold a place."""

_FEW = 8
"""So many runs are put in their place one by one; more are sorted in."""

_STOPPED = (Displace, TimeOut, Suspended, Finished)
"""What is decided about a run that does not go on."""

_TIMED = (Keep, TimeOut)
"""What time alone may change."""


@dataclass(slots=True, eq=False)
class Allocation:
    """A run that occupies a place. `job` is its declaration when it may be paused for others, else None.

    `leaving`: it is stopping, so it is no part of what its project holds; its place is coming free.

    An elastic run is several allocations: one of the workers it can't do without, and one of each `surplus` worker.
    `bound` are those of the same run that go when this one goes.

    Nobody changes it; that Python sees to that would double what it costs.
    """

    run: Run
    job: Job | None
    domain: DomainName | None
    total_milli: GpuMilli
    placement: Placement
    charge: WorkerRequest
    leaving: bool
    preemptible: bool
    surplus: bool = False
    bound: tuple[Allocation, ...] = ()

    @property
    def project(self) -> ProjectName:
        """The project it belongs to, declared or not."""
        return self.run.job.project

    def nodes(self) -> list[NodeName]:
        """The nodes it is on, in order."""
        workers = self.placement.workers
        return [workers[0].node] if len(workers) == 1 else sorted({worker.node for worker in workers})


def gpu_milli_of(allocations: Iterable[Allocation]) -> GpuMilli:
    """What they hold together."""
    return sum(allocation.total_milli for allocation in allocations)


def sort_in(there: list[Allocation], more: Collection[Allocation], key: Callable[[Allocation], Any]) -> None:
    """Have more in a sorted list. Cost: O(log there) for each of a few."""
    if len(more) > _FEW:
        there.extend(more)
        there.sort(key=key)
        return
    for allocation in more:
        insort(there, allocation, key=key)


def sort_out(there: list[Allocation], some: Collection[Allocation], key: Callable[[Allocation], Any]) -> None:
    """Have some no more in a sorted list, as far as they are in it. Cost: O(log there) for each of a few."""
    if len(some) > _FEW:
        gone = set(map(id, some))
        there[:] = [allocation for allocation in there if id(allocation) not in gone]
        return
    for allocation in some:
        first, end = bisect_left(there, key(allocation), key=key), bisect_right(there, key(allocation), key=key)
        for at in range(first, end):
            if there[at] is allocation:
                del there[at]
                break


def paused_record(run: Run, now_ms: Instant, paused_for: JobId | None) -> RunRecord:
    """What is remembered of a run that is stopped now: it queues again from now, and what it ran is added up."""
    if run.phase not in ACTIVE:
        return record_of(run, now_ms)
    ran = run.ran_ms + interactive.running_ms(run, now_ms)
    return RunRecord(queued_at_ms=now_ms, starts=run.starts, ran_ms=ran, paused_for=paused_for)


def record_of(run: Run | None, now_ms: Instant) -> RunRecord:
    """What is remembered of a run that stays as it is; a job without a run queues from now."""
    return RunRecord(queued_at_ms=now_ms) if run is None else run.record


def _withdrawn_record(run: Run, now_ms: Instant) -> RunRecord:
    """What is remembered of a run that can't be where it is; one that was nowhere yet waits as if never let go."""
    if not run.unstarted:
        return paused_record(run, now_ms, None)
    starts = max(0, run.starts - 1)
    return RunRecord(queued_at_ms=run.queued_at_ms, starts=starts, ran_ms=run.ran_ms, paused_for=run.paused_for)


def allocations_of(run: Run, job: Job | None, capacity: Capacity) -> tuple[Allocation, ...]:
    """Which places a run occupies: its own, and that of workers it has given up. `job` is its declaration, if it is."""
    allocation = _allocation(run, job, capacity)
    return (allocation,) if run.leaving is None else (allocation, _left_behind(allocation, run.leaving))


def next_change_ms(
    job: Job, run: Run | None, decision: Decision | None, now_ms: Instant, min_runtime_ms: DurationMs
) -> Instant | None:
    """When time alone may change what is said of a job: now, if it does at any time; None: never."""
    if run is None or isinstance(decision, Displace) or (isinstance(decision, Suspended) and run.phase in ACTIVE):
        return now_ms
    if not isinstance(decision, _TIMED):
        return None
    if not min_runtime_ms and job.max_duration_ms is None and job.idle_timeout_ms is None:
        return None
    times: list[Instant] = []
    if run.started_at_ms is not None:
        if min_runtime_ms:
            times.append(run.started_at_ms + min_runtime_ms)
        end_ms = interactive.latest_end_ms(job, run, now_ms)
        if end_ms is not None:
            times.append(end_ms)
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        times.append(run.idle_since_ms + job.idle_timeout_ms)
    return min((at_ms for at_ms in times if at_ms > now_ms), default=None) if times else None


def _allocation(run: Run, job: Job | None, capacity: Capacity) -> Allocation:
    placement = run.placement or NOWHERE
    workers = len(placement.workers) or (job.workers if job else 1)
    charge = _charge(run.gpu_milli, run.cpu_milli, run.mem_bytes)
    domain, leaving = _domain(placement, job, capacity), run.phase is STOPPING
    preemptible = job is None or job.preemptible
    return Allocation(run, job, domain, charge.gpu_milli * workers, placement, charge, leaving, preemptible)


@lru_cache(maxsize=1024)
def _charge(gpu_milli: GpuMilli, cpu_milli: CpuMilli, mem_bytes: MemBytes) -> WorkerRequest:
    """What a worker is charged: one object for all that are charged the same, which are most."""
    return WorkerRequest(max(0, gpu_milli), max(0, cpu_milli), max(0, mem_bytes))


def _domain(placement: Placement, job: Job | None, capacity: Capacity) -> DomainName | None:
    """The quota domain a run counts in: that of the first node that has one, else the first its job may use."""
    for worker in placement.workers:
        space = capacity.nodes.get(worker.node)
        if space is not None and space.domain is not None:
            return space.domain
    return next((capacity.domain_of[pool] for pool in job.pools if pool in capacity.domain_of), None) if job else None


def _left_behind(allocation: Allocation, placement: Placement) -> Allocation:
    """The place of workers that the run has given up, until they are gone."""
    total_milli = allocation.charge.gpu_milli * len(placement.workers)
    return replace(allocation, job=None, total_milli=total_milli, placement=placement, leaving=True)


def settled(allocation: Allocation, decision: Decision | None, declared: Declared) -> Allocation:
    """The allocation as its job's decision leaves it: a run that it stops is leaving; one that is pinned has no job."""
    if allocation.job is None:
        return allocation
    if isinstance(decision, Keep) and _held(allocation.job, declared) is None:
        return allocation
    stopped = isinstance(decision, _STOPPED)
    return Allocation(
        run=allocation.run, job=None, domain=allocation.domain, total_milli=allocation.total_milli,
        placement=allocation.placement, charge=allocation.charge, leaving=allocation.leaving or stopped,
        preemptible=allocation.preemptible,
    )  # fmt: skip


def by_itself(job: Job, run: Run | None, declared: Declared, state: ClusterState, now_ms: Instant) -> Decision | None:
    """What is decided whatever the GPUs: ended, held, suspended, stopping. None: it waits or goes on."""
    final = _final_state(job, run, state)
    if final is not None:
        return Finished(job=job.id, reason=reasons.ended(final), record=record_of(run, now_ms), state=final)
    why = _held(job, declared) if declared.pinned or declared.blocked else None
    if why is None and not job.suspend and (run is None or run.phase is not STOPPING):
        return None if job.max_duration_ms is None else _spent(job.id, run, job.max_duration_ms)
    record = record_of(run, now_ms)
    if why is not None:
        if run is not None and run.phase in ACTIVE:
            return Keep(job=job.id, reason=run.reason or why, record=record, placement=run.placement or NOWHERE)
        return Pending(job=job.id, reason=why, record=record)
    if job.suspend:
        stopped = record if run is None else paused_record(run, now_ms, None)
        return Suspended(job=job.id, reason=reasons.suspended(), record=stopped)
    if run is not None and run.phase is STOPPING:
        return Pending(job=job.id, reason=run.reason or reasons.still_stopping(), record=record)
    return None


def _held(job: Job, declared: Declared) -> Reason | None:
    """Why nothing can be done for the job, if so."""
    if job.id.project in declared.pinned:
        return reasons.held(job.id.project)
    code = declared.blocked.get(job.id)
    return None if code is None else reasons.barred(code)


def _final_state(job: Job, run: Run | None, state: ClusterState) -> JobState | None:
    """How the run ended, by the ledger, by its object, or by its object's absence."""
    ledger = state.ledgers.get(job.id.project)
    past = ledger.finished.get((job.id, job.digest)) if ledger else None
    if past is not None:
        return JobState(past.state) if past.state in set(JobState) else JobState.DELETED
    if run is not None:
        return JobState(run.phase.value) if run.phase.final else None
    return JobState.DELETED if ledger is not None and (job.id, job.digest) in ledger.seen else None


def _spent(job: JobId, run: Run | None, limit_ms: DurationMs) -> Finished | None:
    """A run that waits and has no time left has timed out: others would make way for it so that it starts and ends."""
    if run is None or run.phase is not RunPhase.QUEUED or run.ran_ms < limit_ms:
        return None
    state = JobState.TIMED_OUT
    return Finished(job=job, reason=reasons.ended(state), record=run.record, state=state)


def stopped(
    job: Job, run: Run, capacity: Capacity, twice: Mapping[tuple[JobId, RunDigest], NodeName], now_ms: Instant
) -> Decision | None:
    """A running run that does not go on: over a limit, without its node, or on a device given out twice."""
    limit = interactive.limit_reached(job, run, now_ms)
    if limit is not None:
        return TimeOut(job=job.id, reason=limit, record=run.record)
    for worker in run.placement.workers if run.placement is not None else ():
        space = capacity.nodes.get(worker.node)
        if space is None or not space.ready:
            record = _withdrawn_record(run, now_ms)
            return Displace(job=job.id, reason=reasons.node_lost(worker.node), record=record)
    for name in run.unbound:
        space = capacity.nodes.get(name)
        if space is None or not space.usable:
            record = _withdrawn_record(run, now_ms)
            return Displace(job=job.id, reason=reasons.node_closed(name), record=record)
    node = twice.get((run.job, run.digest)) if twice else None
    if node is not None:
        return Displace(job=job.id, reason=reasons.given_twice(node), record=paused_record(run, now_ms, None))
    return None


def kept(staying: Sequence[tuple[Job, Run]]) -> list[Keep]:
    """Running runs that go on as they were."""
    return of_columns(
        Keep,
        len(staying),
        job=[job.id for job, _ in staying],
        reason=[run.reason or reasons.runs_in_quota(job.id.project) for job, run in staying],
        record=of_rows(RunRecord, [remembered(run) for _, run in staying]),
        placement=[run.placement or NOWHERE for _, run in staying],
    )


def given_twice(
    allocations: Iterable[Allocation], held: frozenset[ProjectName]
) -> dict[tuple[JobId, RunDigest], NodeName]:
    """Runs to move away so that no device carries more than one device's worth, and the node where it did.

    What can't be moved by a decision stays; then what can't be paused, then what started first. What is stopping
    anyway is not counted, nor are devices a node has stopped reporting: the work on them may well go on.
    """
    used: dict[tuple[NodeName, int], GpuMilli] = {}
    twice: dict[tuple[JobId, RunDigest], NodeName] = {}

    def standing(allocation: Allocation) -> tuple[bool, bool, Instant, JobId, RunDigest]:
        movable = allocation.job is not None and allocation.project not in held
        return (
            movable,
            allocation.preemptible,
            allocation.run.started_at_ms or 0,
            allocation.run.job,
            allocation.run.digest,
        )

    for allocation in sorted((h for h in allocations if not h.leaving), key=standing):
        devices = [
            ((worker.node, index), allocation.charge.on_device(worker))
            for worker in allocation.placement.workers
            for index in worker.gpus
        ]
        over = [key for key, milli in devices if used.get(key, 0) + milli > WHOLE_GPU]
        if over and standing(allocation)[0]:
            twice[allocation.run.job, allocation.run.digest] = min(over)[0]
            continue
        for key, milli in devices:
            used[key] = used.get(key, 0) + milli
    return twice
