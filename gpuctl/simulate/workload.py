"""Turn a trace into declarations: a pool of equal nodes, the projects with their quotas, and the jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
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
from gpuctl.model.state import Node
from gpuctl.model.units import WHOLE_GPU, CpuMilli, GpuMilli, MemBytes
from gpuctl.simulate.trace import Table, Trace, TraceJob

POOL = PoolName("pool")
_LABELS = {"gpuctl.dev/pool": "pool"}
_CONTAINER = Container(image="trace")
_DIGEST = RunDigest("00000000")
_SPAN = SourceSpan(file="trace")
NODE_CPU_MILLI: CpuMilli = 128_000
NODE_MEM_BYTES: MemBytes = 1 << 40
_LONGEST_NAME = 253
_LAYOUT = re.compile(r"(?P<nodes>[1-9][0-9]{0,4})x(?P<gpus>[1-9][0-9]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A number of nodes with a number of GPUs each, written 64x8."""

    nodes: int
    gpus: int

    @staticmethod
    def parse(text: str) -> Layout | None:
        """Read 64x8; None for anything else."""
        match = _LAYOUT.fullmatch(text)
        return Layout(nodes=int(match["nodes"]), gpus=int(match["gpus"])) if match else None

    def __str__(self) -> str:
        return f"{self.nodes}x{self.gpus}"

    @property
    def gpu_milli(self) -> GpuMilli:
        """The GPUs of all nodes."""
        return self.nodes * self.gpus * WHOLE_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The input of a replay: declarations without jobs, live nodes, and each job with its line of the trace."""

    declared: Declared
    nodes: tuple[Node, ...]
    jobs: tuple[tuple[TraceJob, Job], ...]

    @property
    def capacity_milli(self) -> GpuMilli:
        """GPUs of all nodes."""
        return sum(WHOLE_GPU * node.gpus for node in self.nodes)

    @property
    def quotas(self) -> dict[ProjectName, GpuMilli]:
        """Each project's guarantee."""
        return {project.name: project.allowances[WHOLE_CLUSTER].quota_milli for project in self.declared.projects}


def workload(
    trace: Trace, layout: Layout, quotas: Mapping[ProjectName, GpuMilli], policy: SchedulingPolicy
) -> Workload:
    """The declarations of a trace on nodes with quotas. A job with more GPUs than a node has becomes a gang of equal
    workers."""
    names = [NodeName(f"node-{index:04d}") for index in range(1, layout.nodes + 1)]
    pool = NodePool(
        name=POOL,
        match_labels=_LABELS,
        nodes=tuple(
            DeclaredNode(name=name, gpus=layout.gpus, cpu_milli=NODE_CPU_MILLI, mem_bytes=NODE_MEM_BYTES)
            for name in names
        ),
        gpu_mem_bytes=0,
        gpu_product="",
        placement=PlacementStrategy.BINPACK,
        sharing=Sharing.DRA,
        span=_SPAN,
    )
    projects = sorted({job.project for job in trace.jobs} | quotas.keys())
    declared = Declared(
        cluster=Cluster(
            name=trace.name, namespace_prefix="", pools=(pool,), ingress=None, scheduling=policy, span=_SPAN
        ),
        domains=(QuotaDomain(name=WHOLE_CLUSTER, pools=(POOL,)),),
        projects=tuple(_project(name, quotas.get(name, 0)) for name in projects),
    )
    nodes = tuple(
        Node(name=name, labels=_LABELS, gpus=layout.gpus, cpu_milli=NODE_CPU_MILLI, mem_bytes=NODE_MEM_BYTES)
        for name in names
    )
    jobs = tuple((job, _job(job, f"job-{index:06d}", layout.gpus)) for index, job in enumerate(trace.jobs, start=1))
    return Workload(declared=declared, nodes=nodes, jobs=jobs)


def _project(name: ProjectName, quota_milli: GpuMilli) -> Project:
    allowance = Allowance(quota_milli=quota_milli, weight=quota_milli)
    return Project(name=name, namespace=name, allowances={WHOLE_CLUSTER: allowance}, span=_SPAN)


def _job(job: TraceJob, name: str, gpus_per_node: int) -> Job:
    workers = _workers(job.gpu_milli // WHOLE_GPU, gpus_per_node)
    return Job(
        id=JobId(job.project, name),
        digest=_DIGEST,
        type=JobType.TRAINING,
        container=_CONTAINER,
        gpu_milli=job.gpu_milli // workers,
        workers=workers,
        min_workers=workers,
        cpu_milli=job.cpu_milli // workers,
        mem_bytes=job.mem_bytes // workers,
        pools=(POOL,),
        span=_SPAN,
    )


def _workers(gpus: int, gpus_per_node: int) -> int:
    """The fewest equal workers that fit nodes. Example: 12 GPUs are two workers of six where a node has eight."""
    if gpus <= gpus_per_node:
        return 1
    return gpus // next(size for size in range(gpus_per_node, 0, -1) if gpus % size == 0)


def equal_quotas(projects: Iterable[ProjectName], layout: Layout) -> dict[ProjectName, GpuMilli]:
    """Divide the GPUs equally among the projects."""
    return _apportioned(layout, dict.fromkeys(projects, 1))


def quotas_by_history(trace: Trace, layout: Layout) -> dict[ProjectName, GpuMilli]:
    """Divide the GPUs by each project's work before the trace; {} when there was none."""
    return _apportioned(layout, {project: work for project, work in trace.history.items() if work > 0})


def _apportioned(layout: Layout, weights: Mapping[ProjectName, int]) -> dict[ProjectName, GpuMilli]:
    """Divide whole GPUs by weight, by largest remainder; they add up to all GPUs."""
    gpus, total = layout.gpu_milli // WHOLE_GPU, sum(weights.values())
    given = {project: gpus * weight // total for project, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda project: (-(gpus * weights[project] % total), project))
    for project in by_remainder[: gpus - sum(given.values())]:
        given[project] += 1
    return {project: count * WHOLE_GPU for project, count in sorted(given.items())}


def read_quotas(path: str, content: bytes) -> tuple[dict[ProjectName, GpuMilli], tuple[Diagnostic, ...]]:
    """Read a table with the columns project and quota, in whole GPUs."""
    table = Table(path, content, ("project", "quota"))
    quotas: dict[ProjectName, GpuMilli] = {}
    for number, (project, quota) in table.rows():
        if not quota.isdecimal() or len(quota) > 6:
            table.wrong(number, f"{quota!r} is not a number of GPUs")
        elif not project.isprintable() or len(project) > _LONGEST_NAME:
            table.wrong(number, f"{project!r} is not a project name")
        elif ProjectName(project) in quotas:
            table.wrong(number, f"{project} has a quota already")
        else:
            quotas[ProjectName(project)] = WHOLE_GPU * int(quota)
    return quotas, tuple(table.mistakes)
