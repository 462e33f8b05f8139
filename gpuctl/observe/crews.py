"""A run's pods and the places they were planned at, matched: where each worker is, and which places are still open.

What pods show is the truth: a worker is on the node its pod is bound to, whatever was planned. The devices come from
the pod's claims where there are any, else from the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Charge, RunPhase
from gpuctl.observe.charges import charged_devices
from gpuctl.observe.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """A run's pods: those it keeps, and of an elastic one the places of those it has given up.

    `charge` is that of each worker: a pod that holds more devices holds the rest for itself.
    """

    charge: Charge
    staying: Sequence[Pod]
    leaving: Placement | None = None
    made_with: Placement | None = None
    by_index: bool = False


def whole_crew(charge: Charge, pods: Sequence[Pod]) -> Crew:
    """A run that keeps all its pods."""
    return Crew(charge=charge, staying=pods)


def elastic_crew(
    charge: Charge, pods: Sequence[Pod], planned: Placement | None, made_with: Placement | None, *, is_job: bool
) -> Crew:
    """The pods that stay of an elastic run are told by its placement: its Job drops the highest indexes first."""
    if planned is None or not is_job:
        return Crew(charge=charge, staying=pods, made_with=made_with)
    staying = [pod for pod in pods if pod.index < len(planned.workers)]
    going = [pod for pod in pods if pod.index >= len(planned.workers) and pod.live and pod.node is not None]
    rest = list(made_with.workers) if made_with else []
    for worker in planned.workers:
        if worker in rest:
            rest.remove(worker)
    places = _meet(tuple(rest), sorted(going, key=_by_worker), charge, keep_open=False)
    left = Placement(workers=places) if places else None
    return Crew(charge=charge, staying=staying, leaving=left, made_with=made_with, by_index=True)


def unbound_nodes(placement: Placement | None, pods: Iterable[Pod]) -> tuple[NodeName, ...]:
    """Nodes at which places are still without a pod; a worker that succeeded has had its own."""
    nodes = [worker.node for worker in placement.workers] if placement else []
    bound = [pod.node for pod in pods if pod.bound and pod.node and (pod.live or pod.succeeded)]
    return tuple((Counter(nodes) - Counter(bound)).elements()) if len(bound) < len(nodes) else ()


def held_places(phase: RunPhase, planned: Placement | None, crew: Crew, unseen: Placement | None) -> Placement | None:
    """What the run holds: nothing once final, its pods' places while it stops, else also those still to be taken.

    `planned` is where it was let go, or the place that is reserved for it while it waits. `unseen`: the places of its
    pods, of which not all are seen yet.
    """
    if phase.final:
        return None
    if phase is RunPhase.QUEUED:
        return planned
    bound = sorted((pod for pod in crew.staying if pod.live and pod.node is not None), key=_by_worker)
    stopping = phase is RunPhase.STOPPING
    place = (unseen or planned) if stopping else planned
    keep_open = not stopping or unseen is not None
    places = _meet(place.workers if place else (), bound, crew.charge, keep_open=keep_open, by_index=crew.by_index)
    return Placement(workers=places) if places else None


def _by_worker(pod: Pod) -> tuple[object, ...]:
    return pod.index, pod.ref


def _meet(
    planned: tuple[WorkerPlacement, ...],
    bound: Sequence[Pod],
    charge: Charge,
    *,
    keep_open: bool,
    by_index: bool = False,
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
            extra.append(_place_of(pod, WorkerPlacement(node=NodeName("")), charge))
    met = {
        place: _place_of(taken[place], worker, charge) if place in taken else worker
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


def _place_of(pod: Pod, planned: WorkerPlacement, charge: Charge) -> WorkerPlacement:
    own = sorted((device.gpu, device.uuid) for device in charged_devices(pod, charge, planned.gpus))
    gpus = tuple(gpu for gpu, _ in own) or planned.gpus
    uuids = tuple(uuid for _, uuid in own if uuid)
    if not uuids and gpus == planned.gpus:
        uuids = planned.uuids
    return WorkerPlacement(node=pod.node or NodeName(""), gpus=gpus, uuids=uuids)
