"""GPU slots that observing deals out: none is held twice, none that a pod holds is free, and they stay as they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from draws import among
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Story, stories

from gpuctl.app.cycle import CycleContext, cycle, foresee
from gpuctl.app.object_cache import ObjectCache
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import Sharing
from gpuctl.model.ids import JobId, NodeName, ProjectName, RunDigest
from gpuctl.model.state import Run, RunPhase
from gpuctl.observe.numbering import with_indexes
from gpuctl.observe.pods import read_pod
from gpuctl.observe.slots import Slots
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.wiring import sandbox

NODES = tuple(NodeName(f"n{number}") for number in range(3))
SLOTS = 4

Held = dict[NodeName, Counter[int]]


@cache
def placements(each: int, most: int) -> st.SearchStrategy[Placement]:
    """Workers at planned slots, or at none: on another node than planned."""
    slots = st.lists(st.integers(0, SLOTS), min_size=each, max_size=each, unique=True).map(lambda g: tuple(sorted(g)))
    workers = st.builds(WorkerPlacement, node=st.sampled_from(NODES), gpus=slots | st.just(()))
    return st.lists(workers, min_size=1, max_size=most).map(lambda found: Placement(workers=tuple(found)))


@cache
def leaving(each: int) -> st.SearchStrategy[Placement | None]:
    """No worker, or one."""
    return st.none() | placements(each, 1)


@st.composite
def run_lists(draw: st.DrawFn) -> tuple[Run, ...]:
    """Runs of whole GPUs, with workers that are bound, are still to come, or are leaving; some at the same slots."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        each = draw(among(1, 1, 2))
        phase = draw(among(RunPhase.RUNNING, RunPhase.RUNNING, RunPhase.STARTING, RunPhase.STOPPING))
        place = draw(placements(each, 3))
        planned = [worker.node for worker in place.workers if worker.gpus]
        unbound = planned[: draw(st.integers(0, len(planned)))] if phase is RunPhase.STARTING else []
        found.append(
            Run(
                job=JobId(ProjectName("a"), f"j{number}"),
                digest=RunDigest("0badcafe"),
                phase=phase,
                placement=place,
                gpu_milli=1000 * each,
                unbound=tuple(unbound),
                leaving=draw(leaving(each)) if phase is RunPhase.RUNNING else None,
            )
        )
    return tuple(found)


def numbered(runs: tuple[Run, ...]) -> tuple[tuple[Run, ...], Held]:
    slots: Mapping[NodeName, Slots] = {node: Slots(count=SLOTS) for node in NODES}
    held: Held = defaultdict(Counter)
    return with_indexes(runs, slots, held), held


def bound_workers(runs: tuple[Run, ...], found: tuple[Run, ...]) -> Iterator[tuple[int, WorkerPlacement]]:
    """Each worker whose pod is on its node, as it was found, with the number of its GPUs."""
    for run, after in zip(runs, found, strict=True):
        open_places = Counter(run.unbound)
        staying = len(run.placement.workers) if run.placement is not None else 0
        for at, (old, new) in reversed([*enumerate(zip(workers_of(run), workers_of(after), strict=True))]):
            if at < staying and old.gpus and open_places[old.node] > 0:
                open_places[old.node] -= 1
            else:
                yield run.gpu_milli // 1000, new


@given(run_lists())
@settings(max_examples=200)
def test_a_node_has_as_many_slots_taken_as_its_pods_hold_and_none_twice(runs: tuple[Run, ...]) -> None:
    found, held = numbered(runs)
    taken: Held = defaultdict(Counter)
    for count, worker in bound_workers(runs, found):
        assert len(worker.gpus) == count
        taken[worker.node].update(worker.gpus)
    for node, slots in taken.items():
        assert set(slots.values()) <= {1}
        assert not slots - held[node], "what is held is on the node's books"
        within = sum(slot < SLOTS for slot in slots)
        assert within == min(SLOTS, slots.total()), "numbers beyond the slots only once all slots are taken"


@given(run_lists())
@settings(max_examples=100)
def test_slots_that_were_dealt_once_stay(runs: tuple[Run, ...]) -> None:
    """The ledger keeps what was observed, as the plan of the next cycle."""
    found, held = numbered(tuple(replace(run, unbound=()) for run in runs))
    assert numbered(found) == (found, held)


@given(run_lists())
@settings(max_examples=100)
def test_a_worker_on_its_planned_node_keeps_its_slots(runs: tuple[Run, ...]) -> None:
    planned = Counter((worker.node, slot) for run in runs for worker in workers_of(run) for slot in worker.gpus)
    found, _ = numbered(runs)
    for before, after in zip(runs, found, strict=True):
        for old, new in zip(workers_of(before), workers_of(after), strict=True):
            alone = all(planned[old.node, slot] == 1 and slot < SLOTS for slot in old.gpus)
            if old.gpus and alone and old.node not in before.unbound:
                assert new == old


@given(run_lists())
@settings(max_examples=100)
def test_what_fits_is_not_counted_twice(runs: tuple[Run, ...]) -> None:
    """Places that no pod has taken yet get free slots as well, as long as there are any."""
    found, held = numbered(runs)
    asked: Counter[NodeName] = Counter()
    for run in runs:
        for worker in workers_of(run):
            asked[worker.node] += run.gpu_milli // 1000
    for node, count in asked.items():
        if count <= SLOTS and all(run.gpu_milli == 1000 for run in found):
            assert set(held[node].values()) <= {1}


def workers_of(run: Run) -> tuple[WorkerPlacement, ...]:
    return tuple(worker for place in (run.placement, run.leaving) if place is not None for worker in place.workers)


def test_parts_of_gpus_stay_where_they_are() -> None:
    half = Run(
        job=JobId(ProjectName("a"), "j"),
        digest=RunDigest("0badcafe"),
        phase=RunPhase.RUNNING,
        placement=Placement(workers=(WorkerPlacement(node=NODES[0], gpus=(0,)),)),
        gpu_milli=500,
    )
    both = (half, replace(half, digest=RunDigest("1badcafe")))
    assert numbered(both)[0] == both


@given(stories(most=8), st.integers(0, 2))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_runs_hold_as_many_gpus_of_a_node_as_their_pods_there(story: Story, foreign: int) -> None:
    """On the embedded cluster, whose scheduler deals the workers of gangs as it likes."""
    pools = tuple(replace(pool, sharing=Sharing.DEVICE_PLUGIN) for pool in story.tree.cluster.pools)
    tree = replace(story.tree, cluster=replace(story.tree.cluster, pools=pools))
    here = sandbox(EPOCH_MS)
    here.machines.provide(pools)
    here.world.set_strangers(pools[0].nodes[0].name, foreign)
    context = CycleContext(object_cache=ObjectCache(here.cluster), clock=here.time, settle=here.world.settle)
    for batch in story.batches:
        now = replace(tree, jobs=tuple(tree.jobs[index] for index in sorted(batch)))
        for _ in range(4):
            here.time.advance_to(here.time.now_ms() + 1000)
            cycle(now, context)
            here.world.settle()
            state = foresee(now, context).state
            held = Counter(
                (worker.node, slot)
                for run in state.runs
                if run.phase is not RunPhase.QUEUED
                for worker in workers_of(run)
                for slot in worker.gpus
            )
            assert set(held.values()) <= {1}
            pods = [read_pod(ref, state.live[ref], run, ()) for ref, run in state.pods.items()]
            for node in state.nodes:
                asked = sum(pod.requests.gpus for pod in pods if pod.bound and pod.live and pod.node == node.name)
                assert sum(name == node.name for name, _ in held) >= asked
