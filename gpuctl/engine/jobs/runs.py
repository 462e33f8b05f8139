"""What each run says on its own, before jobs compete, and which allocation it holds.

A run has ended, is suspended, has lost its node, has timed out, is stopping, goes on, or waits. Runs are read one at a
time; only devices that were given out twice need several runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import TypeAlias

from gpuctl.engine import reasons
from gpuctl.engine.capacity.fit import WorkerRequest
from gpuctl.engine.capacity.nodes import Capacity, NodeCapacity
from gpuctl.engine.jobs import timing
from gpuctl.engine.jobs.victim_order import RunOrder, run_order
from gpuctl.model.decision import (
    Decision,
    Displace,
    Finished,
    JobState,
    Keep,
    Pending,
    Placement,
    Reason,
    Resize,
    RunRecord,
    Suspended,
    TimeOut,
    WorkerPlacement,
)
from gpuctl.model.declared import Declared, MinRuntime
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName, RunDigest, RunKey
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import ACTIVE, ClusterState, Run, RunPhase
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant

NOWHERE = Placement(workers=())
STOPPING = RunPhase.STOPPING
IN_PLACE = frozenset((*ACTIVE, STOPPING))
"""Phases of runs that hold a place."""

_Device: TypeAlias = tuple[NodeName, int]
"""A device of a node, by its index."""

_STOPPED = (Displace, TimeOut, Suspended, Finished)
"""Decisions by which a run stops."""

_TIMED = (Keep, TimeOut)
"""Decisions that time alone may change."""


@dataclass(slots=True, eq=False)
class Allocation:
    """A run that holds a place, or a part of an elastic one. `job`: its declaration if it may be paused for other jobs,
    else None. `leaving`: it is stopping, so its project no longer holds it. `keeps_claim`: it was displaced, so its
    project claims its GPUs until it waits like others. An elastic run is several allocations: one of the workers it
    can't do without, and `is_extra` ones of the others. `leaves_with`: the allocations of the same run that leave with
    this one. `order`: its position among its project's runs.

    Never changed. Not frozen, because that would double the cost of making one.
    """

    run: Run
    job: Job | None
    domain: DomainName | None
    total_milli: GpuMilli
    placement: Placement
    per_worker: WorkerRequest
    leaving: bool
    preemptible: bool
    keeps_claim: bool = False
    is_extra: bool = False
    leaves_with: tuple[Allocation, ...] = ()
    order: RunOrder = field(init=False)

    def __post_init__(self) -> None:
        self.order = run_order(self.run, self.job)

    @property
    def project(self) -> ProjectName:
        """Its project, declared or not."""
        return self.run.job.project

    def nodes(self) -> list[NodeName]:
        """Its nodes, in order."""
        workers = self.placement.workers
        return [workers[0].node] if len(workers) == 1 else sorted({worker.node for worker in workers})


def gpu_milli_of(allocations: Iterable[Allocation]) -> GpuMilli:
    """The GPUs of some allocations together."""
    return sum(allocation.total_milli for allocation in allocations)


def paused_record(run: Run, now_ms: Instant, paused_for: JobId | None) -> RunRecord:
    """The record of a run that stops now: queued from now on, with its running time added."""
    if run.phase not in ACTIVE:
        return record_of(run, now_ms)
    ran = run.ran_ms + timing.running_ms(run, now_ms)
    failed = 0 if run.begun else run.failed_starts
    return RunRecord(now_ms, starts=run.starts, ran_ms=ran, paused_for=paused_for, failed_starts=failed)


def record_of(run: Run | None, now_ms: Instant) -> RunRecord:
    """The record of a run that stays as it is; a job without a run is queued from now."""
    return RunRecord(queued_at_ms=now_ms) if run is None else run.record


def _withdrawn_record(run: Run, now_ms: Instant) -> RunRecord:
    """The record of a run that can't stay where it is. A run that has not started yet keeps its time of queueing."""
    if not run.unstarted:
        return paused_record(run, now_ms, None)
    return RunRecord(run.queued_at_ms, max(0, run.starts - 1), run.ran_ms, run.paused_for, run.failed_starts)


def allocations_of(run: Run, job: Job | None, capacity: Capacity) -> tuple[Allocation, ...]:
    """The allocations of a run: one of its workers that have not ended, and one of the workers that it has given up.

    `job`: its declaration, if any.
    """
    placement = run.placement or NOWHERE
    per_worker = WorkerRequest(max(0, run.gpu_milli), max(0, run.cpu_milli), max(0, run.mem_bytes))
    workers = len(placement.workers) or (job.workers if job else 1)
    if run.ended:
        placement = Placement(workers=tuple([worker for _, worker in _staying(run)]))
        workers = len(placement.workers)
    domain, leaving = _domain(placement, job, capacity), run.phase is STOPPING
    preemptible, milli = job is None or job.preemptible, per_worker.gpu_milli * workers
    allocation = Allocation(run, job, domain, milli, placement, per_worker, leaving, preemptible)
    return (allocation,) if run.leaving is None else (allocation, _left_behind(allocation, run.leaving))


