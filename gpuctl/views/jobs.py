"""Jobs as people see them: one state, one reason, one placement, from observed objects and recorded decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuctl.diag.wording import reason_text
from gpuctl.engine import reasons
from gpuctl.k8s import kinds, names, objects
from gpuctl.k8s.annotations import decode_charge, decode_values
from gpuctl.k8s.bounds import MOST_WORKERS, whole_number
from gpuctl.k8s.progress import decode_progress
from gpuctl.model.decision import Decision, Finished, JobState, Placement, Reason, Suspended
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.pod_problem import ENDED_BY_OTHERS
from gpuctl.model.state import Body, ClusterState, FinishedRun, Run, RunPhase
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.model.utilisation import RunUse
from gpuctl.views.restarts import pod_restarts, restarts_of

PHASE_STATES = {
    RunPhase.STARTING: JobState.STARTING,
    RunPhase.RUNNING: JobState.RUNNING,
    RunPhase.STOPPING: JobState.STOPPING,
    RunPhase.SUCCEEDED: JobState.SUCCEEDED,
    RunPhase.FAILED: JobState.FAILED,
    RunPhase.TIMED_OUT: JobState.TIMED_OUT,
}
HOLDING = frozenset({RunPhase.STARTING, RunPhase.RUNNING, RunPhase.STOPPING})
"""Phases in which a run holds its GPUs."""

_TO_RUN = frozenset({JobState.STARTING, JobState.RUNNING})

TYPE_NAMES = {"training": "Train", "interactive": "Interactive", "inference": "Inference"}
"""Job types as Run:ai lists them."""

PREEMPTIBLE_NAME = "Interactive-Preemptible"
_MOST_DIGITS = 10
_ENDED_PODS = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod of a job. `worker` is its index in a gang, else 0; `live`: it has not ended. `restarts`: how often its
    worker was started again before, as far as the pod says."""

    name: str
    phase: str
    node: str
    created_at_ms: Instant | None
    worker: int = 0
    live: bool = True
    restarts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A live job. `gpu_milli` is of all workers together; `nodes` are in worker order, each once.

    - `asked_workers`: the declared number; an elastic job that was scaled down has fewer `workers`.
    - `source`: FILE:LINE@COMMIT of its declaration.
    - `use`: how its GPUs are used, if that is measured.
    - `sweep` and `index`: the parts of its name, if it is one of a sweep; `values`: the variables that it alone has.
    - `restarts`: how often failed workers were started again, over all starts of the run.
    - `progress_ppm`: its own report of progress, in millionths; None if there is none.
    - `said`: the words of another engine that decides about it; not yet made printable.
    """

    id: JobId
    state: JobState
    type: str
    image: str
    ref: ObjectRef
    workers: int
    asked_workers: int
    gpu_milli: GpuMilli
    run: Run
    preemptible: bool = True
    urls: tuple[str, ...] = ()
    pods: tuple[PodView, ...] = field(default_factory=tuple)
    created_at_ms: Instant | None = None
    source: str = ""
    use: RunUse | None = None
    progress_ppm: int | None = None
    sweep: str = ""
    index: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    said: str = ""

    @property
    def why(self) -> str:
        """Why it runs or waits, in a sentence of the engine that decides about it; "-" if there is none."""
        return reason_text(self.reason) if self.reason is not None else self.said or "-"

    @property
    def created_ms(self) -> Instant:
        """When its object was created; if that can't be read, when it last started or began to wait."""
        return self.since_ms if self.created_at_ms is None else self.created_at_ms

    @property
    def placement(self) -> Placement | None:
        """The nodes and devices that it holds now."""
        return held_placement(self.run)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes that it runs on."""
        workers = self.placement.workers if self.placement else ()
        return tuple(dict.fromkeys(worker.node for worker in workers))

    @property
    def status(self) -> str:
        """Its state. While it should run and one of its pods can't, or once it has failed by something other than its
        own exit, the reason instead, as in `kubectl get pods`."""
        problem = self.run.problem
        if problem is None:
            return self.state.value
        is_told = self.state in _TO_RUN or (self.state is JobState.FAILED and problem.reason in ENDED_BY_OTHERS)
        return problem.status if is_told else self.state.value

    @property
    def reason(self) -> Reason | None:
        """The reason of the engine's last decision; None once it has ended by itself, which is no decision."""
        return None if self.state in {JobState.FAILED, JobState.SUCCEEDED} else self.run.reason

    @property
    def type_name(self) -> str:
        """Its type in Run:ai's words."""
        if self.type == "interactive" and self.preemptible:
            return PREEMPTIBLE_NAME
        return TYPE_NAMES.get(self.type, self.type)

    @property
    def since_ms(self) -> Instant:
        """When it last started, or last began to wait."""
        return self.run.queued_at_ms if self.run.started_at_ms is None else self.run.started_at_ms


