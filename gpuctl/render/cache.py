"""The cache of `render`: a job's objects are rendered once for a decision, and reused while the decision is the same.

Each cycle decides anew about every job, and nearly always as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from gpuctl.model.decision import Decision, Finished, Placement
from gpuctl.model.declared import Cluster, Declared, Project
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, Revision
from gpuctl.model.job import Job, JobType
from gpuctl.model.manifest import Manifest
from gpuctl.model.memo import Memo, Sweep
from gpuctl.render.access import role_bindings
from gpuctl.render.bounds import pod_bounds
from gpuctl.render.canonical import in_order
from gpuctl.render.claim_template import claim_template
from gpuctl.render.claims import volume_claims
from gpuctl.render.devices import DeviceTerms, device_terms
from gpuctl.render.gang import rendezvous_service
from gpuctl.render.inference import autoscaler, deployment
from gpuctl.render.ingress import job_ingress
from gpuctl.render.namespace import project_namespace
from gpuctl.render.network import project_network
from gpuctl.render.other_workload import other_workload
from gpuctl.render.owner import ClusterOwner, JobOwner, ProjectOwner
from gpuctl.render.quota import resource_quota
from gpuctl.render.service import job_service
from gpuctl.render.standing import Standing, standing_of
from gpuctl.render.workload import batch_job


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedJob:
    """A job's objects. `place`: where it should run now. `retained`: the finished run that is left as it ended."""

    job: Job
    terms: DeviceTerms
    items: tuple[Manifest, ...]
    place: Placement | None = None
    retained: ObjectRef | None = None


class RenderCache:
    """Cache of owners and of the objects of jobs and projects, of the last two cycles."""

    __slots__ = ("_clusters", "_jobs", "_order", "_projects", "_quotas", "_refs", "_spaces")

    def __init__(self) -> None:
        self._clusters: Memo[str, ClusterOwner] = Memo()
        self._projects: Memo[ProjectName, ProjectOwner] = Memo()
        self._jobs: Sweep[JobId, RenderedJob] = Sweep()
        self._quotas: Memo[ProjectName, Manifest] = Memo()
        self._spaces: Memo[ProjectName, tuple[Manifest, ...]] = Memo()
        self._refs: list[ObjectRef] = []
        self._order: list[int] = []

    def turn(self) -> None:
        """Begin another rendering: values that it does not use are dropped with the next."""
        for memo in (self._clusters, self._projects, self._quotas, self._spaces):
            memo.turn()

    def cluster(self, cluster: Cluster) -> ClusterOwner:
        """The owner of the cluster's own objects."""
        return self._clusters.get(cluster.name, (cluster,), partial(_cluster_owner, cluster))

    def project(self, cluster: ClusterOwner, project: Project, revision: Revision) -> ProjectOwner:
        """The owner of a project's objects."""
        make = partial(ProjectOwner, cluster=cluster, project=project, revision=revision)
        return self._projects.get(project.name, (cluster, project, revision), make)

    def jobs(
        self, owners: Mapping[ProjectName, ProjectOwner], jobs: Sequence[Job], decisions: Sequence[Decision]
    ) -> list[RenderedJob]:
        """The objects of all jobs, each under its decision."""
        own = [owners[job.id.project] for job in jobs]
        # If a job has a commit of its own, its objects do not show the project's: see `JobOwner.annotations`.
        commits = [None if job.span.revision else owner.revision for job, owner in zip(jobs, own, strict=True)]
        return self._jobs.over(
            map(attrgetter("id"), jobs),
            [map(attrgetter("cluster"), own), map(attrgetter("project"), own), commits, jobs, decisions],
            lambda place: _rendered(own[place], jobs[place], decisions[place]),
        )

    def space(self, owner: ProjectOwner) -> tuple[Manifest, ...]:
        """A project's namespace, the bounds of its pods, and its role bindings."""
        return self._spaces.get(owner.project.name, (owner,), partial(_space, owner))

    def quota(self, owner: ProjectOwner, declared: Declared, rendered: Sequence[RenderedJob]) -> Manifest:
        """A project's ResourceQuota."""

        def make() -> Manifest:
            return resource_quota(owner, declared, [(one.job, one.terms, one.place) for one in rendered])

        return self._quotas.get(owner.project.name, (owner, declared.cluster, declared.domains, tuple(rendered)), make)

    def in_order(self, manifests: Sequence[Manifest]) -> tuple[Manifest, ...]:
        """The manifests sorted by reference."""
        refs = list(map(attrgetter("ref"), manifests))
        if refs != self._refs:
            self._order = in_order(refs, list(map(self._refs.__getitem__, self._order)))
            self._refs = refs
        return tuple(map(manifests.__getitem__, self._order))


def _cluster_owner(cluster: Cluster) -> ClusterOwner:
    pools = {node.name: pool for pool in reversed(cluster.pools) for node in pool.nodes}
    return ClusterOwner(cluster=cluster, pool_of_node=pools)


def _space(owner: ProjectOwner) -> tuple[Manifest, ...]:
    return project_namespace(owner), *pod_bounds(owner), *role_bindings(owner), *project_network(owner)


def _rendered(project: ProjectOwner, job: Job, decision: Decision) -> RenderedJob:
    owner, standing = JobOwner(project=project, job=job), standing_of(decision, job)
    claims = tuple(volume_claims(owner))
    terms = device_terms(project.cluster, job, None if standing is None else standing.place)
    if standing is None:
        is_expired = isinstance(decision, Finished) and decision.is_expired
        return RenderedJob(job=job, terms=terms, items=claims, retained=None if is_expired else owner.run_ref)
    return RenderedJob(job=job, terms=terms, items=(*claims, *_of_run(owner, terms, standing)), place=standing.place)


def _of_run(owner: JobOwner, terms: DeviceTerms, standing: Standing) -> Iterator[Manifest]:
    """The run's own object and those around it. A claim template is made only if the run has a place."""
    if owner.job.container.manifest is not None:
        yield other_workload(owner, owner.job.container.manifest, terms, standing)
    elif owner.job.type is JobType.INFERENCE:
        yield deployment(owner, terms, standing)
    else:
        yield batch_job(owner, terms, standing)
    if owner.is_gang:
        yield rendezvous_service(owner)
    if terms.claims and standing.place is not None:
        yield claim_template(owner, terms, standing.place)
    around = (job_service(owner), job_ingress(owner), autoscaler(owner, standing))
    yield from (manifest for manifest in around if manifest is not None)
