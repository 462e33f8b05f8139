"""A job that starts gets a place, however kube-scheduler deals the pods of one cycle among what their templates name.

Pods are dealt here in any order, each to any node and devices that it may have; the engine has no say in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import chain
from random import Random

from checks import Room, empty_rooms, occupy
from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import GIB, World, declared, job, live_nodes, pool, project

from gpuctl.model.decision import Admit, Pending, Placement, Schedule, WorkerPlacement
from gpuctl.model.declared import Declared, PlacementStrategy, SchedulingPolicy, Sharing
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, RunPhase

NODES = st.lists(st.sampled_from((1, 2, 4, 4, 8)), min_size=2, max_size=4)


@st.composite
def crowds(draw: st.DrawFn) -> Declared:
    """Many gangs on few nodes; parts of GPUs where they can be had."""
    sharing = draw(among(Sharing.DRA, Sharing.DEVICE_PLUGIN))
    sizes = (1000, 1000, 2000, 500, 250, 600) if sharing is Sharing.DRA else (1000, 1000, 2000)
    of = pool(
        nodes=draw(NODES),
        sharing=sharing,
        placement=draw(among(*PlacementStrategy)),
    )
    jobs = [
        job(
            f"{draw(among('a', 'b'))}/j{index}",
            draw(among(*sizes)),
            workers=draw(among(1, 1, 2, 3, 4, 6)),
            priority=draw(st.integers(0, 2)),
            cpu_milli=draw(among(0, 1000, 20_000)),
            mem_bytes=GIB,
        )
        for index in range(draw(st.integers(2, 9)))
    ]
    policy = SchedulingPolicy(starvation_guard_ms=draw(among(600_000, 2_000)))
    return declared([project("a", 3000), project("b", 1000)], jobs, [of], policy=policy)


@given(crowds(), st.integers(0, 9), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_a_job_that_starts_has_a_place_however_pods_are_dealt(tree: Declared, first: int, random: Random) -> None:
    world = World(nodes=live_nodes(tree.cluster.pools))
    for jobs in (tree.jobs[:first], tree.jobs, tree.jobs[first // 2 :]):
        chapter = declared(tree.projects, jobs, tree.cluster.pools, policy=tree.cluster.scheduling)
        for state, made in world.decided(chapter):
            deal(chapter, state, made, random)


def deal(tree: Declared, state: ClusterState, made: Schedule, random: Random) -> None:
    """Deal out the pods of all that start; none is left over, and what is promised and free still is."""
    rooms, jobs = empty_rooms(tree, state.nodes), {job.id: job for job in tree.jobs}
    for run in state.runs:
        if run.phase in (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.STOPPING):
            occupy(rooms, run.placement, run.gpu_milli, run.cpu_milli, run.mem_bytes)
    there = {run.job for run in state.runs}
    starts = [(jobs[d.job], d.placement) for d in made.decisions if isinstance(d, Admit) and d.job in there]
    loose = {step.job for step in made.trace if step.rule in ("hold back", "keep")}
    waiting = (d for d in made.decisions if isinstance(d, Pending) and d.job not in loose)
    promises = [(jobs[d.job], d.reserved) for d in waiting if d.reserved is not None]
    kept = list(_kept(deepcopy(rooms), starts, promises))
    pods = [(job, place) for job, place in starts for _ in place.workers]
    random.shuffle(pods)
    for pod, place in pods:
        found = list(_places(tree, rooms, pod, place))
        assert found, f"{pod.id} finds no place of {place}, but {rooms}"
        occupy(rooms, Placement(workers=(random.choice(found),)), pod.gpu_milli, pod.cpu_milli, pod.mem_bytes)
    for one, worker in kept:
        assert list(_places(tree, rooms, one, Placement(workers=(worker,)))), f"{one.id} has lost {worker}: {rooms}"


def _kept(
    rooms: dict[NodeName, Room], starts: Iterable[tuple[Job, Placement]], promises: Iterable[tuple[Job, Placement]]
) -> Iterator[tuple[Job, WorkerPlacement]]:
    """What is promised and already free beside those that start, if everybody is where he is meant to be."""
    for one, place in starts:
        occupy(rooms, place, one.gpu_milli, one.cpu_milli, one.mem_bytes)
    for one, place in promises:
        for worker in place.workers:
            if _is_free(rooms, one, worker):
                occupy(rooms, Placement(workers=(worker,)), one.gpu_milli, one.cpu_milli, one.mem_bytes)
                yield one, worker


def _places(tree: Declared, rooms: dict[NodeName, Room], pod: Job, place: Placement) -> Iterator[WorkerPlacement]:
    """All that a pod may be given of what its template names: with claims the GPUs of these indexes, else any."""
    count = -(-pod.gpu_milli // 1000)
    named = set(chain.from_iterable(worker.gpus for worker in place.workers))
    by_index = tree.cluster.pools[0].sharing is Sharing.DRA
    for node in sorted({worker.node for worker in place.workers}):
        free, cpu_milli, mem_bytes = rooms[node]
        enough = [
            i for i, milli in enumerate(free) if milli >= min(1000, pod.gpu_milli) and (i in named or not by_index)
        ]
        if cpu_milli < pod.cpu_milli or mem_bytes < pod.mem_bytes:
            continue
        if count == 1:
            yield from (WorkerPlacement(node=node, gpus=(index,)) for index in enough)
        elif len(enough) >= count:
            yield WorkerPlacement(node=node, gpus=tuple(enough[:count]))
            yield WorkerPlacement(node=node, gpus=tuple(enough[-count:]))


def _is_free(rooms: dict[NodeName, Room], job: Job, worker: WorkerPlacement) -> bool:
    free, cpu_milli, mem_bytes = rooms[worker.node]
    milli = min(1000, job.gpu_milli)
    return all(free[i] >= milli for i in worker.gpus) and cpu_milli >= job.cpu_milli and mem_bytes >= job.mem_bytes
