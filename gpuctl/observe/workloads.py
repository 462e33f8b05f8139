"""Runs: the Jobs, Deployments and pods that are gpuctl's, the phase of each run and what it holds.

Places and phases are read from the objects; everything that counts against others, from the ledger's entry. If gpuctl
was killed between the two, the entry is ahead of the object, as it was written first. Then the object shows what has
happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from gpuctl.k8s import names
from gpuctl.k8s.annotations import decode_instant
from gpuctl.k8s.objects import annotations_of, instant, is_deleting
from gpuctl.k8s.requests import Requests
from gpuctl.model.decision import NOT_YET, SLOW_MS, Placement, Reason, RunRecord
from gpuctl.model.ids import RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.pod_problem import TERMINATING, PodProblem
from gpuctl.model.state import ACTIVE, Body, Charge, Run, RunEntry, RunPhase
from gpuctl.model.units import WHOLE_GPU, DurationMs, Instant
from gpuctl.observe.autoscalers import Asked, asked_of_run
from gpuctl.observe.charges import charge_by_pods
from gpuctl.observe.crews import Crew, elastic_crew, held_places, unbound_nodes, whole_crew
from gpuctl.observe.endings import Endings
from gpuctl.observe.memories import Memory, Missing
from gpuctl.observe.pods import Pod
from gpuctl.observe.problems import of_refused_pods, worst
from gpuctl.observe.records import record_of
from gpuctl.observe.roster import Workloads
from gpuctl.observe.shapes import Shape, shape_of
from gpuctl.observe.unreadable import Faults, Unreadable, read

_TO_START_MS: DurationMs = 60_000
"""The longest time from releasing a run to the start of its Job, or of its first pod."""
_BEFORE_MS: DurationMs = 5_000
_AFTER_MS: DurationMs = 1_000
"""How far gpuctl's time of deciding to create an object may be from the server's timestamp, which has whole seconds."""


def observe_runs(  # noqa: PLR0913, PLR0917 - what is there, what is remembered, what is known
    workloads: Workloads,
    memories: Sequence[Memory],
    asked: Sequence[Asked | None],
    orphaned: Mapping[RunKey, RunEntry],
    pods: Iterable[Pod],
    leaving_namespaces: frozenset[str],
    known: Sweep[RunKey, Run | Unreadable[Run]],
    faults: Faults,
) -> tuple[Run, ...]:
    """All runs by job and digest. Pods that outlive their Job or Deployment form a run that stops.

    `memories`: what is remembered of the workloads' runs, in their order; `asked`: how many workers the autoscaler of
    each asks for; `orphaned`: what is remembered of runs whose object is gone. Only `pods` whose controller is a run's
    object matter.
    """
    crews: dict[tuple[str, RunKey], list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.controller is not None:
            crews[pod.ref.namespace, pod.controller].append(pod)
    keys, bodies, refs, rows = workloads.runs, workloads.bodies, workloads.refs, workloads.rows
    own, orphans = [_NO_PODS] * len(keys), dict[tuple[str, RunKey], list[Pod]]()
    for (namespace, run), crew in crews.items():
        place = workloads.places.get(run)
        if place is not None and refs[place].namespace == namespace:
            own[place] = _in_order(crew)
        elif place is None and any(pod.live for pod in crew):
            orphans[namespace, run] = crew
    leaving = [False] * len(keys)
    if leaving_namespaces:
        leaving = [ref.namespace in leaving_namespaces for ref in refs]

    def workload(at: int) -> _Workload:
        body = bodies[at]
        shape = shape_of(body, rows)
        return _Workload(shape, leaving[at], _recalled(shape, memories[at]), asked[at])

    readings = known.over(
        keys,
        [bodies, leaving, own, memories, asked],
        lambda at: read(
            partial(_observe_run, keys[at], workload(at), own[at]),
            partial(_unreadable_run, keys[at], [pod for pod in own[at] if pod.run is not None]),
        ),
    )
    found = faults.sift(refs, readings)
    if not orphans:
        return tuple(found)
    runs = dict(zip(keys, found, strict=True))
    for where, run in sorted(orphans):
        runs[run] = _orphaned(run, orphaned.get(run), _in_order(orphans[where, run]))
    return tuple(map(runs.__getitem__, sorted(runs)))


_NO_PODS: tuple[Pod, ...] = ()


def _in_order(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=attrgetter("ref"))) if len(pods) > 1 else tuple(pods)


def _recalled(shape: Shape, memory: Memory) -> RunEntry:
    """What is remembered of a run. A new run waits since its object was made, whatever the object says.

    A run that is not suspended although its memory is lost counts as released.
    """
    if isinstance(memory, RunEntry):
        return memory
    let_go = memory is Missing.LOST and not shape.suspended
    return RunEntry(record=RunRecord(queued_at_ms=_made_at_ms(shape.body), starts=int(let_go)), is_let_go=let_go)


def _made_at_ms(body: Body) -> Instant:
    """When the object was made: by the server, or as gpuctl wrote it, if both mean the same moment."""
    made = instant(body, "metadata", "creationTimestamp") or 0
    told = decode_instant(annotations_of(body).get(names.QUEUED_AT_ANNOTATION))
    return told if told is not None and made - _BEFORE_MS <= told < made + _AFTER_MS else made


@dataclass(frozen=True, slots=True)
class _Workload:
    """A run's object with what is remembered of the run. `asked`: what its autoscaler asks for."""

    shape: Shape
    leaving: bool
    entry: RunEntry
    asked: Asked | None = None

    @property
    def least(self) -> int:
        """The least number of workers with which the run is at work."""
        return self.shape.workers if self.entry.min_workers is None else self.entry.min_workers

    @property
    def is_removed(self) -> bool:
        """Whether it, or its namespace, is being deleted."""
        return is_deleting(self.shape.body) or self.leaving


