"""One pod: its run, its node, whether it still holds anything, and how much.

A pod holds what it was given until it is terminal or gone; a pod that is being deleted still holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.annotations import decode_instant
from gpuctl.k8s.bounds import MOST_WORKERS, whole_number
from gpuctl.k8s.objects import (
    annotations_of,
    condition,
    instant,
    is_deleting,
    items,
    labels_of,
    mapping,
    text,
    uid,
)
from gpuctl.k8s.requests import Requests, requests_of
from gpuctl.k8s.workload_kinds import row_of, sum_of
from gpuctl.k8s.workload_table import Rows
from gpuctl.model.ids import NodeName, ObjectRef, RunKey
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import Body, RunEntry
from gpuctl.model.units import WHOLE_GPU, Instant
from gpuctl.observe.devices import TERMINAL_PHASES, HeldDevice
from gpuctl.observe.problems import DISRUPTED, problem_of, unready_since_ms
from gpuctl.observe.unreadable import Unreadable, read

_BY_TAINT = "DeletionByTaintManager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices that a pod, or a template of pods, asks for: GPUs and slices by the device plugin, and claims.

    `beside`: what all pods without GPUs of the same object may request together.
    """

    gpus: int = 0
    slices: Mapping[str, int] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    beside: Requests = field(default_factory=Requests)

    def covers(self, asked: Devices) -> bool:
        """Whether these devices include everything that is asked for."""
        slices = all(self.slices.get(profile, 0) >= count for profile, count in asked.slices.items())
        return self.gpus >= asked.gpus and slices and self.claims >= asked.claims


