"""The declarations as Kueue's objects (`kueue.x-k8s.io/v1beta2`).

A pool is a ResourceFlavor. The cluster, each department and each project is a Cohort. A project's Cohort has two
ClusterQueues, because Kueue has no job that is never preempted: `guaranteed` has the quota and borrows nothing, so
nothing in it can be reclaimed; `preemptible` has no quota, and borrows what `guaranteed` and others leave. With Kueue's
fair sharing on, projects share by weight, as with gpuctl.

If quotas add up to less than their pools, the rest is quota of the Cohort above, where everything below may borrow it.
Source: Kueue's documentation, "Cluster Queue", "Cohort" and "Fair Sharing"; v0.19.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuctl.diag.diagnostic import Diagnostic, sorted_diagnostics
from gpuctl.diag.wording import thousandths
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import text
from gpuctl.model.declared import Allowance, Cluster, Declared, Department, NodePool, Project
from gpuctl.model.ids import DomainName, PoolName
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest, Manifests
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.targets.unsaid import Engine, unsaid
from gpuctl.targets.workloads import (
    Body,
    TargetObjects,
    TargetOwner,
    labelled,
    name_above,
    priorities,
    priority_class,
    suited,
    together,
)

API = "kueue.x-k8s.io/v1beta2"
FLAVOR: kinds.Kind = (API, "ResourceFlavor")
COHORT: kinds.Kind = (API, "Cohort")
CLUSTER_QUEUE: kinds.Kind = (API, "ClusterQueue")
LOCAL_QUEUE: kinds.Kind = (API, "LocalQueue")
PRIORITY: kinds.Kind = (API, "WorkloadPriorityClass")

_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
_TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
_LEAST_ANNOTATION = "kueue.x-k8s.io/job-min-parallelism"
_ALL_INDEXES_ANNOTATION = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Gives a gang with fewer workers as many completions: no worker runs after another."""
_GUARANTEED, _PREEMPTIBLE = "guaranteed", "preemptible"

Deal = Mapping[PoolName, int]
"""Whole GPUs of each pool."""


