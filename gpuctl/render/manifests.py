"""The stage `render`: makes all objects of a cluster, its projects and its jobs.

The object of a finished run is `retained`: it stays as it ended, and only the claims with its data are rendered. Once
the time that its job sets for keeping it is over, it is neither wanted nor retained.
Cost: linear in jobs, about a twentieth of a millisecond each; a hundredth of that for an unchanged one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

from gpuctl.model.decision import Decision, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import NO_REVISION, ObjectRef, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifests
from gpuctl.render.cache import RenderCache, RenderedJob
from gpuctl.render.namespace import system_objects


def render(declared: Declared, schedule: Schedule, cache: RenderCache | None = None) -> Manifests:
    """Render all wanted objects, and name those to leave alone. KeyError if a job has no decision: the caller's bug.

    `cache`: that of the cycle before, if there was one; it saves work and changes no result.
    """
    cache = cache or RenderCache()
    cache.turn()
    cluster = cache.cluster(declared.cluster)
    decisions = _of_jobs(declared.jobs, schedule.decisions)
    revisions = declared.project_revisions
    owners = {
        project.name: cache.project(cluster, project, revisions.get(project.name, NO_REVISION))
        for project in declared.projects
    }
    rendered: dict[ProjectName, list[RenderedJob]] = {name: [] for name in owners}
    for one in cache.jobs(owners, declared.jobs, decisions):
        rendered[one.job.id.project].append(one)
    found = list(system_objects(cluster))
    retained: list[ObjectRef] = []
    for name, owner in owners.items():
        own = rendered[name]
        found.extend([*cache.space(owner), cache.quota(owner, declared, own)])
        found.extend(chain.from_iterable(map(attrgetter("items"), own)))
        retained.extend(one.retained for one in own if one.retained is not None)
    return Manifests(items=cache.in_order(found), retained=frozenset(retained))


def _of_jobs(jobs: Sequence[Job], decisions: Sequence[Decision]) -> Sequence[Decision]:
    """The decision about each job. Decisions mostly have the jobs' order already."""
    if list(map(attrgetter("id"), jobs)) == list(map(attrgetter("job"), decisions)):
        return decisions
    by_job = {decision.job: decision for decision in decisions}
    return [by_job[job.id] for job in jobs]
