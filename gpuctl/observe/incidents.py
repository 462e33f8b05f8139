"""Why runs do not start, or are not ready, if no pod's status says so: read from the events of their objects.

Events are read only for runs that were released some seconds ago and do not run, and for running runs with a pod that
was not ready for a minute. A cluster without such runs is not asked. Security: a tenant may write events of its own
objects, so they decide nothing except how its own run's failure is called. Reasons must be in a list; messages are cut.

Source: the reasons in pkg/kubelet/events, pkg/controller/job and pkg/controller/volume/events, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import instant, items, mapping, text
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.pod_problem import FAILED_CREATE, NO_POD, PodProblem
from gpuctl.model.state import Body, ClusterState, Run, RunPhase
from gpuctl.model.turns import in_turns
from gpuctl.model.units import DurationMs, Instant
from gpuctl.observe.problems import UNSCHEDULABLE, one_line, unready_since_ms

ASK_AFTER_MS: DurationMs = 10_000
"""A run that starts within this time needs no explanation."""
READY_AFTER_MS: DurationMs = 60_000
"""A run whose pods are ready within this time needs none either. A container that may take longer has a `startup`
probe, and is not asked about before that has succeeded."""
MOST_RUNS = 200
"""The most runs whose events are read: projects take turns, and runs that were released first come first."""
_MOST_PODS, _MOST_CLAIMS = 2, 3
_SKEW_MS: DurationMs = 60_000
"""How far the clocks of a node and of gpuctl may be apart: older events belong to an earlier start."""
UNHEALTHY = "Unhealthy"
"""A container runs but its probe fails: a sidecar that the pod's start waits for, or any container that is not
ready."""
_OF_READINESS = "Readiness probe "
"""How the kubelet's message begins. Source: pkg/kubelet/prober, Kubernetes 1.36."""
_CONTAINER = re.compile(r"spec\.(containers|initContainers)\{([a-z0-9-]{1,63})\}")
_OF_CLAIMS = ("ProvisioningFailed", "FailedBinding")
REASONS = (
    FAILED_CREATE, *_OF_CLAIMS, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedPrepareDynamicResources",
    "FailedCreatePodSandBox", "NetworkNotReady", UNHEALTHY,
)  # fmt: skip
"""The reasons that are reported; of two events of one moment, the first in this list counts."""
_TIMES = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """A run that does not start, or is `unready`, and the objects whose events may say why.

    `since_ms`: when it was released, or when one of its pods stopped being ready.
    """

    run: RunKey
    since_ms: Instant
    objects: tuple[ObjectRef, ...]
    unready: bool = False


def unexplained_runs(state: ClusterState, now_ms: Instant) -> tuple[Unexplained, ...]:
    """The runs that should have started, where no pod's status says why they did not, the oldest of each project first;
    then the runs with a pod that is not ready, likewise.

    Cost: a look at each run; linear in pods only if there is such a run.
    """
    late = [run for run in state.runs if run.phase is RunPhase.STARTING and _is_unexplained(run, now_ms)]
    unready = [run for run in state.runs if run.unready_since_ms is not None and _is_unready(run, now_ms)]
    if not late and not unready:
        return ()
    due = [*sorted(late, key=_since_ms), *sorted(unready, key=_since_ms)]
    asked = in_turns(((run.job.project, run) for run in due), 1)[:MOST_RUNS]
    first = {(run.job, run.digest): run for run in asked}
    pods: dict[RunKey, list[ObjectRef]] = {key: [] for key in first}
    for ref, key in state.pods.items():
        if key in pods and _is_told_of(first[key], state.live[ref]):
            pods[key].append(ref)
    found = {own.run: ref for ref, own in state.own.items() if own.run in first}
    return tuple(
        Unexplained(
            run=key,
            since_ms=_since_ms(run),
            objects=_objects(run, found[key], state, sorted(pods[key])),
            unready=run.unready_since_ms is not None,
        )
        for key, run in first.items()
        if key in found
    )


def _is_unready(run: Run, now_ms: Instant) -> bool:
    return run.problem is None and now_ms - _since_ms(run) >= READY_AFTER_MS


