"""Jobs, Deployments and their pods -> runs, with the phase each is in and what it holds.

What pods show is the truth: a worker is on the node its pod is bound to, whatever the placement annotation says. The
devices come from the pod's claims where there are any, else from the placement it was started with.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gpuctl.k8s import names
from gpuctl.k8s.annotations import Charge, decode_charge, decode_instant, decode_placement, decode_reason, decode_record
from gpuctl.k8s.objects import annotations_of, condition, flag, instant, is_deleting, mapping, number
from gpuctl.model.decision import Placement, RunRecord, WorkerPlacement
from gpuctl.model.ids import NodeName, RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.state import Body, Run, RunPhase
from gpuctl.model.units import Instant
from gpuctl.observe.pods import Pod
from gpuctl.observe.roster import Workloads

_SUCCEEDED = ("Complete", "SuccessCriteriaMet")
_FAILED = ("Failed", "FailureTarget")
"""Either way the second is set when the outcome is certain, the first when the last pod is gone."""


def observe_runs(
    workloads: Workloads, pods: Iterable[Pod], leaving_namespaces: frozenset[str], known: Sweep[RunKey, Run]
) -> tuple[Run, ...]:
    """All runs by job and digest. Pods that outlive their Job or Deployment are a run that stops.

    Of `pods` only those of runs matter.
    """
    crews: dict[tuple[str, RunKey], list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.run is not None:
            crews[pod.ref.namespace, pod.run].append(pod)
    keys, bodies, refs = workloads.runs, workloads.bodies, workloads.refs
    own, orphans = [_NOBODY] * len(keys), dict[tuple[str, RunKey], list[Pod]]()
    for (namespace, run), crew in crews.items():
        place = workloads.places.get(run)
        if place is not None and refs[place].namespace == namespace:
            own[place] = _in_order(crew)
        elif place is None and any(pod.live for pod in crew):
            orphans[namespace, run] = crew
    leaving = [False] * len(keys)
    if leaving_namespaces:
        leaving = [ref.namespace in leaving_namespaces for ref in refs]
    found = known.over(
        keys,
        [bodies, leaving, own],
        lambda place: _observe_run(keys[place], bodies[place], own[place], leaving=leaving[place]),
    )
    if not orphans:
        return tuple(found)
    runs = dict(zip(keys, found, strict=True))
    for where, run in sorted(orphans):
        runs[run] = _orphaned(run, _in_order(orphans[where, run]))
    return tuple(map(runs.__getitem__, sorted(runs)))


_NOBODY: tuple[Pod, ...] = ()


def _in_order(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=attrgetter("ref"))) if len(pods) > 1 else tuple(pods)


@dataclass(frozen=True, slots=True)
class _Workload:
    """A Job or a Deployment; both look the same from here on."""

    body: Body
    leaving: bool

    @property
    def is_job(self) -> bool:
        return self.body.get("kind") == "Job"

    @property
    def workers(self) -> int:
        return number(self.body, "spec", "parallelism" if self.is_job else "replicas", default=1)

    @property
    def least(self) -> int:
        """With how many of its workers it is at work."""
        least = annotations_of(self.body).get(names.MIN_WORKERS_ANNOTATION)
        return int(least) if isinstance(least, str) and least.isdecimal() else self.workers

    @property
    def suspended(self) -> bool:
        return flag(self.body, "spec", "suspend") if self.is_job else self.workers == 0

    @property
    def pods_left(self) -> int:
        """Pods its own status says there still are. Its pods and it are watched apart: it may know of some sooner."""
        left = ("active", "terminating") if self.is_job else ("replicas", "terminatingReplicas")
        return sum(number(self.body, "status", field) for field in left)

    @property
    def outcome(self) -> RunPhase | None:
        """The final phase its conditions state; certain even while pods are left."""
        if any(condition(self.body, kind) for kind in _SUCCEEDED):
            return RunPhase.SUCCEEDED
        failed = self._failed
        if not failed:
            return None
        return RunPhase.TIMED_OUT if failed.get("reason") == "DeadlineExceeded" else RunPhase.FAILED

    @property
    def ended_at_ms(self) -> Instant | None:
        """When it ended; None where its outcome is still open."""
        return instant(self.body, "status", "completionTime") or instant(self._failed, "lastTransitionTime")

    @property
    def _failed(self) -> Body:
        return next((found for kind in _FAILED if (found := condition(self.body, kind))), {})


def _phase(workload: _Workload, pods: Sequence[Pod]) -> RunPhase:
    live = any(pod.live for pod in pods) or workload.pods_left > 0
    removed = is_deleting(workload.body) or workload.leaving
    # A removed namespace kills pods before it takes their Job, which then looks as if it had failed by itself.
    if workload.outcome is not None and not (removed and workload.outcome is RunPhase.FAILED):
        return RunPhase.STOPPING if live else workload.outcome
    if removed:
        return RunPhase.STOPPING
    if workload.suspended:
        stopped = not live and not instant(workload.body, "status", "startTime")
        return RunPhase.QUEUED if stopped else RunPhase.STOPPING
    at_work = sum(pod.running or (pod.succeeded and workload.is_job) for pod in pods)
    # An elastic run that grows is at work meanwhile; but as long as a pod has no node, it may still go to any.
    placed = sum(pod.node is not None for pod in pods) >= workload.workers
    return RunPhase.RUNNING if at_work >= (workload.least if placed else workload.workers) else RunPhase.STARTING


def _observe_run(key: RunKey, body: Body, pods: Sequence[Pod], *, leaving: bool) -> Run:
    workload, notes = _Workload(body=body, leaving=leaving), annotations_of(body)
    phase = _phase(workload, pods)
    created = instant(body, "metadata", "creationTimestamp") or 0
    record = decode_record(notes, created)
    annotated = decode_placement(notes.get(names.PLACEMENT_ANNOTATION))
    charge = decode_charge(notes.get(names.CHARGE_ANNOTATION)) or _charge_of(pods)
    crew = _crew(workload, phase, annotated, pods)
    placement = _placement(phase, annotated, crew.staying, unseen=_unseen(workload, pods), by_index=crew.by_index)
    said_idle = decode_instant(notes.get(names.IDLE_SINCE_ANNOTATION))
    idle = _idle_since(pods) if said_idle is None else said_idle
    started = None if workload.suspended else instant(body, "status", "startTime") or _first_start(pods)
    return Run(
        job=key[0],
        digest=key[1],
        phase=phase,
        placement=placement,
        gpu_milli=charge.gpu_milli,
        cpu_milli=charge.cpu_milli,
        mem_bytes=charge.mem_bytes,
        queued_at_ms=record.queued_at_ms,
        started_at_ms=started,
        finished_at_ms=workload.ended_at_ms if phase.final else None,
        ran_ms=record.ran_ms,
        starts=record.starts,
        reason=decode_reason(notes.get(names.REASON_ANNOTATION)),
        paused_for=record.paused_for,
        idle_since_ms=None if idle is None or started is None else max(idle, started),
        unbound=_unbound(placement, pods) if phase is RunPhase.STARTING else (),
        unstarted=phase is RunPhase.STARTING and not any(pod.bound for pod in pods),
        reserved=annotated if phase is RunPhase.STOPPING else None,
        leaving=crew.leaving,
        made_with=crew.made_with,
    )


def _orphaned(key: RunKey, pods: Sequence[Pod]) -> Run:
    charge = _charge_of(pods)
    record = RunRecord(queued_at_ms=_first_start(pods) or 0)
    return Run(
        job=key[0],
        digest=key[1],
        phase=RunPhase.STOPPING,
        placement=_placement(RunPhase.STOPPING, None, pods),
        gpu_milli=charge.gpu_milli,
        cpu_milli=charge.cpu_milli,
        mem_bytes=charge.mem_bytes,
        queued_at_ms=record.queued_at_ms,
    )


def _charge_of(pods: Iterable[Pod]) -> Charge:
    """What pods say they are charged, or what they request: for runs whose own annotation is gone."""
    for pod in pods:
        if pod.charge is not None:
            return pod.charge
    for pod in pods:
        shares = [device.milli for device in pod.devices]
        gpu_milli = sum(shares) or 1000 * pod.requests.gpus
        return Charge(gpu_milli=gpu_milli, cpu_milli=pod.requests.cpu_milli, mem_bytes=pod.requests.mem_bytes)
    return Charge()


def _first_start(pods: Iterable[Pod]) -> Instant | None:
    return min((pod.started_at_ms for pod in pods if pod.live and pod.started_at_ms is not None), default=None)


def _idle_since(pods: Iterable[Pod]) -> Instant | None:
    """A run is idle since its last worker is; one worker that is not keeps it busy."""
    since = [pod.idle_since_ms for pod in pods if pod.live]
    known = [at_ms for at_ms in since if at_ms is not None]
    return max(known) if known and len(known) == len(since) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crew:
    """A run's pods: those it keeps, and of an elastic one the places of those it has given up."""

    staying: Sequence[Pod]
    leaving: Placement | None = None
    made_with: Placement | None = None
    by_index: bool = False


