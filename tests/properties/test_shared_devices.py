"""Whatever is asked for of shared and cut GPUs: no device carries more than it has, and no more than may share it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from draws import among
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import GIB, declared, job, pool, project

from gpuctl.engine import schedule
from gpuctl.model.decision import Admit, Pending
from gpuctl.model.declared import Declared, Driver, NodePool, Sharing
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job
from gpuctl.model.mig import profiles_of
from gpuctl.model.state import ClusterState, CutGpu, Node, Run, RunPhase

NOW = 1_596_000_000_000
H100 = 81_559 << 20
PROFILES = profiles_of(H100)
WAYS = (
    (Sharing.MIG, Driver.HAMI),
    (Sharing.HAMI, Driver.HAMI),
    (Sharing.DRA, Driver.HAMI),
    (Sharing.DRA, Driver.NVIDIA),
)


@st.composite
def cut_nodes(draw: st.DrawFn, of: NodePool) -> tuple[Node, ...]:
    """Live nodes of a pool: some GPUs cut, some slices broken or others', some GPUs lost, or others' in part."""
    nodes = []
    for each in of.nodes:
        cut = {}
        for gpu in range(each.gpus) if of.cuts else ():
            profile = draw(among(None, None, *PROFILES))
            if profile is not None:
                slices = draw(st.integers(max(0, profile.per_gpu - 1), profile.per_gpu))
                cut[gpu] = CutGpu(profile=profile.name, slices=slices, taken=draw(st.integers(0, 1)))
        whole = [gpu for gpu in range(each.gpus) if gpu not in cut]
        nodes.append(
            Node(
                name=each.name,
                labels=dict(of.match_labels),
                gpus=each.gpus,
                cpu_milli=each.cpu_milli,
                mem_bytes=each.mem_bytes,
                lost_gpus=frozenset(draw(st.lists(st.sampled_from(whole), max_size=1)) if whole else ()),
                foreign_gpu_milli=tuple(draw(among(0, 0, 0, 400)) for _ in range(each.gpus)),
                ways=frozenset({of.way}),
                uuids=tuple(f"{each.name}/{gpu}" for gpu in range(each.gpus)) if of.by_uuid else (),
                cut=cut,
            )
        )
    return tuple(nodes)


@st.composite
def shared_clusters(draw: st.DrawFn) -> tuple[Declared, tuple[Node, ...], NodePool]:
    sharing, driver = draw(among(*WAYS))
    of = replace(
        pool(nodes=draw(st.lists(st.sampled_from((2, 4)), min_size=1, max_size=3)), sharing=sharing),
        driver=driver,
        gpu_mem_bytes=H100,
        profiles=PROFILES if sharing is Sharing.MIG or driver is Driver.NVIDIA else (),
        gpu_slots=draw(among(10, 4, 3)),
    )
    jobs: list[Job] = []
    for index in range(draw(st.integers(1, 24))):
        milli = draw(among(50, 100, 125, 200, 250, 300, 500, 500, 700, 1000, 1000, 2000))
        workers = draw(among(1, 1, 1, 2, 3))
        jobs.append(job(f"{draw(among('a', 'b'))}/j{index}", milli, workers=workers, mem_bytes=GIB))
    tree = declared([project("a", 3000), project("b", 1000)], jobs, [of])
    return tree, draw(cut_nodes(of)), of


@given(shared_clusters(), st.integers(0, 24))
@settings(max_examples=300)
def test_no_device_carries_more_than_it_has(given_: tuple[Declared, tuple[Node, ...], NodePool], first: int) -> None:
    tree, nodes, of = given_
    runs: dict[object, Run] = {}
    # Some jobs arrive, run, and then all the others do.
    for jobs in (tree.jobs[:first], tree.jobs):
        for now in (NOW, NOW + 1000):
            state = ClusterState(nodes=nodes, runs=tuple(runs[key] for key in sorted(runs, key=str)))
            for decision in schedule(replace(tree, jobs=jobs), state, now).decisions:
                (asked,) = [each for each in jobs if each.id == decision.job]
                grant = of.grant(asked.gpu_milli)
                if isinstance(decision, Admit):
                    assert grant is not None
                    runs[asked.id] = running(asked, decision, grant.gpu_milli, now)
                    for worker in decision.placement.workers:
                        assert len(worker.gpus) == max(1, asked.gpu_milli // 1000)
                        assert len(worker.uuids) == (len(worker.gpus) if of.by_uuid else 0)
                    assert len(decision.placement.workers) == asked.workers
                elif isinstance(decision, Pending):
                    assert grant is not None or decision.reason.code == "GPU5014"
    check(nodes, of, tree, tuple(runs.values()))


def running(of: Job, decision: Admit, gpu_milli: int, now: int) -> Run:
    return Run(
        job=of.id,
        digest=of.digest,
        phase=RunPhase.RUNNING,
        placement=decision.placement,
        gpu_milli=gpu_milli,
        mem_bytes=of.mem_bytes,
        queued_at_ms=now,
        started_at_ms=now,
        starts=1,
    )


def check(nodes: tuple[Node, ...], of: NodePool, tree: Declared, runs: tuple[Run, ...]) -> None:
    milli: Counter[tuple[NodeName, int]] = Counter()
    sharers: Counter[tuple[NodeName, int]] = Counter()
    by_name = {node.name: node for node in nodes}
    profile_of = {each.id: of.grant(each.gpu_milli) for each in tree.jobs}
    for run in runs:
        for worker in run.placement.workers if run.placement else ():
            for gpu in worker.gpus:
                node, grant = by_name[worker.node], profile_of[run.job]
                milli[worker.node, gpu] += run.gpu_milli // len(worker.gpus)
                sharers[worker.node, gpu] += 1
                assert gpu not in node.lost_gpus
                cut = node.cut.get(gpu)
                assert (cut.profile if cut else "") == (grant.profile if grant else "")
    for (name, gpu), held in milli.items():
        cut = by_name[name].cut.get(gpu)
        others = 0 if cut else by_name[name].foreign_gpu_milli[gpu]
        assert held + others <= 1000
        if cut is not None:
            assert sharers[name, gpu] + cut.taken <= cut.slices
        if of.sharing is Sharing.HAMI:
            assert sharers[name, gpu] <= of.gpu_slots
