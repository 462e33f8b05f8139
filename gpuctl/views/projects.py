"""Projects as people see them: quota, limit, held GPUs, and the number of running and waiting jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuctl.k8s import kinds, names, objects
from gpuctl.k8s.annotations import decode_allowances
from gpuctl.model.decision import JobState
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.state import ClusterState
from gpuctl.model.units import GpuMilli, format_gpus
from gpuctl.model.utilisation import ProjectUse
from gpuctl.views.jobs import HOLDING, JobView, held_milli
from gpuctl.views.tables import NARROW, table

COLUMNS = (
    "PROJECT", "DEPARTMENT", "DESERVED GPUs", "LIMIT", "ALLOCATED GPUs", "RUNNING", "PENDING", "NAMESPACE",
)  # fmt: skip
_AMOUNTS = COLUMNS[2:5]
WAITING = frozenset({JobState.PENDING, JobState.PREEMPTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    """One project. `allowances` are by quota domain, empty if its namespace has no annotation for them.

    `pending_milli`: the GPUs that waiting jobs ask for. `share_milli`: the fair share in each domain, if known. `use`:
    how its GPUs are used, if that is measured.
    """

    name: ProjectName
    namespace: str
    department: str
    allowances: Mapping[DomainName, Allowance]
    allocated_milli: GpuMilli
    running: int
    pending: int
    pending_milli: GpuMilli = 0
    share_milli: Mapping[DomainName, GpuMilli] = field(default_factory=dict)
    use: ProjectUse | None = None


def project_views(state: ClusterState, jobs: Sequence[JobView]) -> tuple[ProjectView, ...]:
    """Every project that has a namespace, by name."""
    return tuple(sorted(_views(state, jobs), key=lambda view: (view.name, view.namespace)))


def with_uses(views: Sequence[ProjectView], uses: Mapping[ProjectName, ProjectUse]) -> tuple[ProjectView, ...]:
    """The same with the use of each project's GPUs."""
    return tuple(replace(view, use=uses[view.name]) if view.name in uses else view for view in views)


def _views(state: ClusterState, jobs: Sequence[JobView]) -> Iterator[ProjectView]:
    by_namespace: dict[str, list[JobView]] = {}
    for job in jobs:
        by_namespace.setdefault(job.ref.namespace, []).append(job)
    for ref, body in state.live.items():
        if (ref.api_version, ref.kind) != kinds.NAMESPACE:
            continue
        name = objects.labels_of(body).get(names.PROJECT_LABEL)
        if not name:
            continue
        notes = objects.annotations_of(body)
        mine = by_namespace.get(ref.name, ())
        yield ProjectView(
            name=ProjectName(str(name)),
            namespace=ref.name,
            department=str(notes.get(names.DEPARTMENT_ANNOTATION, "")),
            allowances=decode_allowances(notes.get(names.QUOTA_ANNOTATION)) or {},
            allocated_milli=sum(held_milli(job.run) for job in mine),
            running=sum(job.run.phase in HOLDING for job in mine),
            pending=sum(job.state in WAITING for job in mine),
            pending_milli=sum(job.gpu_milli for job in mine if job.state in WAITING),
        )


def project_table(views: Sequence[ProjectView], *, wide: bool) -> str:
    """The projects as a table."""
    rows = [
        (
            view.name,
            view.department or "-",
            _by_domain(view, lambda allowance: format_gpus(allowance.quota_milli)),
            _by_domain(view, lambda allowance: _limit(allowance.limit_milli)),
            format_gpus(view.allocated_milli),
            str(view.running),
            str(view.pending),
            view.namespace,
        )
        for view in views
    ]
    return table(COLUMNS, rows, most=None if wide else NARROW, whole=_AMOUNTS)


def _by_domain(view: ProjectView, amount: Callable[[Allowance], str]) -> str:
    """`4`; with quotas by pool `dgx1:4,h100:2`."""
    said = [(domain, amount(allowance)) for domain, allowance in view.allowances.items()]
    return ",".join(text if domain == WHOLE_CLUSTER else f"{domain}:{text}" for domain, text in said) or "-"


def _limit(milli: GpuMilli | None) -> str:
    return "none" if milli is None else format_gpus(milli)


def project_form(view: ProjectView) -> dict[str, Any]:
    """One project as JSON and YAML show it."""
    return {
        "name": view.name,
        "namespace": view.namespace,
        "department": view.department or None,
        "quotas": [
            {
                "domain": domain,
                "quotaGpuMilli": allowance.quota_milli,
                "limitGpuMilli": allowance.limit_milli,
                "overQuotaWeight": allowance.weight,
                "fairShareGpuMilli": view.share_milli.get(domain),
            }
            for domain, allowance in view.allowances.items()
        ],
        "allocatedGpuMilli": view.allocated_milli,
        "running": view.running,
        "pending": view.pending,
        "pendingGpuMilli": view.pending_milli,
    }