def _crew(workload: _Workload, phase: RunPhase, annotated: Placement | None, pods: Sequence[Pod]) -> _Crew:
    """Who stays of an elastic run is told by its placement: its Job drops the highest indexes first."""
    elastic = names.MIN_WORKERS_ANNOTATION in annotations_of(workload.body)
    if not elastic or phase not in (RunPhase.STARTING, RunPhase.RUNNING):
        return _Crew(staying=pods)
    made_with = _made_with(workload)
    if annotated is None or not workload.is_job:
        return _Crew(staying=pods, made_with=made_with)
    staying = [pod for pod in pods if pod.index < len(annotated.workers)]
    going = [pod for pod in pods if pod.index >= len(annotated.workers) and pod.live and pod.node is not None]
    rest = list(made_with.workers) if made_with else []
    for worker in annotated.workers:
        if worker in rest:
            rest.remove(worker)
    left = Placement(workers=_meet(tuple(rest), sorted(going, key=lambda pod: (pod.index, pod.ref)), keep_open=False))
    return _Crew(staying=staying, leaving=left if left.workers else None, made_with=made_with, by_index=True)


def _made_with(workload: _Workload) -> Placement | None:
    """The placement that the run's pods are made with."""
    template = mapping(workload.body, "spec", "template")
    return decode_placement(annotations_of(template).get(names.PLACEMENT_ANNOTATION))