def for_kueue(declared: Declared, waiting: Manifests) -> TargetObjects:
    """All objects for Kueue, with those of jobs and projects. `declared`: its GPUs requested by count, whole ones only;
    `waiting`: the objects that gpuctl renders for it if no job is started. Cost: linear in jobs, and in projects times
    pools."""
    cluster = declared.cluster
    items = suited(waiting, declared.jobs, cluster, _job)
    items += [
        TargetOwner(cluster=cluster, of=pool).manifest(FLAVOR, _flavor(cluster, pool.name), _flavor_fields(pool))
        for pool in cluster.pools
    ]
    whole = TargetOwner(cluster=cluster)
    items += [
        whole.manifest(PRIORITY, name, {"value": value})
        for name, value in priorities(cluster.name, declared.jobs).items()
    ]
    tree = _Tree(declared=declared)
    items += tree.objects()
    ordered = tuple(sorted(items, key=lambda item: item.ref))
    return TargetObjects(manifests=Manifests(items=ordered), unsaid=sorted_diagnostics(tree.told()))


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """Departments and projects as Cohorts, and the queues of projects."""

    declared: Declared

    def objects(self) -> Iterator[Manifest]:
        """Cohorts from the cluster's downwards, ClusterQueues and LocalQueues."""
        cluster = self.declared.cluster
        spare = _less({pool.name: pool.gpu_milli // WHOLE_GPU for pool in cluster.pools}, self._below.get(None, {}))
        yield self._own(None, COHORT, name_above(cluster, None), _quotas(cluster, spare))
        for department in self.declared.departments:
            spare = _less(self._deal(department.allowances), self._below.get(department.name, {}))
            spec = {"parentName": name_above(cluster, department.parent), **self._weighed(department.allowances, spare)}
            name = name_above(cluster, department.name)
            yield self._own(department, COHORT, name, spec)
        for project in self.declared.projects:
            yield from self._of_project(project)

    def _of_project(self, project: Project) -> Iterator[Manifest]:
        cluster, namespace = self.declared.cluster, project.namespace
        none = dict.fromkeys(self._deal(project.allowances), 0)
        spec = {"parentName": name_above(cluster, project.department), **self._weighed(project.allowances, none)}
        yield self._own(project, COHORT, namespace, spec)
        deals = (
            (_GUARANTEED, self._deal(project.allowances), "0", "Never"),
            (_PREEMPTIBLE, none, None, "LowerPriority"),
        )
        for queue, deal, borrows, within in deals:
            spec = {
                "cohortName": namespace,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": within},
                **_quotas(cluster, deal, borrows),
            }
            name = f"{namespace}-{queue}"
            yield self._own(project, CLUSTER_QUEUE, name, spec)
            yield self._own(project, LOCAL_QUEUE, queue, {"clusterQueue": name}, namespace=namespace)

    def _own(
        self, of: Project | Department | None, kind: kinds.Kind, name: str, spec: Body, namespace: str = ""
    ) -> Manifest:
        owner = TargetOwner(cluster=self.declared.cluster, of=of)
        return owner.manifest(kind, name, {"spec": spec}, namespace)

    def _weighed(self, allowances: Mapping[DomainName, Allowance], spare: Deal) -> Body:
        """The part of a Cohort's spec about sharing with its siblings: how much it may borrow, and its weight."""
        whole = together(allowances)
        beyond = None if whole.limit_milli is None else max(0, whole.limit_milli - whole.quota_milli)
        borrows, weight = None if beyond is None else str(beyond // WHOLE_GPU), thousandths(whole.weight)
        return {"fairSharing": {"weight": weight}, **_quotas(self.declared.cluster, spare, borrows)}

    @cached_property
    def _below(self) -> Mapping[str | None, Deal]:
        """The sums of the quotas directly below each department, and below the cluster (None)."""
        found: dict[str | None, Counter[PoolName]] = defaultdict(Counter)
        for department in self.declared.departments:
            found[department.parent].update(self._deal(department.allowances))
        for project in self.declared.projects:
            found[project.department].update(self._deal(project.allowances))
        return found

    def _deal(self, allowances: Mapping[DomainName, Allowance]) -> Deal:
        """A quota as whole GPUs of each pool; one for all pools together is split in the ratio of their GPUs.

        Source: Hamilton's method of apportionment: the rest goes to the largest remainders.
        """
        deal: dict[PoolName, int] = {}
        for domain in self.declared.domains:
            allowance = allowances.get(domain.name)
            if allowance is None:
                continue
            sizes = {name: self.declared.cluster.pool(name).gpu_milli for name in domain.pools}
            gpus, whole = allowance.quota_milli // WHOLE_GPU, max(1, sum(sizes.values()))
            deal |= {name: gpus * size // whole for name, size in sizes.items()}
            by_remainder = sorted(sizes, key=lambda name: -(gpus * sizes[name] % whole))
            for name in by_remainder[: gpus - sum(deal[name] for name in sizes)]:
                deal[name] += 1
        return deal

    def told(self) -> Iterator[Diagnostic]:
        """Warnings about amounts that Kueue gets in another form, and about settings without a counterpart."""
        parts: list[Project | Department] = [*self.declared.departments, *self.declared.projects]
        for part in parts:
            yield from self._amounts(part)
        for department in self.declared.departments:
            own, below = (
                sum(self._deal(department.allowances).values()),
                sum(self._below.get(department.name, {}).values()),
            )
            if below > own:
                name, given = f"the quota of department {department.name}", f"{below} GPUs, the sum of what is below it"
                yield unsaid("GPU6152", department.span, Engine.KUEUE, name=name, given=given, declared=f"{own}")
        for project in self.declared.projects:
            if project.priority:
                yield unsaid("GPU6150", project.span, Engine.KUEUE, setting=f"priority {project.priority} of project "
                             f"{project.name}", instead="spare GPUs go by weight alone")  # fmt: skip

    def _amounts(self, one: Project | Department) -> Iterator[Diagnostic]:
        deal = self._deal(one.allowances)
        declared_milli = together(one.allowances).quota_milli
        among_several = any(
            domain.name in one.allowances and one.allowances[domain.name].quota_milli and len(domain.pools) > 1
            for domain in self.declared.domains
        )
        if among_several and any(each.limit_milli is not None for each in one.allowances.values()):
            name, form = f"the limit of {one.name}", "one of all pools together"
            yield unsaid("GPU6152", one.span, Engine.KUEUE, name=name, given="a limit of each pool", declared=form)
        if among_several or declared_milli != WHOLE_GPU * sum(deal.values()):
            given = ", ".join(f"{gpus} of pool {pool}" for pool, gpus in deal.items())
            yield unsaid("GPU6152", one.span, Engine.KUEUE, name=f"the quota of {one.name}", given=given,
                         declared=_gpus(declared_milli))  # fmt: skip


def _gpus(milli: GpuMilli) -> str:
    return "1 GPU" if milli == WHOLE_GPU else f"{thousandths(milli)} GPUs"


def _less(deal: Deal, taken: Deal) -> Deal:
    return {pool: max(0, gpus - taken.get(pool, 0)) for pool, gpus in deal.items()}


def _quotas(cluster: Cluster, deal: Deal, borrows: str | None = None) -> Body:
    """The quotas of each pool, zeros too: a queue can borrow only flavors that it names. In order of preference."""
    bound = {"borrowingLimit": borrows} if borrows else {}
    flavors = [
        {
            "name": _flavor(cluster, pool),
            "resources": [{"name": names.GPU_RESOURCE, "nominalQuota": _count(gpus), **bound}],
        }
        for pool, gpus in deal.items()
    ]
    return {"resourceGroups": [{"coveredResources": [names.GPU_RESOURCE], "flavors": flavors}]} if flavors else {}


def _count(gpus: int) -> str:
    """A count as the API server writes it, 2000 as 2k, so that the texts in Git and in the cluster are the same."""
    for suffix in ("", "k", "M"):
        if not gpus or gpus % 1000:
            return f"{gpus}{suffix}"
        gpus //= 1000
    return f"{gpus}G"


def _flavor(cluster: Cluster, pool: PoolName) -> str:
    return f"{cluster.name}-{pool}"


def _flavor_fields(pool: NodePool) -> Body:
    """The pool's nodes by their labels. The jobs' own pods tolerate their taints."""
    return {"spec": {"nodeLabels": dict(pool.match_labels)}}


def _job(job: Job, body: Body) -> Body:
    """A run's object with its queue. A job with `suspend: true` gets no queue: Kueue would release it."""
    if job.suspend:
        return body
    labels = {
        _QUEUE_LABEL: _PREEMPTIBLE if job.preemptible else _GUARANTEED,
        _PRIORITY_LABEL: priority_class(text(body, "metadata", "labels", names.CLUSTER_LABEL), job),
        **({_TIME_LABEL: str(-(-job.max_duration_ms // 1000))} if job.max_duration_ms is not None else {}),
    }
    least = {_LEAST_ANNOTATION: str(job.min_workers), _ALL_INDEXES_ANNOTATION: "true"}
    return labelled(body, labels, least if job.is_elastic else None)