def _phase(workload: _Workload, pods: Sequence[Pod], ends: Endings) -> RunPhase:
    shape = workload.shape
    live = any(pod.live for pod in pods) or shape.pods_left > 0
    # A removed namespace kills pods before it removes their Job, which then looks as if it had failed by itself.
    outcome = _outcome(shape, ends)
    if outcome is not None and not (workload.is_removed and outcome is RunPhase.FAILED):
        return RunPhase.STOPPING if live else outcome
    if workload.is_removed:
        return RunPhase.STOPPING
    if shape.suspended:
        return RunPhase.QUEUED if not live and shape.is_at_rest else RunPhase.STOPPING
    if ends.ends_as is not None:
        return RunPhase.STOPPING
    workers = [pod for pod in pods if not pod.helper]
    done = [pod for pod in workers if pod.running or (pod.succeeded and shape.ends_by_pods)]
    at_work = len(done) + len(ends.workers - {pod.index for pod in done})
    # An elastic run is at work while it grows. But as long as a pod has no node, it may still go to any. An evicted pod
    # leaves its place open, though its node may never end it.
    placed = sum(pod.node is not None and not pod.evicted for pod in workers) >= shape.workers
    return RunPhase.RUNNING if at_work >= (workload.least if placed else shape.workers) else RunPhase.STARTING


def _unreadable_run(key: RunKey, pods: Sequence[Pod]) -> Run:
    """Stands in for a run whose object can't be read: it holds what its pods hold, and is left as it is."""
    phase = RunPhase.RUNNING if any(pod.live for pod in pods) else RunPhase.QUEUED
    charge = charge_by_pods(pods)
    return Run(
        job=key[0],
        digest=key[1],
        phase=phase,
        placement=held_places(phase, None, whole_crew(charge, pods), None).placement,
        gpu_milli=charge.gpu_milli,
        cpu_milli=charge.cpu_milli,
        mem_bytes=charge.mem_bytes,
    )