def template_devices(workload: Body, rows: Rows) -> Devices:
    """The devices that each worker of a workload asks for."""
    row = row_of(workload, rows)
    if row is not None:
        total = sum_of(row, mapping(workload, "spec"))
        return Devices(gpus=total.worker.gpus, beside=total.beside)
    spec = mapping(workload, "spec", "template", "spec")
    asks = requests_of(spec)
    return Devices(gpus=asks.gpus, slices=asks.slices, claims=claims_of(spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. `run` None: foreign. `controller`: the run whose object the pod names as its controller, whether or not
    that object made it.

    - `node`: where the pod is `bound`, or will be: its devices are given earlier, and both are watched separately.
    - `helper`: it has no GPU and runs beside workers that have.
    - `leaving`: it is being deleted. `disrupted`: the cluster caused its end. `evicted`: it is being deleted because of
      a
      taint of its node.
    - `claims`: the templates of its claims for devices.
    - `problem`: why it does not run. `unready_since_ms`: since when it is not ready, though it runs.
    - `running`: it is `up`, and not being deleted.
    """

    ref: ObjectRef
    uid: str = ""
    run: RunKey | None
    controller: RunKey | None = None
    node: NodeName | None
    bound: bool
    live: bool
    running: bool
    up: bool = False
    succeeded: bool
    index: int
    requests: Requests
    claims: frozenset[str] = frozenset()
    made_at_ms: Instant | None = None
    started_at_ms: Instant | None = None
    idle_since_ms: Instant | None = None
    checkpointed_at_ms: Instant | None = None
    devices: tuple[HeldDevice, ...] = ()
    leaving: bool = False
    helper: bool = False
    disrupted: bool = False
    evicted: bool = False
    problem: PodProblem | None = None
    unready_since_ms: Instant | None = None

    @property
    def asks(self) -> Devices:
        """The devices that it asks for."""
        return Devices(gpus=self.requests.gpus, slices=self.requests.slices, claims=self.claims)

    @property
    def has_run(self) -> bool:
        """Whether one of its containers was started: not if a node refused the whole pod."""
        if self.live:
            return self.up
        return self.succeeded or self.problem is None or bool(self.problem.container)

    @property
    def failed(self) -> bool:
        """Whether it has ended without success."""
        return not self.live and not self.succeeded


def read_pod(
    ref: ObjectRef, body: Body, run: RunKey | None, devices: tuple[HeldDevice, ...], asked: Devices | None = None
) -> Pod:
    """A pod's facts. `run`: its run by its controller; `devices`: those of its claims.

    `asked`: the devices in the template of the run's object, if it exists. A live pod that asks for less was not made
    from that template: a tenant can write any owner on its own pod, but must not get a worker's GPUs for nothing. Such
    a pod is foreign, so it is charged for what it has and never counts as a worker.
    """
    phase = text(body, "status", "phase")
    notes, disrupted = annotations_of(body), condition(body, DISRUPTED)
    bound = text(body, "spec", "nodeName")
    node = bound or next((device.node for device in devices), "")
    index = labels_of(body).get(names.WORKER_INDEX_LABEL) or notes.get(names.WORKER_INDEX_LABEL)
    found = Pod(
        ref=ref,
        uid=uid(body),
        run=run,
        controller=run,
        node=NodeName(node) if node else None,
        bound=bool(bound),
        live=phase not in TERMINAL_PHASES,
        running=phase == "Running" and not is_deleting(body),
        up=phase == "Running",
        succeeded=phase == "Succeeded",
        index=whole_number(index, MOST_WORKERS) or 0,
        requests=requests_of(mapping(body, "spec")),
        claims=claims_of(mapping(body, "spec")),
        made_at_ms=instant(body, "metadata", "creationTimestamp"),
        started_at_ms=instant(body, "status", "startTime"),
        idle_since_ms=decode_instant(notes.get(names.IDLE_SINCE_ANNOTATION)),
        checkpointed_at_ms=decode_instant(notes.get(names.CHECKPOINTED_ANNOTATION)),
        devices=devices,
        leaving=is_deleting(body),
        disrupted=bool(disrupted),
        evicted=is_deleting(body) and text(disrupted, "reason") == _BY_TAINT,
        problem=problem_of(body),
        unready_since_ms=unready_since_ms(body),
    )
    if asked is None or found.asks.covers(asked):
        return found
    if asked.beside != Requests() and not (found.asks.gpus or found.asks.slices or found.claims):
        return replace(found, helper=True)
    return replace(found, run=None) if found.live else found


def without_strangers(pods: Sequence[Pod], asked: Mapping[RunKey | None, Devices]) -> list[Pod]:
    """The pods. Helpers of a run count as foreign if they request more than the run's helpers may together.

    A tenant can write any owner on its own pod. What helpers may request is charged to each worker of the run.
    """
    wanted: dict[RunKey | None, Requests] = {}
    for pod in pods:
        if pod.helper and pod.live:
            wanted[pod.run] = wanted.get(pod.run, Requests()).plus(pod.requests)
    over = {run for run, total in wanted.items() if not _is_within(total, asked[run].beside)}
    return [
        replace(pod, run=None, helper=False) if pod.helper and pod.live and pod.run in over else pod for pod in pods
    ]


def without_helpers(pods: list[Pod], orphaned: Collection[RunKey], entries: Mapping[RunKey, RunEntry]) -> list[Pod]:
    """The pods. Those without a device count as foreign if their run is orphaned and has GPUs on record.

    Only the template of its object, which is gone, could tell a helper from a worker. As a worker each would count for
    GPUs that nothing holds.
    """
    with_gpus = {run for run in orphaned if _has_gpus(entries.get(run))}
    if not with_gpus:
        return pods
    return [
        replace(pod, run=None, controller=None) if pod.run in with_gpus and pod.asks == _NOTHING else pod
        for pod in pods
    ]


_NOTHING = Devices()


def _has_gpus(entry: RunEntry | None) -> bool:
    return entry is not None and entry.charge is not None and entry.charge.gpu_milli >= WHOLE_GPU


def _is_within(total: Requests, bound: Requests) -> bool:
    return total.cpu_milli <= bound.cpu_milli and total.mem_bytes <= bound.mem_bytes


def unreadable_pod(ref: ObjectRef, body: Body) -> Pod:
    """Stands in for a pod that can't be read: a foreign pod, on its node until it is gone, with its requests."""
    requests = read(lambda: requests_of(mapping(body, "spec")), Requests)
    node = text(body, "spec", "nodeName")
    return Pod(
        ref=ref,
        run=None,
        node=NodeName(node) if node else None,
        bound=bool(node),
        live=True,
        running=False,
        succeeded=False,
        index=0,
        requests=requests.instead if isinstance(requests, Unreadable) else requests,
    )


def claims_of(spec: Mapping[str, Any]) -> frozenset[str]:
    """The templates of the claims that a pod asks for."""
    return frozenset(text(claim, "resourceClaimTemplateName") for claim in items(spec, "resourceClaims"))