def job_state(run: Run | None, finished: FinishedRun | None = None, decision: Decision | None = None) -> JobState:
    """The one state of a job's current run. `finished`: the ledger's record of its end; `decision`: the engine's last
    one."""
    if isinstance(decision, Finished):
        return decision.state
    if finished is not None:
        return JobState(finished.state)
    if run is not None and run.phase is not RunPhase.QUEUED:
        return PHASE_STATES[run.phase]
    if decision is None and run is not None and run.asked_workers == 0:
        return JobState.SCALED_TO_ZERO
    if isinstance(decision, Suspended) and decision.reason.code == reasons.NO_LOAD:
        return JobState.SCALED_TO_ZERO
    if isinstance(decision, Suspended) or (decision is None and run is not None and _was_suspended(run.reason)):
        return JobState.SUSPENDED
    was_paused = run is not None and run.starts and run.asked_workers is None
    return JobState.PREEMPTED if was_paused else JobState.PENDING


def held_placement(run: Run | None) -> Placement | None:
    """The placement that a run holds now; None for one that only has a reservation."""
    return run.placement if run is not None and run.phase in HOLDING else None


def held_milli(run: Run) -> GpuMilli:
    """The GPUs that a run holds now, of all its workers."""
    placement = held_placement(run)
    return run.gpu_milli * (len(placement.workers) - len(run.ended)) if placement else 0


def job_views(state: ClusterState, known: Sweep[RunKey, JobView] | None = None) -> tuple[JobView, ...]:
    """Every live run, newest start first, then by name.

    `known`: views of an earlier call; those of unchanged objects are reused. With it, one changed object of 10,000 jobs
    costs the dashboard 0.2 s of CPU instead of 0.7.
    """
    workloads = {own.run: (ref, state.live[ref]) for ref, own in state.own.items()}
    found = _urls(state.live)
    pods, progress = _pods(state), _progress(state)
    runs = [run for run in state.runs if (run.job, run.digest) in workloads]
    keys = [(run.job, run.digest) for run in runs]
    finished = [_finished(state, run) for run in runs]
    bodies = [workloads[key] for key in keys]
    urls = [found.get((ref.namespace, run.job), ()) for run, (ref, _) in zip(runs, bodies, strict=True)]

    def make(at: int) -> JobView:
        run, key = runs[at], keys[at]
        view = _view(finished[at], run, *bodies[at])
        mine = pods.get(key, ())
        restarts = restarts_of(bodies[at][1], [pod.restarts or 0 for pod in mine if pod.live])
        return replace(view, urls=urls[at], pods=mine, progress_ppm=progress.get(key), restarts=restarts)

    columns: list[list[object]] = [
        [*runs],
        [run.problem for run in runs],  # two runs that differ only by it are equal
        [*finished],
        [ref for ref, _ in bodies],
        [body for _, body in bodies],
        [*urls],
        [pods.get(key, ()) for key in keys],
        [progress.get(key) for key in keys],
    ]
    views = (known or Sweep[RunKey, JobView]()).over(keys, columns, make)
    return tuple(sorted(views, key=lambda view: (-view.since_ms, view.id)))


def _view(finished: FinishedRun | None, run: Run, ref: ObjectRef, body: Body) -> JobView:
    spec = objects.mapping(body, "spec")
    containers = tuple(objects.items(spec, "template", "spec", "containers"))
    image = next((str(container.get("image", "")) for container in containers), "")
    placed = len(run.placement.workers) if run.placement else 0
    workers = placed or objects.number(spec, "parallelism", default=objects.number(spec, "replicas", default=1)) or 1
    return JobView(
        id=run.job,
        state=job_state(run, finished),
        type=str(objects.labels_of(body).get(names.TYPE_LABEL, "")),
        image=image,
        ref=ref,
        workers=workers,
        asked_workers=max(workers, _asked_workers(body, containers)),
        gpu_milli=_worker_milli(run, body) * workers,
        run=run,
        preemptible=_preemptible(body),
        created_at_ms=objects.instant(body, "metadata", "creationTimestamp"),
        source=str(objects.annotations_of(body).get(names.SOURCE_ANNOTATION, "")),
        sweep=str(objects.labels_of(body).get(names.SWEEP_LABEL, "")),
        index=str(objects.labels_of(body).get(names.INDEX_LABEL, "")),
        values=decode_values(objects.annotations_of(body).get(names.VALUES_ANNOTATION)),
    )