def _observe_run(key: RunKey, workload: _Workload, named: Sequence[Pod]) -> Run:
    """Observe a run by the pods that were made for it. `named` may include others that only name its object."""
    shape, entry = workload.shape, workload.entry
    ends = shape.endings(named)
    pods = [pod for pod in named if pod.run is not None]
    phase = _phase(workload, pods, ends)
    pods = [pod for pod in pods if not pod.helper]
    ends_as = _ends_as(workload, phase, ends)
    started = None if shape.suspended else _started_at_ms(workload, pods)
    record = record_of(entry, shape.body, phase, started, workload.asked)
    charge = entry.charge or (charge_by_pods(pods) if pods else _charge_of(shape.asks))
    planned = entry.started_with if phase in ACTIVE and not entry.is_let_go else entry.placement
    if phase is RunPhase.STOPPING:
        planned = entry.started_with or planned
    crew = _crew(workload, phase, charge, planned, pods, ends)
    held = held_places(phase, planned, crew, None if ends.ends_as is not None else _unseen(workload, pods))
    said_idle = decode_instant(annotations_of(shape.body).get(names.IDLE_SINCE_ANNOTATION))
    idle = _idle_since(pods) if said_idle is None else said_idle
    return Run(
        job=key[0],
        digest=key[1],
        phase=phase,
        placement=held.placement,
        gpu_milli=charge.gpu_milli,
        cpu_milli=charge.cpu_milli,
        mem_bytes=charge.mem_bytes,
        queued_at_ms=record.queued_at_ms,
        started_at_ms=started,
        finished_at_ms=shape.ended_at_ms if phase.final else None,
        ran_ms=record.ran_ms,
        starts=record.starts,
        reason=_reason(entry, phase),
        paused_for=record.paused_for,
        idle_since_ms=None if idle is None or started is None else max(idle, started),
        checkpointed_at_ms=max((pod.checkpointed_at_ms for pod in pods if pod.checkpointed_at_ms), default=None),
        unbound=unbound_nodes(held, pods, ends.workers) if phase is RunPhase.STARTING else (),
        unstarted=phase is RunPhase.STARTING and not any(pod.bound for pod in pods),
        reserved=None if workload.is_removed else _reserved(entry, phase, ends_as),
        leaving=crew.leaving,
        made_with=crew.made_with,
        ended=held.ended,
        ends_as=ends_as,
        failed_starts=record.failed_starts,
        starting_ms=record.starting_ms,
        asked_workers=_asked_workers(workload, phase, held.placement),
        let_go_at_ms=entry.let_go_at_ms if entry.is_let_go and phase in ACTIVE else None,
        begun=_has_begun(workload, pods) if phase is RunPhase.STARTING else phase is RunPhase.RUNNING,
        problem=_problem(shape, phase, pods),
        unready_since_ms=_unready_since_ms(phase, pods),
    )


def _asked_workers(workload: _Workload, phase: RunPhase, placement: Placement | None) -> int | None:
    has = len(placement.workers) if placement is not None else 0
    return asked_of_run(workload.asked, has if phase in ACTIVE else None, is_let_go=workload.entry.is_let_go)


def _has_begun(workload: _Workload, pods: Sequence[Pod]) -> bool | None:
    """Whether all workers have run, even if not all do now: one that failed, or was deleted, may be created again.

    A start that takes long is on record. If it is not on record, a pod that was created later replaces one that has
    run. None if that is not known because there is no pod: an evicted pod is replaced only after some seconds, and a
    Job may report nothing of it.

    Security: a tenant can delete pods of a start so that it counts as begun. It then keeps GPUs that count for its
    project, as with a job that sleeps.
    """
    shape, entry = workload.shape, workload.entry
    since_ms = entry.let_go_at_ms if entry.record.starting_ms != NOT_YET else None
    if shape.has_restarted:
        return True
    if not pods and since_ms is not None:
        return True if shape.has_lost_pods else None
    late_ms = None if since_ms is None else since_ms + SLOW_MS
    ran = [pod for pod in pods if pod.has_run or (late_ms is not None and (pod.made_at_ms or 0) > late_ms)]
    return max(len({pod.index for pod in ran}), sum(pod.live for pod in ran)) >= workload.least


def _problem(shape: Shape, phase: RunPhase, pods: Sequence[Pod]) -> PodProblem | None:
    """The worst problem of a run's pods: of those that should run; if there is none, of those that ended.

    If they have none, the problem is a worker's pod that is being deleted: no other is created before it has ended.
    """
    if phase in {RunPhase.QUEUED, RunPhase.STOPPING, RunPhase.SUCCEEDED}:
        return None
    if not pods:
        return of_refused_pods(shape.body) if phase is RunPhase.STARTING else None
    alive = [pod for pod in pods if pod.live and not pod.leaving]
    found = worst(pod.problem for pod in alive or (pod for pod in pods if not pod.live))
    if found is not None or phase is not RunPhase.STARTING or len(alive) >= shape.workers:
        return found
    for pod in pods:
        if pod.live and pod.leaving and (not shape.by_index or pod.index < shape.workers):
            return PodProblem(reason=TERMINATING, message="deleted, but not ended", pod=pod.ref.name)
    return None


