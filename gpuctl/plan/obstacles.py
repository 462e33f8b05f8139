"""Obstacles that keep declared jobs from being written: foreign objects with their names, own objects that can't be
read or were deleted and remain, and namespaces that are being deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuctl.k8s import names
from gpuctl.k8s.kinds import NAMESPACE
from gpuctl.k8s.objects import instant, is_deleting
from gpuctl.k8s.timestamps import format_seconds
from gpuctl.k8s.workloads import holders, kind_of
from gpuctl.model.decision import Reason
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, RunPhase
from gpuctl.plan.cache import PlanCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """The obstacles by kind. `taken`: jobs whose name a foreign object has. `ending`: projects whose namespace is being
    deleted, each with the reason to show. `unreadable`: jobs whose run's object can't be read. `kept`: jobs whose run's
    object was deleted and is kept by finalizers after its pods are gone, each with the reason to show."""

    taken: Mapping[JobId, ObjectRef]
    ending: Mapping[ProjectName, Reason]
    unreadable: frozenset[JobId]
    kept: Mapping[JobId, Reason]

    def reasons(self, declared: Declared) -> Mapping[JobId, Reason]:
        """The blocked jobs, each with the reason."""
        taken = {job: Reason(code="GPU5072", params=(("object", str(ref)),)) for job, ref in self.taken.items()}
        ending = {job.id: self.ending[job.id.project] for job in declared.jobs if job.id.project in self.ending}
        return {**self.kept, **ending, **taken, **dict.fromkeys(self.unreadable, Reason(code="GPU5073"))}


def obstacles(declared: Declared, state: ClusterState, cache: PlanCache | None = None) -> Obstacles:
    """The obstacles now. `cache` (of the plan before) saves work and changes no result."""
    return Obstacles(
        taken=taken_names(declared, state, cache),
        ending=dict(ending_spaces(declared, state.live)),
        unreadable=unreadable_jobs(state),
        kept=dict(kept_objects(declared, state)),
    )


def ending_spaces(declared: Declared, live: Mapping[ObjectRef, Body]) -> Iterator[tuple[ProjectName, Reason]]:
    """The projects whose namespace is being deleted, each with the reason to show: nothing can be created in it until
    it is gone."""
    for project in declared.projects:
        body = live.get(ObjectRef(*NAMESPACE, "", project.namespace))
        if body is not None and is_deleting(body):
            deleted_ms = instant(body, "metadata", "deletionTimestamp")
            since = "" if deleted_ms is None else format_seconds(deleted_ms)
            facts = ("namespace", project.namespace), ("project", project.name), ("since", since)
            yield project.name, Reason(code="GPU7023", params=facts)


def kept_objects(declared: Declared, state: ClusterState) -> Iterator[tuple[JobId, Reason]]:
    """The jobs that can't start before the old object of their run is gone. That object holds nothing more, so no place
    is kept for these jobs. Cost: linear in runs, and in objects where there is such a run."""
    done = {(run.job, run.digest) for run in state.runs if run.phase is RunPhase.STOPPING and run.placement is None}
    wanted = done & {(job.id, job.digest) for job in declared.jobs} if done else done
    for ref, own in state.own.items() if wanted else ():
        facts = held_facts(ref, own.run[0], state.live[ref]) if own.run in wanted else None
        if facts is not None:
            yield own.run[0], Reason(code="GPU7024", params=tuple(facts.items()))


def held_facts(ref: ObjectRef, job: JobId, body: Body) -> Mapping[str, str] | None:
    """The facts to show about a deleted object that others' finalizers keep; None for any other object."""
    deleted_ms, holding = instant(body, "metadata", "deletionTimestamp"), holders(body)
    if deleted_ms is None or not holding:
        return None
    since = format_seconds(deleted_ms)
    return {"object": str(ref), "job": str(job), "since": since, "finalizers": ", ".join(holding)}


def taken_names(declared: Declared, state: ClusterState, cache: PlanCache | None = None) -> Mapping[JobId, ObjectRef]:
    """The jobs that can't start because another team's Job or Deployment has the name of their run's object.

    `cache` (of the plan before) saves work and changes no result. Cost: a name for each declared job, where there is
    such an object in a project's namespace and something has changed.
    """
    spaces = {project.name: project.namespace for project in declared.projects}
    inside = frozenset(spaces.values())
    foreign = frozenset(ref for ref in state.foreign if ref.namespace in inside) if state.foreign else frozenset()
    if not foreign:
        return {}

    def find() -> Mapping[JobId, ObjectRef]:
        refs = {
            ObjectRef(*kind_of(job), spaces[job.id.project], names.run_name(job.id.name, job.digest)): job.id
            for job in declared.jobs
        }
        return {refs[ref]: ref for ref in sorted(foreign & refs.keys())}

    return (cache or PlanCache()).taken(foreign, (declared.jobs, spaces), find)


def unreadable_jobs(state: ClusterState) -> frozenset[JobId]:
    """The jobs whose run's object can't be read."""
    runs = (state.own[ref].run for ref, _ in state.unreadable if ref in state.own)
    return frozenset(run[0] for run in runs)