def _unbound(placement: Placement | None, pods: Iterable[Pod]) -> tuple[NodeName, ...]:
    """Nodes at which places are still without a pod; a worker that succeeded has had its own."""
    nodes = [worker.node for worker in placement.workers] if placement else []
    bound = [pod.node for pod in pods if pod.bound and pod.node and (pod.live or pod.succeeded)]
    return tuple((Counter(nodes) - Counter(bound)).elements()) if len(bound) < len(nodes) else ()


def _unseen(workload: _Workload, pods: Sequence[Pod]) -> Placement | None:
    """Where pods are that are left by its status but not among those seen: the places its pods were made with."""
    if workload.pods_left <= sum(pod.live for pod in pods):
        return None
    return _made_with(workload)


def _placement(
    phase: RunPhase,
    annotated: Placement | None,
    pods: Sequence[Pod],
    unseen: Placement | None = None,
    *,
    by_index: bool = False,
) -> Placement | None:
    """What the run holds: nothing once final, its pods' places while it stops, else also those still to be taken.

    `unseen`: the places of its pods, of which not all are seen yet. `by_index`: in the order of the workers' indexes.
    """
    if phase.final:
        return None
    if phase is RunPhase.QUEUED:
        return annotated
    bound = sorted((pod for pod in pods if pod.live and pod.node is not None), key=lambda pod: (pod.index, pod.ref))
    stopping = phase is RunPhase.STOPPING
    started_with = next((pod.placement for pod in bound if pod.placement is not None), None)
    planned = (unseen or started_with or annotated) if stopping else (annotated or started_with)
    keep_open = not stopping or unseen is not None
    places = _meet(planned.workers if planned else (), bound, keep_open=keep_open, by_index=by_index)
    return Placement(workers=places) if places else None


def _meet(
    planned: tuple[WorkerPlacement, ...], bound: Sequence[Pod], *, keep_open: bool, by_index: bool = False
) -> tuple[WorkerPlacement, ...]:
    """Pods and planned places matched: first by node, so that workers dealt out in another order change nothing.

    `keep_open`: planned places no pod has taken yet are held too. `by_index`: a place stands where its pod's index is.
    """
    open_places = list(range(len(planned)))
    taken: dict[int, Pod] = {}
    strays: list[Pod] = []
    for pod in bound:
        same_node = [place for place in open_places if planned[place].node == pod.node]
        if not same_node:
            strays.append(pod)
            continue
        place = pod.index if pod.index in same_node else same_node[0]
        open_places.remove(place)
        taken[place] = pod
    extra: list[WorkerPlacement] = []
    for pod in strays:
        if open_places:
            taken[open_places.pop(0)] = pod
        else:
            extra.append(_place_of(pod, WorkerPlacement(node=NodeName(""))))
    met = {
        place: _place_of(taken[place], worker) if place in taken else worker
        for place, worker in enumerate(planned)
        if place in taken or keep_open
    }
    order = _by_index(met, taken) if by_index else met
    return (*(met[place] for place in order), *extra)


def _by_index(met: Mapping[int, WorkerPlacement], taken: Mapping[int, Pod]) -> list[int]:
    """The places in the order of the indexes of the pods in them; places without a pod fill what is left."""
    at = {pod.index: place for place, pod in taken.items()}
    waiting = iter([place for place in met if place not in taken])
    last = max([len(met) - 1, *at])
    found = (at[index] if index in at else next(waiting, None) for index in range(last + 1))
    return [place for place in found if place is not None]


def _place_of(pod: Pod, planned: WorkerPlacement) -> WorkerPlacement:
    own = sorted((device.gpu, device.uuid) for device in pod.devices if device.node == pod.node)
    gpus = tuple(gpu for gpu, _ in own) or planned.gpus
    uuids = tuple(uuid for _, uuid in own if uuid)
    if not uuids and gpus == planned.gpus:
        uuids = planned.uuids
    return WorkerPlacement(node=pod.node or NodeName(""), gpus=gpus, uuids=uuids)