def _unready_since_ms(phase: RunPhase, pods: Sequence[Pod]) -> Instant | None:
    """Since when the pod that is unready for the longest is not ready, for a run that is at work."""
    if phase is not RunPhase.RUNNING:
        return None
    return min((pod.unready_since_ms for pod in pods if pod.unready_since_ms and not pod.leaving), default=None)


def _reserved(entry: RunEntry, phase: RunPhase, ends_as: RunPhase | None) -> Placement | None:
    """Where a stopping run goes on, or a running one has more workers."""
    if phase is RunPhase.STOPPING:
        return entry.placement if ends_as is None else None
    return entry.reserved if phase in ACTIVE and entry.is_let_go else None


def _ends_as(workload: _Workload, phase: RunPhase, ends: Endings) -> RunPhase | None:
    """How a stopping run will end, if that is certain: by its object's conditions, else by its pods' ends."""
    if phase is not RunPhase.STOPPING or workload.is_removed:
        return None
    return _outcome(workload.shape, ends) or (None if workload.shape.suspended else ends.ends_as)


def _outcome(shape: Shape, ends: Endings) -> RunPhase | None:
    """The final phase in its status; a failure after its successPolicy was met counts as success."""
    return RunPhase.SUCCEEDED if shape.outcome is RunPhase.FAILED and ends.is_policy_met else shape.outcome


def _started_at_ms(workload: _Workload, pods: Sequence[Pod]) -> Instant | None:
    """Since when the run runs, by its object and its pods, if that time can result from its release.

    A tenant may suspend and resume its run's object, or remove its pods; that does not make the run younger.
    """
    shown = instant(workload.shape.body, "status", "startTime") or _first_start(pods)
    let_go_at_ms = workload.entry.let_go_at_ms if workload.entry.is_let_go else None
    if shown is None or let_go_at_ms is None or shown <= let_go_at_ms + _TO_START_MS:
        return shown
    return let_go_at_ms


def _reason(entry: RunEntry, phase: RunPhase) -> Reason | None:
    """The recorded reason: why the run was started, stopped or given a place. It is not the reason why the run waits
    now."""
    waits = phase is RunPhase.QUEUED and entry.placement is None
    return None if waits and entry.uid and not entry.record.failed_starts else entry.reason


def _charge_of(asks: Requests) -> Charge:
    """What a worker is charged, as far as that is a number of whole GPUs."""
    return Charge(gpu_milli=WHOLE_GPU * asks.gpus, cpu_milli=asks.cpu_milli, mem_bytes=asks.mem_bytes)


def _crew(  # noqa: PLR0913, PLR0917 - what is known of the run
    workload: _Workload, phase: RunPhase, charge: Charge, planned: Placement | None, pods: Sequence[Pod], ends: Endings
) -> Crew:
    """Which pods the run keeps. Ended workers of an elastic run keep their places, as its workers are identified by
    number."""
    if workload.entry.min_workers is None or phase not in ACTIVE:
        return whole_crew(charge, pods, ends.workers)
    return elastic_crew(charge, pods, planned, workload.entry.started_with, by_index=workload.shape.by_index)


def _unseen(workload: _Workload, pods: Sequence[Pod]) -> Placement | None:
    """The places that the run's pods were made with, if its status has more pods than those seen; else None."""
    return None if workload.shape.pods_left <= sum(pod.live for pod in pods) else workload.entry.started_with


def _orphaned(key: RunKey, entry: RunEntry | None, pods: Sequence[Pod]) -> Run:
    charge = (entry.charge if entry else None) or charge_by_pods(pods)
    started_with = entry.started_with if entry else None
    return Run(
        job=key[0],
        digest=key[1],
        phase=RunPhase.STOPPING,
        placement=held_places(RunPhase.STOPPING, started_with, whole_crew(charge, pods), None).placement,
        gpu_milli=charge.gpu_milli,
        cpu_milli=charge.cpu_milli,
        mem_bytes=charge.mem_bytes,
        queued_at_ms=_first_start(pods) or 0,
    )


def _first_start(pods: Iterable[Pod]) -> Instant | None:
    return min((pod.started_at_ms for pod in pods if pod.live and pod.started_at_ms is not None), default=None)


def _idle_since(pods: Iterable[Pod]) -> Instant | None:
    """Since when a run is idle: since its last worker is idle. One busy worker keeps it busy."""
    since = [pod.idle_since_ms for pod in pods if pod.live]
    known = [at_ms for at_ms in since if at_ms is not None]
    return max(known) if known and len(known) == len(since) else None
