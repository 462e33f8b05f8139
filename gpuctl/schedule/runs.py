"""What each run says by itself, before anybody competes: it has ended, is suspended, lost, timed out, stopping, goes on
or waits. Also who holds which place.

It decides about one run at a time; only devices given out twice are looked at together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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
from gpuctl.model.state import ClusterState, Run, RunPhase
from gpuctl.model.units import WHOLE_GPU, GpuMilli, Instant
from gpuctl.schedule import interactive, reasons
from gpuctl.schedule.capacity import Capacity
from gpuctl.schedule.ledger import Charge

NOWHERE = Placement(workers=())
_ACTIVE = (RunPhase.STARTING, RunPhase.RUNNING)


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A run that occupies a place. `job` is its declaration when it may be paused for others, else None.

    `leaving`: it is stopping, so it is no part of what its project holds; its place is coming free.

    An elastic run is several holders: one of the workers it can't do without, and one of each `surplus` worker.
    `bound` are those of the same run that go when this one goes.
    """

    run: Run
    job: Job | None
    domain: DomainName | None
    total_milli: GpuMilli
    placement: Placement
    charge: Charge
    leaving: bool
    preemptible: bool
    surplus: bool = False
    bound: tuple[Holder, ...] = ()

    @property
    def project(self) -> ProjectName:
        """The project it belongs to, declared or not."""
        return self.run.job.project

    def nodes(self) -> list[NodeName]:
        """The nodes it is on, in order."""
        workers = self.placement.workers
        return [workers[0].node] if len(workers) == 1 else sorted({worker.node for worker in workers})


@dataclass(slots=True)
class Reading:
    """All that the runs say: decisions already made, jobs that wait (with their run, if any), and who holds places.

    `moving` are runs that stop to go on in a place that is kept for them.
    """

    decisions: dict[JobId, Decision] = field(default_factory=dict)
    waiting: list[tuple[Job, Run | None]] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    moving: list[tuple[Job, Run]] = field(default_factory=list)


def paused_record(run: Run, now_ms: Instant, paused_for: JobId | None) -> RunRecord:
    """What is remembered of a run that is stopped now: it queues again from now, and what it ran is added up."""
    if run.phase not in _ACTIVE:
        return record_of(run, now_ms)
    ran = run.ran_ms + interactive.running_ms(run, now_ms)
    return RunRecord(queued_at_ms=now_ms, starts=run.starts, ran_ms=ran, paused_for=paused_for)


def record_of(run: Run | None, now_ms: Instant) -> RunRecord:
    """What is remembered of a run that stays as it is; a job without a run queues from now."""
    if run is None:
        return RunRecord(queued_at_ms=now_ms)
    return RunRecord(
        queued_at_ms=run.queued_at_ms, starts=run.starts, ran_ms=run.ran_ms, paused_for=run.paused_for
    )  # fmt: skip


def _withdrawn_record(run: Run, now_ms: Instant) -> RunRecord:
    """What is remembered of a run that can't be where it is; one that was nowhere yet waits as if never let go."""
    if not run.unstarted:
        return paused_record(run, now_ms, None)
    starts = max(0, run.starts - 1)
    return RunRecord(queued_at_ms=run.queued_at_ms, starts=starts, ran_ms=run.ran_ms, paused_for=run.paused_for)


def read_runs(declared: Declared, state: ClusterState, capacity: Capacity, now_ms: Instant) -> Reading:
    """Read every run and every declared job once. Cost: O(runs + jobs)."""
    reading = Reading()
    jobs = {(job.id, job.digest): job for job in declared.jobs}
    runs: dict[tuple[JobId, RunDigest], Run] = {}
    for run in sorted(state.runs, key=lambda r: (r.job, r.digest, r.phase)):
        runs.setdefault((run.job, run.digest), run)
    for key, run in runs.items():
        if not run.phase.final and run.phase is not RunPhase.QUEUED:
            reading.holders.append(_holder(run, jobs.get(key), capacity))
            if run.leaving is not None:
                reading.holders.append(_left_behind(reading.holders[-1], run.leaving))
    twice = _given_twice(reading.holders, declared.held)
    for job in sorted(declared.jobs, key=lambda j: j.id):
        run_of_job = runs.get((job.id, job.digest))
        decision = _by_itself(job, run_of_job, declared, state, now_ms)
        if decision is None and run_of_job is not None and run_of_job.phase in _ACTIVE:
            decision = _goes_on(job, run_of_job, capacity, twice, now_ms)
        if decision is None:
            reading.waiting.append((job, run_of_job))
            continue
        reading.decisions[job.id] = decision
        if run_of_job is not None and isinstance(decision, Pending) and decision.reason.code == reasons.MOVED:
            reading.moving.append((job, run_of_job))
    reading.holders = [_settled(holder, reading.decisions, declared) for holder in reading.holders]
    return reading


def _holder(run: Run, job: Job | None, capacity: Capacity) -> Holder:
    placement = run.placement or NOWHERE
    workers = len(placement.workers) or (job.workers if job else 1)
    spaces = (capacity.nodes.get(worker.node) for worker in placement.workers)
    domain = next((space.domain for space in spaces if space is not None and space.domain is not None), None)
    if domain is None and job is not None:
        domain = next((capacity.domain_of[pool] for pool in job.pools if pool in capacity.domain_of), None)
    return Holder(
        run=run,
        job=job,
        domain=domain,
        total_milli=max(0, run.gpu_milli) * workers,
        placement=placement,
        charge=Charge(max(0, run.gpu_milli), max(0, run.cpu_milli), max(0, run.mem_bytes)),
        leaving=run.phase is RunPhase.STOPPING,
        preemptible=job.preemptible if job else True,
    )


