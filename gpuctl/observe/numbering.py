"""Which of a node's GPUs each worker holds, where only their number is known.

A device plugin does not report which GPUs a pod was given, and all GPUs of a node are equal: indexes are slots, and
they are assigned here. A worker keeps the slots that were planned for it while its pod is on the planned node.
kube-scheduler may spread a gang's workers in another way than planned; a worker on another node gets free slots there.

Invariant: no two bound workers that hold whole GPUs share a slot, so a node has as many slots taken as its pods hold.
If pods hold more GPUs than the node has, the rest get numbers beyond its slots, and GPU7058 reports it. A slot that is
planned for a pod that is not bound yet is given away last; then the engine moves one of the two runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuctl.k8s.objects import mapping
from gpuctl.k8s.requests import requests_of
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName, RunKey
from gpuctl.model.state import Body, Run, RunPhase
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU
from gpuctl.observe.pods import Pod
from gpuctl.observe.roster import Workloads
from gpuctl.observe.slots import Slots, highest_free


def beside_given(
    runs: tuple[Run, ...],
    workloads: Workloads,
    slots: Mapping[NodeName, Slots],
    pods: Iterable[Pod],
    others: Mapping[NodeName, Counter[int]],
) -> tuple[Run, ...]:
    """The runs, with the devices of some dropped, on nodes where pods ask for GPUs by count and get known devices.

    If another pod was given a device that was planned for a run, the run will get another one, which is not known yet.
    A run that asks by claim will get its planned device (or the free slice of it), or nothing.
    """
    nodes = {name for name, found in slots.items() if found.by_device and Way.COUNT in found.ways}
    if not nodes:
        return runs
    given = {name: set(others[name]) for name in nodes}
    told: set[tuple[RunKey, NodeName]] = set()
    for pod, device in ((each, device) for each in pods if each.live for device in each.devices):
        if device.node in nodes and pod.run is not None:
            given[device.node].add(device.gpu)
            told.add((pod.run, device.node))

    def still(run: Run, worker: WorkerPlacement) -> WorkerPlacement:
        key = (run.job, run.digest)
        here = given.get(worker.node, set()) if (key, worker.node) not in told else set[int]()
        place = workloads.places.get(key)
        moved = not here.isdisjoint(worker.gpus) and place is not None and _counts_gpus(workloads.bodies[place])
        return WorkerPlacement(node=worker.node) if moved else worker

    return tuple(
        run
        if run.placement is None or run.phase is RunPhase.QUEUED
        else replace(run, placement=Placement(workers=tuple(still(run, worker) for worker in run.placement.workers)))
        for run in runs
    )


def _counts_gpus(workload: Body) -> bool:
    """Whether its pods ask for a number of GPUs, whichever they are."""
    return requests_of(mapping(workload, "spec", "template", "spec")).gpus > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """A worker's slots on its node. `wanted`: how many GPUs it holds there.

    `bound`: its pod is on the node. `fixed`: its devices are known or shared, so they are not reassigned.
    """

    gpus: tuple[int, ...]
    wanted: int
    bound: bool
    fixed: bool


def with_indexes(
    runs: tuple[Run, ...], slots: Mapping[NodeName, Slots], held: dict[NodeName, Counter[int]]
) -> tuple[Run, ...]:
    """The runs with an index for every GPU that they hold.

    `held` has what others hold by name; the runs' GPUs are added to it. A queued run's reservation holds nothing yet.
    Cost: O(workers); where slots have to be assigned, also O(slots) of those nodes.
    """
    others = {node: frozenset(counts) for node, counts in held.items()}
    lacking: set[NodeName] = set()
    for run in runs:
        place = run.placement
        if place is None:
            continue
        for at, worker in enumerate(place.workers if run.leaving is None else (*place.workers, *run.leaving.workers)):
            if run.phase is not RunPhase.QUEUED:
                taken = held[worker.node]
                for gpu in worker.gpus:
                    taken[gpu] += 1
            if not worker.gpus and run.gpu_milli > 0 and at not in run.ended:
                lacking.add(worker.node)
    to_deal = {node for node in lacking if node in slots} | {
        node for node, counts in held.items() if node in slots and _is_crowded(counts, slots[node])
    }
    return _dealt(runs, to_deal, slots, others, held) if to_deal else runs


def only_planned(runs: Iterable[Run], held: Mapping[NodeName, Mapping[int, int]]) -> Mapping[NodeName, frozenset[int]]:
    """The slots that are held only for workers whose pods are not on their node.

    Cost: O(workers of runs that start).
    """
    planned: dict[NodeName, Counter[int]] = defaultdict(Counter)
    for run in runs:
        for worker, bound in _by_binding(run) if run.unbound else ():
            if not bound:
                planned[worker.node].update(worker.gpus)
    return {
        node: frozenset(gpu for gpu, times in counts.items() if held[node][gpu] == times)
        for node, counts in planned.items()
    }


def _is_crowded(held: Counter[int], slots: Slots) -> bool:
    """Whether a slot of a whole GPU is held twice, or a number beyond the slots is held."""
    if slots.devices is not None or not held or (held.total() == len(held) and max(held) < slots.count):
        return False
    return any(gpu >= slots.count or (times > 1 and gpu not in slots.cut) for gpu, times in held.items())


def _dealt(
    runs: tuple[Run, ...],
    nodes: Collection[NodeName],
    slots: Mapping[NodeName, Slots],
    others: Mapping[NodeName, frozenset[int]],
    held: dict[NodeName, Counter[int]],
) -> tuple[Run, ...]:
    """The runs with slots assigned anew on these nodes."""
    places: dict[NodeName, list[tuple[int, int]]] = defaultdict(list)
    workers: dict[NodeName, list[_Worker]] = defaultdict(list)
    for at, run in enumerate(runs):
        for number, (worker, bound) in enumerate(_by_binding(run)):
            if worker.node in nodes and number not in run.ended:
                places[worker.node].append((at, number))
                workers[worker.node].append(_worker(run, worker, slots[worker.node], bound=bound))
    found: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for node in nodes:
        given = _deal(workers[node], slots[node], others.get(node, frozenset()))
        held[node] = Counter(dict.fromkeys(others.get(node, ()), 1))
        for (at, number), gpus in zip(places[node], given, strict=True):
            found[at][number] = gpus
            if runs[at].phase is not RunPhase.QUEUED:
                held[node].update(gpus)
    return tuple(_with_slots(run, found[at]) if at in found else run for at, run in enumerate(runs))


def _by_binding(run: Run) -> Iterator[tuple[WorkerPlacement, bool]]:
    """The workers of a run, leaving ones last, each with whether its pod is on the node.

    Workers of a run on the same node are equal: as many of them as the run has unbound places there count as not bound.
    """
    workers = run.placement.workers if run.placement is not None else ()
    open_places = Counter(run.unbound)
    bound: list[bool] = []
    for worker in reversed(workers):
        is_open = bool(worker.gpus) and open_places[worker.node] > 0
        open_places[worker.node] -= is_open
        bound.append(not is_open and run.phase is not RunPhase.QUEUED)
    yield from zip(workers, reversed(bound), strict=True)
    for worker in run.leaving.workers if run.leaving is not None else ():
        yield worker, True


def _worker(run: Run, worker: WorkerPlacement, slots: Slots, *, bound: bool) -> _Worker:
    shares = run.gpu_milli % WHOLE_GPU > 0
    return _Worker(
        gpus=worker.gpus,
        wanted=max(1, run.gpu_milli // WHOLE_GPU) if run.gpu_milli else 0,
        bound=bound,
        fixed=bool(worker.gpus) and (slots.devices is not None or shares),
    )


def _deal(workers: Sequence[_Worker], slots: Slots, others: frozenset[int]) -> list[tuple[int, ...]]:
    """The slots of each of a node's workers. `others`: slots that are held by name.

    Bound workers on their planned node keep their slots. Then other bound workers get free slots, then workers without
    a node. The highest slots are assigned first, because the engine fills a node from its lowest.
    """
    given = [worker.gpus for worker in workers]
    taken = set(others)

    def may_stay(at: int) -> bool:
        return bool(given[at]) and taken.isdisjoint(given[at]) and max(given[at]) < slots.count

    strays: list[int] = []
    coming: list[int] = []
    for at, worker in enumerate(workers):
        if worker.fixed or (worker.bound and may_stay(at)):
            taken.update(worker.gpus)
        else:
            (strays if worker.bound else coming).append(at)
    planned = {gpu for at in coming for gpu in given[at]}
    for at in strays:
        given[at] = _for_stray(workers[at], slots, taken, planned)
        taken.update(given[at])
    for at in sorted(coming, key=lambda at: not may_stay(at)):
        if not may_stay(at):
            free = highest_free(slots.count, taken | slots.unfit, workers[at].wanted)
            given[at] = tuple(sorted(free)) if len(free) == workers[at].wanted or not given[at] else given[at]
        taken.update(given[at])
    return given


def _for_stray(worker: _Worker, slots: Slots, taken: set[int], planned: set[int]) -> tuple[int, ...]:
    """Free slots for a bound worker, first those that are planned for no other worker. If they are too few, also
    numbers beyond the slots: its own, if it has any."""
    found = highest_free(slots.count, taken | planned | slots.unfit, worker.wanted)
    found += highest_free(slots.count, taken.union(found) | slots.unfit, worker.wanted - len(found))
    if slots.devices is None:
        beyond = (*worker.gpus, *range(slots.count, MOST_NODE_GPUS))
        found += tuple(dict.fromkeys(gpu for gpu in beyond if gpu >= slots.count and gpu not in taken))
    return tuple(sorted(found[: worker.wanted]))


def _with_slots(run: Run, found: Mapping[int, tuple[int, ...]]) -> Run:
    """The run with these slots, by the number of the worker; leaving workers are counted last."""
    staying = run.placement.workers if run.placement is not None else ()
    leaving = run.leaving.workers if run.leaving is not None else ()
    workers = tuple(_renumbered(worker, found.get(at)) for at, worker in enumerate((*staying, *leaving)))
    return replace(
        run,
        placement=run.placement and Placement(workers=workers[: len(staying)]),
        leaving=run.leaving and Placement(workers=workers[len(staying) :]),
    )


def _renumbered(worker: WorkerPlacement, gpus: tuple[int, ...] | None) -> WorkerPlacement:
    return worker if gpus is None or gpus == worker.gpus else WorkerPlacement(node=worker.node, gpus=gpus)