def next_change_ms(  # noqa: PLR0913, PLR0917 - what a decision depends on
    job: Job,
    run: Run | None,
    decision: Decision | None,
    now_ms: Instant,
    min_runtime: MinRuntime,
    start_timeout_ms: DurationMs,
) -> Instant | None:
    """When time alone may change a job's decision: `now_ms` if at any time; None: never. `decision` None: the job
    competes with others."""
    if run is None or isinstance(decision, Displace | Resize):
        return now_ms
    if isinstance(decision, Suspended) and run.phase in ACTIVE:
        return now_ms
    if isinstance(decision, Finished):
        return None if decision.is_expired else decision.expires_at_ms
    if not isinstance(decision, _TIMED):
        waits = decision is None or isinstance(decision, Pending)
        return timing.next_right_ms(run, now_ms) if waits else None
    times: list[Instant | None] = list(timing.min_runtime_ends(run, min_runtime)) if job.preemptible else []
    if run.phase is RunPhase.STARTING:
        times += [timing.slow_at_ms(run), timing.start_over_ms(run, start_timeout_ms)]
    if run.started_at_ms is not None:
        times.append(timing.latest_end_ms(job, run, now_ms))
    if job.idle_timeout_ms is not None and run.idle_since_ms is not None:
        times.append(run.idle_since_ms + job.idle_timeout_ms)
    return min((at_ms for at_ms in times if at_ms is not None and at_ms > now_ms), default=None)


def _staying(run: Run) -> list[tuple[int, WorkerPlacement]]:
    workers = run.placement.workers if run.placement is not None else ()
    return [(at, worker) for at, worker in enumerate(workers) if at not in run.ended]


def _domain(placement: Placement, job: Job | None, capacity: Capacity) -> DomainName | None:
    """The quota domain that a run counts in: that of its first node with one, else of the first of its job's pools."""
    for worker in placement.workers:
        space = capacity.nodes.get(worker.node)
        if space is not None and space.domain is not None:
            return space.domain
    return next((capacity.domain_of[pool] for pool in job.pools if pool in capacity.domain_of), None) if job else None


def _left_behind(allocation: Allocation, placement: Placement) -> Allocation:
    """The allocation of workers that the run has given up, until they are gone."""
    total_milli = allocation.per_worker.gpu_milli * len(placement.workers)
    return replace(allocation, job=None, total_milli=total_milli, placement=placement, leaving=True)


def decided(allocation: Allocation, decision: Decision | None, declared: Declared) -> Iterator[Allocation]:
    """The allocation after its job's decision: leaving if the run stops; without `job` if it can't be paused.

    If a run goes on with fewer workers, the workers that it gives up are an allocation of their own.
    """
    if allocation.job is None:
        yield replace(allocation, leaving=True) if _is_removed(allocation.run.job, declared) else allocation
    elif isinstance(decision, Keep) and _hindrance(allocation.job, declared) is None:
        yield allocation
    elif isinstance(decision, Resize):
        staying, each = decision.placement, allocation.per_worker.gpu_milli
        yield replace(allocation, placement=staying, total_milli=each * len(staying.workers))
        gone = Counter(allocation.placement.workers) - Counter(staying.workers)
        yield _left_behind(allocation, Placement(workers=tuple(gone.elements())))
    else:
        leaving = allocation.leaving or isinstance(decision, _STOPPED)
        claims = leaving and decision is not None and decision.reason.code in reasons.DISPLACED
        yield replace(allocation, job=None, leaving=leaving, keeps_claim=claims)


def _is_removed(job: JobId, declared: Declared) -> bool:
    """Whether a run that is no longer declared is removed in this cycle: its project is declared and not pinned, and
    the job is not blocked."""
    is_held_back = job.project in declared.pinned or job in declared.blocked
    return not is_held_back and any(project.name == job.project for project in declared.projects)