def _left_behind(holder: Holder, placement: Placement) -> Holder:
    """The place of workers that the run has given up, until they are gone."""
    total_milli = holder.charge.gpu_milli * len(placement.workers)
    return replace(holder, job=None, total_milli=total_milli, placement=placement, leaving=True)


def _settled(holder: Holder, decisions: Mapping[JobId, Decision], declared: Declared) -> Holder:
    """The holder as the first decisions leave it: what they stop is leaving, what is not ours to pause has no job."""
    if holder.job is None:
        return holder
    decision = decisions.get(holder.job.id)
    stopped = isinstance(decision, Displace | TimeOut | Suspended | Finished)
    pausable = isinstance(decision, Keep) and _held(holder.job, declared) is None
    if pausable and not stopped:
        return holder
    return Holder(
        run=holder.run, job=holder.job if pausable else None, domain=holder.domain, total_milli=holder.total_milli,
        placement=holder.placement, charge=holder.charge, leaving=holder.leaving or stopped,
        preemptible=holder.preemptible,
    )  # fmt: skip


def _by_itself(job: Job, run: Run | None, declared: Declared, state: ClusterState, now_ms: Instant) -> Decision | None:
    """What is decided whatever the GPUs: ended, held, suspended, stopping. None: it waits or goes on."""
    record = record_of(run, now_ms)
    final = _final_state(job, run, state)
    if final is not None:
        return Finished(job=job.id, reason=reasons.ended(final), record=record, state=final)
    why = _held(job, declared)
    if why is not None:
        if run is not None and run.phase in _ACTIVE:
            return Keep(job=job.id, reason=run.reason or why, record=record, placement=run.placement or NOWHERE)
        return Pending(job=job.id, reason=why, record=record)
    if job.suspend:
        stopped = record if run is None else paused_record(run, now_ms, None)
        return Suspended(job=job.id, reason=reasons.suspended(), record=stopped)
    if run is not None and run.phase is RunPhase.STOPPING:
        return Pending(job=job.id, reason=run.reason or reasons.still_stopping(), record=record)
    return None


def _held(job: Job, declared: Declared) -> Reason | None:
    """Why nothing can be done for the job, if so."""
    if job.id.project in declared.held:
        return reasons.held(job.id.project)
    code = declared.barred.get(job.id)
    return None if code is None else reasons.barred(code)


def _final_state(job: Job, run: Run | None, state: ClusterState) -> JobState | None:
    """How the run ended, by the ledger, by its object, or by its object's absence."""
    ledger = state.ledgers.get(job.id.project)
    key = (job.id, job.digest)
    past = ledger.finished.get(key) if ledger else None
    if past is not None:
        return JobState(past.state) if past.state in set(JobState) else JobState.DELETED
    if run is not None:
        return JobState(run.phase.value) if run.phase.final else None
    return JobState.DELETED if ledger is not None and key in ledger.seen else None


def _goes_on(
    job: Job, run: Run, capacity: Capacity, twice: Mapping[tuple[JobId, RunDigest], NodeName], now_ms: Instant
) -> Decision:
    """A running run: over a limit, without its node, on a device given out twice, or as it was."""
    placement = run.placement or NOWHERE
    limit = interactive.limit_reached(job, run, now_ms)
    if limit is not None:
        return TimeOut(job=job.id, reason=limit, record=record_of(run, now_ms))
    for worker in placement.workers:
        space = capacity.nodes.get(worker.node)
        if space is None or not space.ready:
            record = _withdrawn_record(run, now_ms)
            return Displace(job=job.id, reason=reasons.node_lost(worker.node), record=record)
    for name in run.unbound:
        space = capacity.nodes.get(name)
        if space is None or not space.usable:
            record = _withdrawn_record(run, now_ms)
            return Displace(job=job.id, reason=reasons.node_closed(name), record=record)
    node = twice.get((run.job, run.digest))
    if node is not None:
        return Displace(job=job.id, reason=reasons.given_twice(node), record=paused_record(run, now_ms, None))
    reason = run.reason or reasons.runs_in_quota(job.id.project)
    return Keep(job=job.id, reason=reason, record=record_of(run, now_ms), placement=placement)


def _given_twice(holders: Iterable[Holder], held: frozenset[ProjectName]) -> dict[tuple[JobId, RunDigest], NodeName]:
    """Runs to move away so that no device carries more than one device's worth, and the node where it did.

    What can't be moved by a decision stays; then what can't be paused, then what started first. What is stopping
    anyway is not counted, nor are devices a node has stopped reporting: the work on them may well go on.
    """
    used: dict[tuple[NodeName, int], GpuMilli] = {}
    twice: dict[tuple[JobId, RunDigest], NodeName] = {}

    def standing(holder: Holder) -> tuple[bool, bool, Instant, JobId, RunDigest]:
        movable = holder.job is not None and holder.project not in held
        return movable, holder.preemptible, holder.run.started_at_ms or 0, holder.run.job, holder.run.digest

    for holder in sorted((h for h in holders if not h.leaving), key=standing):
        devices = [
            ((worker.node, index), holder.charge.on_device(worker))
            for worker in holder.placement.workers
            for index in worker.gpus
        ]
        over = [key for key, milli in devices if used.get(key, 0) + milli > WHOLE_GPU]
        if over and standing(holder)[0]:
            twice[holder.run.job, holder.run.digest] = min(over)[0]
            continue
        for key, milli in devices:
            used[key] = used.get(key, 0) + milli
    return twice
