"""Matches a run's pods with its planned places: where each worker is, and which places are still open.

The pods are the truth: a worker is on the node its pod is bound to, whatever was planned. Its devices come from the
pod's claims if there are any, else from the plan. The devices of a worker on another node than planned are not known
here (`gpuctl/observe/numbering.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Charge, RunPhase
from gpuctl.observe.charges import charged_devices
from gpuctl.observe.pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """A run's pods: those it keeps and, for an elastic run, the places of those it has given up.

    `charge` is that of each worker: devices that a pod holds beyond it do not count for the run. `ended`: the indexes
    of workers that have ended for good.
    """

    charge: Charge
    staying: Sequence[Pod]
    leaving: Placement | None = None
    made_with: Placement | None = None
    by_index: bool = False
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a run holds. `ended`: the numbers of the placement's workers that no longer hold anything."""

    placement: Placement | None = None
    ended: frozenset[int] = frozenset()


def whole_crew(charge: Charge, pods: Sequence[Pod], ended: frozenset[int] = frozenset()) -> Crew:
    """The crew of a run that keeps all its pods."""
    return Crew(charge=charge, staying=pods, ended=ended)


def elastic_crew(
    charge: Charge, pods: Sequence[Pod], planned: Placement | None, made_with: Placement | None, *, by_index: bool
) -> Crew:
    """Which pods of an elastic run stay, by its placement: a Job drops the highest indexes first.

    A Deployment first removes pods that are not ready, for example those of a lost node. A pod that is being deleted
    keeps its place as long as no other pod has taken that place on the node: another one will be created there.
    """
    if planned is None:
        return Crew(charge=charge, staying=pods, made_with=made_with)
    places = len(planned.workers)
    staying = [pod for pod in pods if (pod.index < places if by_index else not pod.leaving)]
    going = [pod for pod in pods if pod not in staying and pod.live and pod.node is not None]
    if not by_index:
        kept = _in_open_places(planned, staying, going)
        staying, going = [*staying, *kept], [pod for pod in going if pod not in kept]
    rest = list(made_with.workers) if made_with else []
    for worker in planned.workers:
        if worker in rest:
            rest.remove(worker)
    gone = Crew(charge=charge, staying=going)
    left = _meet(tuple(rest), sorted(going, key=_by_worker), gone, keep_open=False).placement
    return Crew(charge=charge, staying=staying, leaving=left, made_with=made_with, by_index=by_index)


def _in_open_places(planned: Placement, staying: Iterable[Pod], going: Iterable[Pod]) -> list[Pod]:
    """The pods being deleted for which a planned place on their node is left."""
    free: Counter[NodeName | None] = Counter(worker.node for worker in planned.workers)
    free.subtract(pod.node for pod in staying)
    kept: list[Pod] = []
    for pod in going:
        if free[pod.node] > 0:
            free[pod.node] -= 1
            kept.append(pod)
    return kept


def unbound_nodes(held: Held, pods: Iterable[Pod], ended: frozenset[int]) -> tuple[NodeName, ...]:
    """Nodes whose places have no pod yet; the place of a worker that succeeded counts as taken.

    A pod that is evicted from its node leaves its place open: what evicts it keeps the next pod out too, and on a
    failed node the pod may never end. `ended`: the indexes of workers that have ended for good.
    """
    places = held.placement.workers if held.placement is not None else ()
    nodes = [worker.node for at, worker in enumerate(places) if at not in held.ended]
    counted = (pod for pod in pods if pod.live or pod.succeeded)
    staying = (pod for pod in counted if not pod.evicted and not (held.ended and pod.index in ended))
    bound = [pod.node for pod in staying if pod.bound and pod.node]
    return tuple((Counter(nodes) - Counter(bound)).elements()) if len(bound) < len(nodes) else ()


def held_places(phase: RunPhase, planned: Placement | None, crew: Crew, unseen: Placement | None) -> Held:
    """A run's places: none once final; its pods' places while it stops; else also the places it has yet to take.

    A worker that has ended keeps its place in the placement, without devices: the run has as many workers as before.
    `planned`: where the run was released to, or the place reserved for it while it waits. `unseen`: the places of its
    pods, if not all of them are seen yet.
    """
    if phase.final:
        return Held()
    if phase is RunPhase.QUEUED:
        return Held(placement=planned)
    stopping = phase is RunPhase.STOPPING
    if stopping and crew.ended:
        crew = replace(crew, ended=frozenset())
    bound = [pod for pod in crew.staying if pod.node is not None and (pod.live or pod.index in crew.ended)]
    bound = [*{pod.index: pod for pod in bound if not pod.live}.values(), *(pod for pod in bound if pod.live)]
    place = (unseen or planned) if stopping else planned
    keep_open = not stopping or unseen is not None
    return _meet(place.workers if place else (), sorted(bound, key=_by_worker), crew, keep_open=keep_open)


def _by_worker(pod: Pod) -> tuple[object, ...]:
    return pod.index, pod.ref


def _meet(planned: tuple[WorkerPlacement, ...], bound: Sequence[Pod], crew: Crew, *, keep_open: bool) -> Held:
    """Match pods and planned places, first by node, so that workers spread in another order change nothing.

    `keep_open`: planned places without a pod yet are held too. The pods of ended workers may be gone: their places are
    found last.
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
    extra: list[Pod] = []
    for pod in strays:
        if open_places:
            taken[open_places.pop(0)] = pod
        else:
            extra.append(pod)
    vacated = {place for place, pod in taken.items() if pod.index in crew.ended}
    for index in sorted(crew.ended - {pod.index for pod in bound})[: len(open_places)]:
        place = index if index in open_places else open_places[0]
        open_places.remove(place)
        vacated.add(place)
    kept = [place for place in range(len(planned)) if place in taken or place in vacated or keep_open]
    order = _by_index(kept, taken) if crew.by_index else kept
    workers = [_place_of(taken.get(place), planned[place], crew) for place in order]
    workers += [_place_of(pod, WorkerPlacement(node=NodeName("")), crew) for pod in extra]
    over = [at for at, place in enumerate(order) if place in vacated]
    over += [len(order) + at for at, pod in enumerate(extra) if pod.index in crew.ended]
    workers = [WorkerPlacement(node=worker.node) if at in over else worker for at, worker in enumerate(workers)]
    return Held(placement=Placement(workers=tuple(workers)) if workers else None, ended=frozenset(over))


def _by_index(met: Sequence[int], taken: Mapping[int, Pod]) -> list[int]:
    """The places in the order of their pods' indexes; places without a pod fill the rest."""
    at = {pod.index: place for place, pod in taken.items()}
    waiting = iter([place for place in met if place not in taken])
    last = max([len(met) - 1, *at])
    found = (at[index] if index in at else next(waiting, None) for index in range(last + 1))
    return [place for place in found if place is not None]


def _place_of(pod: Pod | None, planned: WorkerPlacement, crew: Crew) -> WorkerPlacement:
    """The node of a pod, and its devices; no devices if it is on another node than planned and they are not known.
    Without a pod, the place as planned."""
    if pod is None:
        return planned
    there = planned if planned.node == pod.node else WorkerPlacement(node=pod.node or NodeName(""))
    own = sorted((device.gpu, device.uuid) for device in charged_devices(pod, crew.charge, planned.gpus))
    gpus = tuple(gpu for gpu, _ in own) or there.gpus
    uuids = tuple(uuid for _, uuid in own if uuid)
    if not uuids and gpus == there.gpus:
        uuids = there.uuids
    return WorkerPlacement(node=there.node, gpus=gpus, uuids=uuids)
