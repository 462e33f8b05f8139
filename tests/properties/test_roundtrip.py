"""ROUND-TRIP: what rendering writes, observing reads back. Nothing the engine remembers is lost in the cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from draws import among
from hypothesis import given
from hypothesis import strategies as st
from records import run_records

from gpuctl.diag.span import SourceSpan
from gpuctl.k8s.ledger import encode_ledger
from gpuctl.k8s.objects import ref_of
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.k8s.workloads import is_workload, run_of
from gpuctl.model.decision import (
    Admit,
    Decision,
    Pending,
    Placement,
    Reason,
    Reclaim,
    Schedule,
    Suspended,
    WorkerPlacement,
)
from gpuctl.model.declared import (
    WHOLE_CLUSTER,
    Allowance,
    Cluster,
    Declared,
    DeclaredNode,
    NodePool,
    PlacementStrategy,
    Project,
    QuotaDomain,
    SchedulingPolicy,
    Sharing,
)
from gpuctl.model.ids import JobId, NodeName, PoolName, ProjectName, RunDigest
from gpuctl.model.job import Container, Job, JobType
from gpuctl.model.state import Ledger, RawObjects, Run, RunPhase
from gpuctl.observe import observe
from gpuctl.plan.entries import next_entry
from gpuctl.render import render

SPAN = SourceSpan(file="cluster.yaml")
TEAM = ProjectName("team")
GPUS = 8
NODES = tuple(NodeName(f"node-{i}") for i in range(4))

DURATION = st.none() | st.integers(1, 10**9)


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    workers = draw(st.integers(1, 3))
    return Job(
        id=JobId(TEAM, name),
        digest=RunDigest(f"{draw(st.integers(0, 2**32 - 1)):08x}"),
        type=draw(among(*JobType)),
        container=Container(image="image"),
        gpu_milli=draw(among(0, 1, 250, 500, 999, 1000, 3000, 8000)),
        workers=workers,
        min_workers=workers,
        cpu_milli=draw(st.integers(0, 9000)),
        mem_bytes=draw(st.integers(0, 2**40)),
        max_duration_ms=draw(DURATION),
        pools=(PoolName("pool"),),
        span=SPAN,
    )


@cache
def placements(gpu_milli: int, workers: int) -> st.SearchStrategy[Placement]:
    count = -(-gpu_milli // 1000)
    gpus = st.lists(st.integers(0, GPUS - 1), min_size=count, max_size=count, unique=True).map(
        lambda g: tuple(sorted(g))
    )
    worker = st.builds(WorkerPlacement, node=st.sampled_from(NODES), gpus=gpus)
    return st.lists(worker, min_size=workers, max_size=workers).map(lambda w: Placement(workers=tuple(w)))


amounts = st.integers(0, 10**12)
job_ids = st.builds(JobId, st.sampled_from(("a", "team")).map(ProjectName), st.sampled_from(("x", "y-1")))
records = run_records(amounts, job_ids)
params = st.dictionaries(
    st.sampled_from(("job", "node", "quota")), st.integers(-(2**63) + 1, 2**63 - 1) | st.text('a/é"\\\n ')
)
reasons = st.builds(
    Reason, code=st.sampled_from(("GPU5000", "GPU5003")), params=params.map(lambda found: tuple(sorted(found.items())))
)


@st.composite
def decisions(draw: st.DrawFn, job: Job) -> Decision:
    reason, record, place = draw(reasons), draw(records), draw(placements(job.gpu_milli, job.workers))
    kind = draw(among(Admit, Pending, Reclaim, Suspended))
    if kind is Admit:
        return Admit(job=job.id, reason=reason, record=record, placement=place)
    if kind is Pending:
        return Pending(job=job.id, reason=reason, record=record, reserved=draw(st.none() | st.just(place)))
    if kind is Reclaim:
        other = draw(job_ids)
        return Reclaim(job=job.id, reason=reason, record=record._replace(paused_for=other), beneficiary=other)
    return Suspended(job=job.id, reason=reason, record=record)


@st.composite
def cycles(draw: st.DrawFn) -> tuple[Declared, Schedule]:
    declared_jobs = tuple(draw(jobs(f"job-{i}")) for i in range(draw(st.integers(0, 4))))
    pool = NodePool(
        name=PoolName("pool"),
        match_labels={},
        nodes=tuple(DeclaredNode(name=name, gpus=GPUS, cpu_milli=1, mem_bytes=1) for name in NODES),
        gpu_mem_bytes=2**35,
        gpu_product="",
        placement=PlacementStrategy.BINPACK,
        sharing=draw(among(Sharing.DRA, Sharing.DEVICE_PLUGIN)),
        span=SPAN,
    )
    declared = Declared(
        cluster=Cluster(
            name="cluster",
            namespace_prefix="gpu-",
            pools=(pool,),
            ingress=None,
            scheduling=SchedulingPolicy(),
            span=SPAN,
        ),
        domains=(QuotaDomain(name=WHOLE_CLUSTER, pools=(pool.name,)),),
        projects=(
            Project(
                name=TEAM, namespace="gpu-team", allowances={WHOLE_CLUSTER: Allowance(quota_milli=1000)}, span=SPAN
            ),
        ),
        jobs=declared_jobs,
    )
    return declared, Schedule(at_ms=0, decisions=tuple(draw(decisions(job)) for job in declared_jobs))


UIDS = "uid-of-{}".format


def decided_after(declared: Declared, schedule: Schedule) -> dict[JobId, Run]:
    """The runs as the controller reads them next: their facts from the ledger, their phases off objects."""
    manifests = render(declared, schedule)
    digests = {job.id: job.digest for job in declared.jobs}
    entries, live = {}, {}
    for item in manifests.items:
        run = run_of(item.body) if is_workload(item.ref) else None
        body = item.body
        if run is not None:
            uid = UIDS(item.ref.name)
            before = Run(job=run[0], digest=run[1], phase=RunPhase.QUEUED)
            entries[run] = next_entry(item.body, None, uid, before, schedule.at_ms, BUILT_IN)
            body = {**body, "metadata": {"name": item.ref.name, "namespace": item.ref.namespace, "uid": uid}}
        live[item.ref] = body
    ledger = Ledger(project=TEAM, inventory=frozenset(live), seen=frozenset(digests.items()), runs=entries)
    head = encode_ledger(declared.cluster.name, ledger).head
    state = observe(RawObjects(objects={**live, ref_of(head): head}), declared.tenancy)
    assert state.ledgers[TEAM].runs == entries
    return {run.job: run for run in state.runs}


@given(cycles())
def test_what_is_decided_is_read_back_from_the_ledger_alone(cycle: tuple[Declared, Schedule]) -> None:
    """No label and no annotation is left on the runs' objects."""
    declared, schedule = cycle
    runs = decided_after(declared, schedule)
    assert runs.keys() == {job.id for job in declared.jobs}
    for decision, job in zip(schedule.decisions, declared.jobs, strict=True):
        run = runs[job.id]
        assert (run.digest, run.record) == (job.digest, decision.record)
        if isinstance(decision, Admit):
            assert (run.phase, run.placement, run.reason) == (RunPhase.STARTING, decision.placement, decision.reason)
            assert (run.gpu_milli, run.cpu_milli, run.mem_bytes) == (job.gpu_milli, job.cpu_milli, job.mem_bytes)
        else:
            reserved = decision.reserved if isinstance(decision, Pending) else None
            assert (run.phase, run.placement) == (RunPhase.QUEUED, reserved)
            assert run.reason == (None if reserved is None else decision.reason)