def _is_told_of(run: Run, pod: Body) -> bool:
    """Whether events of a pod may say why its run does not start or is not ready."""
    if run.unready_since_ms is not None:
        return unready_since_ms(pod) is not None
    return text(pod, "status", "phase") == "Pending"


def _is_unexplained(run: Run, now_ms: Instant) -> bool:
    problem = run.problem
    if now_ms - _since_ms(run) < ASK_AFTER_MS or run.begun:
        return False
    if problem is None or problem.reason == NO_POD:
        return True
    return problem.reason == UNSCHEDULABLE and "persistentvolumeclaim" in problem.message.lower()


def _since_ms(run: Run) -> Instant:
    return run.unready_since_ms or run.let_go_at_ms or run.started_at_ms or 0


def _objects(run: Run, workload: ObjectRef, state: ClusterState, pods: list[ObjectRef]) -> tuple[ObjectRef, ...]:
    """Some pods of the run that are not ready; for a run that does not start, everything that its start depends on."""
    return tuple(pods[:_MOST_PODS] if run.unready_since_ms is not None else _of_a_start(workload, state, pods))


def _of_a_start(workload: ObjectRef, state: ClusterState, pods: list[ObjectRef]) -> Iterator[ObjectRef]:
    """The run's own object, some of its pods that do not run, and the claims that these wait for."""
    yield workload
    yield from pods[:_MOST_PODS]
    template = mapping(state.live[workload], "spec", "template", "spec")
    claims: list[str] = []
    for volume in items(template, "volumes"):
        claims.append(text(volume, "persistentVolumeClaim", "claimName"))
        if "ephemeral" in volume:
            claims += [f"{pod.name}-{text(volume, 'name')}" for pod in pods[:1]]
    for name in [name for name in claims if name][:_MOST_CLAIMS]:
        yield ObjectRef(*kinds.CLAIM, workload.namespace, name)


def problem_of_events(late: Unexplained, events: Iterable[Body]) -> PodProblem | None:
    """The problem in the newest event of the run's objects since it was released (for an unready run: about its
    readiness probe, since it is not ready); None if no event reports one."""
    told = [found for event in events if (found := _told(late, event)) is not None]
    return max(told, key=lambda each: each[0], default=(None, None))[1]


def _told(late: Unexplained, event: Body) -> tuple[tuple[Instant, int], PodProblem] | None:
    about, reason = mapping(event, "involvedObject"), text(event, "reason")
    kind, name = text(about, "kind"), text(about, "name")
    of_claim = kind == kinds.CLAIM[1]
    at_ms = next((at_ms for path in _TIMES if (at_ms := instant(event, *path)) is not None), 0)
    if reason not in REASONS or at_ms < late.since_ms - _SKEW_MS or of_claim != (reason in _OF_CLAIMS):
        return None
    if text(event, "reportingComponent") == names.REPORTER:
        return None  # gpuctl's own Event has the same reason, and no message of the server
    if late.unready and not (reason == UNHEALTHY and text(event, "message").startswith(_OF_READINESS)):
        return None
    if not any((kind, name) == (ref.kind, ref.name) for ref in late.objects):
        return None
    said = text(event, "message")
    container = _CONTAINER.fullmatch(text(about, "fieldPath")) if reason == UNHEALTHY else None
    problem = PodProblem(
        reason=reason,
        message=one_line(f"claim {name} is Pending: {said}" if of_claim else said),
        pod=name if kind == kinds.POD[1] else "",
        container="" if container is None else container[2],
        before=container is not None and container[1] == "initContainers" and not late.unready,
    )
    return (at_ms, -REASONS.index(reason)), problem


def with_problems(state: ClusterState, told: Mapping[RunKey, PodProblem]) -> ClusterState:
    """The state with these problems of runs; the same state if there are none."""
    if not told:
        return state
    runs = tuple(
        replace(run, problem=told[run.job, run.digest]) if (run.job, run.digest) in told else run for run in state.runs
    )
    return replace(state, runs=runs)