def by_itself(job: Job, run: Run | None, declared: Declared, state: ClusterState, now_ms: Instant) -> Decision | None:
    """The decision that does not depend on free GPUs: ended, pinned, suspended, stopping. None: it waits or goes on."""
    final = final_state(job, run, state)
    if final is not None:
        ended = Finished(job=job.id, reason=reasons.ended(final), record=record_of(run, now_ms), state=final)
        return ended if job.ttl_ms is None or run is None else _kept_for(ended, job.ttl_ms, job.digest, state, now_ms)
    why = _hindrance(job, declared)
    if why is not None:
        record = record_of(run, now_ms)
        if run is not None and run.phase in ACTIVE:
            return Keep(job=job.id, reason=run.reason or why, record=record, placement=run.placement or NOWHERE)
        return Pending(job=job.id, reason=why, record=record)
    if job.suspend or _has_no_load(job, run):
        record = record_of(run, now_ms) if run is None else paused_record(run, now_ms, None)
        reason = reasons.SUSPENDED if job.suspend else reasons.SCALED_TO_ZERO
        return Suspended(job=job.id, reason=reason, record=record)
    if run is None:
        return None
    if run.phase is STOPPING:
        return Pending(job=job.id, reason=run.reason or reasons.STILL_STOPPING, record=run.record)
    if run.phase is RunPhase.QUEUED and job.max_duration_ms is not None and run.ran_ms >= job.max_duration_ms:
        # The run has no time left: other runs would be paused for a run that ends at once.
        timed_out = JobState.TIMED_OUT
        return Finished(job=job.id, reason=reasons.ended(timed_out), record=run.record, state=timed_out)
    retry_ms = timing.retry_at_ms(run)
    if retry_ms is not None and now_ms < retry_ms:
        # A run whose start failed waits for a while, and takes not even idle GPUs.
        return Pending(job=job.id, reason=timing.reason_to_wait(run), record=run.record)
    return None


def _has_no_load(job: Job, run: Run | None) -> bool:
    """Whether a service that may scale to zero did: its autoscaler removed the last worker, and asks for none."""
    at_zero = job.scaling is not None and job.scaling.to_zero and run is not None and run.asked_workers == 0
    return at_zero and run is not None and run.phase not in ACTIVE


def _hindrance(job: Job, declared: Declared) -> Reason | None:
    """Why nothing can be done for the job: its project is pinned, or the job is blocked."""
    if job.id.project in declared.pinned:
        return reasons.pinned(job.id.project)
    return declared.blocked.get(job.id)


def final_state(job: Job, run: Run | None, state: ClusterState) -> JobState | None:
    """How the run ended: by the project's ledger, by its object, or by the object's absence."""
    ledger = state.ledgers.get(job.id.project)
    past = ledger.finished.get((job.id, job.digest)) if ledger else None
    if past is not None:
        return JobState(past.state) if past.state in set(JobState) else JobState.DELETED
    if run is not None:
        return JobState(run.phase.value) if run.phase.final else None
    return JobState.DELETED if ledger is not None and (job.id, job.digest) in ledger.seen else None


def _kept_for(ended: Finished, ttl_ms: DurationMs, digest: RunDigest, state: ClusterState, now_ms: Instant) -> Finished:
    """Set how long the object of an ended run is kept: at least until the ledger has the end, because without the
    object only the ledger shows that there was a run."""
    ledger = state.ledgers.get(ended.job.project)
    past = ledger.finished.get((ended.job, digest)) if ledger is not None else None
    if past is None:
        return ended
    end_ms = past.at_ms + ttl_ms
    return replace(ended, expires_at_ms=end_ms, is_expired=end_ms <= now_ms)


def stopped(  # noqa: PLR0913, PLR0917 - what a run depends on
    job: Job,
    run: Run,
    capacity: Capacity,
    twice: Mapping[RunKey, NodeName],
    now_ms: Instant,
    start_timeout_ms: DurationMs,
) -> Decision | None:
    """Why a running run does not go on as it is: it is over a limit, does not come to run, or has lost places.

    A place is lost with its node. A place whose pod is not there yet is also lost if its node takes no new pods, or if
    others' pods have its GPUs: kube-scheduler gave them to a pod of a higher PriorityClass. A run that can do with
    fewer workers goes on with those that keep their places, as far as its kind of object lets it give up the others.
    """
    limit = timing.limit_reached(job, run, now_ms)
    if limit is not None:
        return TimeOut(job=job.id, reason=limit, record=run.record)
    over_ms = timing.start_over_ms(run, start_timeout_ms)
    if over_ms is not None and over_ms <= now_ms:
        why, record = timing.given_up(run, now_ms)
        return Displace(job=job.id, reason=why, record=record)
    nodes = capacity.nodes
    lost = {at: worker.node for at, worker in _staying(run) if worker.node not in nodes or not nodes[worker.node].ready}
    closed = _closed_places(run, capacity) if run.unbound else {}
    node = next(chain(lost.values(), closed.values()), None)
    if node is not None:
        staying = _workers_without(job, run, lost.keys() | closed.keys())
        if staying:
            fewer = reasons.lost_workers(node, len(staying), job.workers)
            return Resize(job=job.id, reason=fewer, record=run.record, placement=Placement(workers=staying))
        of_place = reasons.given_twice if _takes_pods(node, capacity) else reasons.node_closed
        reason = reasons.node_lost(node) if lost else of_place(node)
        return Displace(job=job.id, reason=reason, record=_withdrawn_record(run, now_ms))
    node = twice.get((run.job, run.digest))
    if node is None:
        return None
    return Displace(job=job.id, reason=reasons.given_twice(node), record=_withdrawn_record(run, now_ms))