def seen_after(declared: Declared, schedule: Schedule) -> dict[JobId, Run]:
    """The runs as the next cycle reads them, before anything has moved in the cluster."""
    manifests = render(declared, schedule)
    state = observe(RawObjects(objects={manifest.ref: manifest.body for manifest in manifests.items}))
    return {run.job: run for run in state.runs}


@given(cycles())
def test_what_is_decided_is_read_back(cycle: tuple[Declared, Schedule]) -> None:
    declared, schedule = cycle
    runs = seen_after(declared, schedule)
    assert runs.keys() == {job.id for job in declared.jobs}
    for decision, job in zip(schedule.decisions, declared.jobs, strict=True):
        run = runs[job.id]
        assert (run.digest, run.reason, run.record) == (job.digest, decision.reason, decision.record)
        assert (run.gpu_milli, run.cpu_milli, run.mem_bytes) == (job.gpu_milli, job.cpu_milli, job.mem_bytes)
        if isinstance(decision, Admit):
            assert (run.phase, run.placement) == (RunPhase.STARTING, decision.placement)
        else:
            reserved = decision.reserved if isinstance(decision, Pending) else None
            assert (run.phase, run.placement) == (RunPhase.QUEUED, reserved)


@given(cycles())
def test_rendering_is_the_same_twice_and_in_any_order(cycle: tuple[Declared, Schedule]) -> None:
    declared, schedule = cycle
    other = replace(declared, jobs=declared.jobs[::-1])
    shuffled = replace(schedule, decisions=schedule.decisions[::-1])
    assert render(other, shuffled) == render(declared, schedule)