def _worker_milli(run: Run, body: Body) -> GpuMilli:
    """The GPUs of one worker. Until a run is first released only its object has them: good enough to show, never to
    decide by."""
    if run.gpu_milli or run.phase is not RunPhase.QUEUED:
        return run.gpu_milli
    said = decode_charge(objects.annotations_of(body).get(names.CHARGE_ANNOTATION))
    return 0 if said is None else said.gpu_milli


def _asked_workers(body: Body, containers: Sequence[Body]) -> int:
    """The number of workers that an elastic run's pods are given as MAX_WORKERS; 0 for other runs."""
    elastic = names.MIN_WORKERS_ANNOTATION in objects.annotations_of(body)
    told = (each for container in containers for each in objects.items(container, "env"))
    most = next((str(each.get("value")) for each in told if each.get("name") == names.MAX_WORKERS_VARIABLE), "")
    return (whole_number(most, MOST_WORKERS) or 0) if elastic else 0


def _preemptible(body: Body) -> bool:
    """Whether the run is preemptible, by its annotation, else by its type."""
    said = objects.text(objects.annotations_of(body), names.PREEMPTIBLE_ANNOTATION)
    return said == "true" if said else objects.labels_of(body).get(names.TYPE_LABEL) == "training"


def _finished(state: ClusterState, run: Run) -> FinishedRun | None:
    ledger = state.ledgers.get(run.job.project)
    return ledger.finished.get((run.job, run.digest)) if ledger else None


def _was_suspended(reason: Reason | None) -> bool:
    return reason is not None and reason == reasons.SUSPENDED


def _urls(live: Mapping[ObjectRef, Body]) -> dict[tuple[str, JobId], tuple[str, ...]]:
    """The addresses that Ingress objects give to jobs, by namespace: in another one, a tenant may write any label."""
    urls: dict[tuple[str, JobId], tuple[str, ...]] = {}
    found = sorted(each for each in live.items() if (each[0].api_version, each[0].kind) == kinds.INGRESS)
    for ref, body in found:
        labels = objects.labels_of(body)
        if names.JOB_LABEL not in labels:
            continue
        job = JobId(ProjectName(str(labels.get(names.PROJECT_LABEL, ""))), str(labels[names.JOB_LABEL]))
        urls[ref.namespace, job] = (*urls.get((ref.namespace, job), ()), *_ingress_urls(body))
    return urls


def _ingress_urls(body: Body) -> Iterable[str]:
    """The URLs of an Ingress: a rule's own host, else the declared one, else the load balancer's address."""
    balancers = objects.items(body, "status", "loadBalancer", "ingress")
    given = [objects.text(entry, "hostname") or objects.text(entry, "ip") for entry in balancers]
    declared = objects.text(objects.annotations_of(body), names.HOST_ANNOTATION)
    anywhere = next((host for host in (declared, *given) if host), "<pending>")
    for rule in objects.items(body, "spec", "rules"):
        for path in objects.items(rule, "http", "paths"):
            yield f"https://{objects.text(rule, 'host') or anywhere}{objects.text(path, 'path')}"


def _pods(state: ClusterState) -> dict[RunKey, tuple[PodView, ...]]:
    pods: dict[RunKey, tuple[PodView, ...]] = {}
    for ref, run in sorted(state.pods.items()):
        body = state.live[ref]
        phase = "Terminating" if objects.is_deleting(body) else objects.text(body, "status", "phase") or "Pending"
        pod = PodView(
            name=ref.name,
            phase=phase,
            node=objects.text(body, "spec", "nodeName"),
            created_at_ms=objects.instant(body, "metadata", "creationTimestamp"),
            worker=_worker(body),
            live=objects.text(body, "status", "phase") not in _ENDED_PODS,
            restarts=pod_restarts(body),
        )
        pods[run] = (*pods.get(run, ()), pod)
    return pods


def _progress(state: ClusterState) -> dict[RunKey, int]:
    """The progress in live pods: of several pods that of the lowest index, then of the first by name."""
    said: dict[RunKey, tuple[int, ObjectRef, int]] = {}
    for ref, run in state.pods.items():
        body = state.live[ref]
        ppm = decode_progress(objects.annotations_of(body).get(names.PROGRESS_ANNOTATION))
        if ppm is not None and objects.text(body, "status", "phase") not in _ENDED_PODS:
            said[run] = min(said.get(run, (_worker(body), ref, ppm)), (_worker(body), ref, ppm))
    return {run: ppm for run, (_, _, ppm) in said.items()}


def _worker(body: Body) -> int:
    index = objects.labels_of(body).get(names.WORKER_INDEX_LABEL)
    return whole_number(index, MOST_WORKERS) or 0