def _closed_places(run: Run, capacity: Capacity) -> dict[int, NodeName]:
    """The workers whose pods are not on a node yet, on nodes that take no new pods, or where others have their GPUs.

    Which workers of a node these are is not known. The last are assumed: those are the newest of a run that scales up.
    """
    there = defaultdict[NodeName, list[tuple[int, WorkerPlacement]]](list)
    for at, worker in _staying(run):
        there[worker.node].append((at, worker))
    return {
        at: node
        for node, count in Counter(run.unbound).items()
        for at, worker in there[node][-count:]
        if not _takes_pods(node, capacity) or _is_taken(worker, capacity.nodes[node])
    }


def _takes_pods(node: NodeName, capacity: Capacity) -> bool:
    return node in capacity.nodes and capacity.nodes[node].usable


def _is_taken(worker: WorkerPlacement, space: NodeCapacity) -> bool:
    """Whether foreign pods or faults leave nothing of one of its devices."""
    return any(index < len(space.gpu_milli) and not space.gpu_milli[index] for index in worker.gpus)


def _workers_without(job: Job, run: Run, lost: AbstractSet[int]) -> tuple[WorkerPlacement, ...]:
    """The workers with which a run goes on without those that lost their places; () if they are too few.

    A Deployment can do without any of its replicas, and removes those first that are not ready. An Indexed Job drops
    only its highest indexes: the workers above a lost one go with it.
    """
    if not job.is_elastic or run.placement is None:
        return ()
    workers = run.placement.workers
    if job.type is JobType.INFERENCE:
        staying = tuple([worker for at, worker in enumerate(workers) if at not in lost])
    else:
        staying = workers[: min(lost)]
    return staying if len(staying) >= job.min_workers else ()


def kept(job: Job, run: Run, now_ms: Instant, start_timeout_ms: DurationMs) -> Keep:
    """The decision for a run that goes on as it was."""
    return Keep(
        job=job.id,
        reason=run.reason or reasons.runs_in_quota(job.id.project),
        record=timing.going_record(run, now_ms, start_timeout_ms),
        placement=_within_asked(job, run.placement or NOWHERE),
    )


def _within_asked(job: Job, placement: Placement) -> Placement:
    """Where a service runs, without workers that it no longer asks for. Its Deployment chooses which pods leave; the
    next cycle observes where the others are."""
    if job.scaling is None or len(placement.workers) <= job.workers:
        return placement
    return Placement(workers=placement.workers[: job.workers])


def given_twice(allocations: Iterable[Allocation]) -> dict[RunKey, NodeName]:
    """Runs to move so that no device carries more than one device's worth, each with the node where one did.

    Runs keep a device in this order: those that no decision can move; those with all pods on nodes; those that can't be
    paused; those that started first. Leaving allocations don't count. Devices that a node has stopped reporting do
    count: the work on them may well go on. Cost: O(devices), and a sort if a device was given twice.
    """
    staying = [allocation for allocation in allocations if not allocation.leaving]
    if all(milli <= WHOLE_GPU for milli in _used(staying).values()):
        return {}
    used: dict[_Device, GpuMilli] = {}
    twice: dict[RunKey, NodeName] = {}
    for _, parts in groupby(sorted(staying, key=_seniority), key=_seniority):
        of_run = list(parts)
        own = _used(of_run)
        over = [device for device, milli in own.items() if used.get(device) and used[device] + milli > WHOLE_GPU]
        if over and of_run[0].job is not None:
            twice[of_run[0].run.job, of_run[0].run.digest] = min(over)[0]
            continue
        for device, milli in own.items():
            used[device] = used.get(device, 0) + milli
    return twice


def _used(allocations: Iterable[Allocation]) -> dict[_Device, GpuMilli]:
    used: dict[_Device, GpuMilli] = {}
    for allocation in allocations:
        for worker in allocation.placement.workers:
            milli = allocation.per_worker.on_device(worker)
            for index in worker.gpus:
                used[worker.node, index] = used.get((worker.node, index), 0) + milli
    return used


def _seniority(allocation: Allocation) -> tuple[bool, bool, bool, Instant, JobId, RunDigest]:
    """The order in which runs keep a device that was given to several; equal for all allocations of one run."""
    run = allocation.run
    started_at_ms = run.started_at_ms or 0
    return allocation.job is not None, bool(run.unbound), allocation.preemptible, started_at_ms, run.job, run.digest
