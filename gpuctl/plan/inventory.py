"""The ledgers as they are to be written: what gpuctl may have applied, which runs were seen, which have ended.

A ledger is written before the effects it records, so it is never behind the cluster: `inventory` grows by what this
plan applies and shrinks only by what is observed to be gone. Nothing is in it that gpuctl was not told to apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.k8s import names
from gpuctl.k8s.ledger import ledger_ref
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.decision import Finished, JobState, Schedule, TimeOut
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef, ProjectName, RunKey
from gpuctl.model.job import JobType
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ClusterState, FinishedRun, Ledger, Run
from gpuctl.model.usage import Usage
from gpuctl.plan.checks import Checks

OWN = ProjectName(names.CLUSTER_LEDGER)
"""The cluster's own part, where a project would stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What ledgers are made of, gathered once a plan and grouped by project. `remade` runs are on record no more."""

    wanted: Mapping[ProjectName, frozenset[ObjectRef]]
    projects: frozenset[ProjectName]
    declared: frozenset[RunKey]
    standing: Mapping[ProjectName, frozenset[RunKey]]
    remade: frozenset[RunKey] = frozenset()
    ended: Mapping[ProjectName, tuple[FinishedRun, ...]] = field(default_factory=dict)
    usage: Mapping[ProjectName, Usage] = field(default_factory=dict)


def known_ledgers(declared: Declared, state: ClusterState) -> dict[ProjectName, Ledger]:
    """The ledgers of this cluster; another one may share the API server."""
    here = declared.cluster.name
    return {name: ledger for name, ledger in state.ledgers.items() if ledger_ref(here, name) in state.live}


def shard_owner(shard: ObjectRef) -> ProjectName:
    """The project that a part of a split ledger is of."""
    return ProjectName((names.shard_owner(shard.name) or ("", OWN))[1])


def shards_by_project(state: ClusterState) -> Mapping[ProjectName, Sequence[ObjectRef]]:
    """The objects that hold a part of a split ledger, or did."""
    found: dict[ProjectName, list[ObjectRef]] = {}
    for ref in state.shards:
        found.setdefault(shard_owner(ref), []).append(ref)
    return found


def gather(declared: Declared, schedule: Schedule, manifests: Manifests, state: ClusterState, checks: Checks) -> Books:
    """Read the books' entries off what is declared, decided and observed."""
    observed = {(run.job, run.digest): run for run in state.runs}
    return Books(
        wanted=_by_project(declared, manifests),
        projects=frozenset(project.name for project in declared.projects),
        declared=frozenset((job.id, job.digest) for job in declared.jobs),
        standing=_standing(declared, state, checks),
        ended=_ended(declared, schedule, observed),
        usage=schedule.usage,
    )


def next_ledger(declared: Declared, old: Ledger, books: Books, state: ClusterState) -> Ledger:
    """The project's ledger after `old`. Equal to it when nothing changed.

    A run is forgotten as soon as it is no longer declared: declared once more, it is a new wish, and what is still
    leaving then is not taken for it. Of a project that is gone, all that stands is kept: its removal may be refused.
    """
    project = old.project
    wanted = books.wanted.get(project, frozenset())
    standing = books.standing.get(project, frozenset())
    kept = books.declared if project in books.projects else books.declared | standing
    seen = {key for key in (old.seen | standing) - books.remade if key[0].project == project and key in kept}
    finished = {key: run for key, run in old.finished.items() if key in kept}
    for run in books.ended.get(project, ()):
        finished.setdefault((run.job, run.digest), run)
    return Ledger(
        project=project,
        revision=declared.project_revisions.get(project, old.revision),
        content=declared.project_contents.get(project, old.content),
        inventory=wanted | frozenset(ref for ref in old.inventory if ref in state.live),
        seen=frozenset(seen),
        finished=finished,
        usage=books.usage.get(project),
    )


def _standing(declared: Declared, state: ClusterState, checks: Checks) -> dict[ProjectName, frozenset[RunKey]]:
    """The cluster's runs whose object is there and is not being deleted."""
    found: dict[ProjectName, set[RunKey]] = {}
    for ref, live in state.live.items():
        run = checks.standing(ref, live, declared.cluster.name) if is_workload(ref) else None
        if run is not None:
            found.setdefault(run[0].project, set()).add(run)
    return {project: frozenset(runs) for project, runs in found.items()}


def _by_project(declared: Declared, manifests: Manifests) -> dict[ProjectName, frozenset[ObjectRef]]:
    """What each project's inventory takes up. A namespace that was adopted is not gpuctl's to delete, ever."""
    adopted = {project.name for project in declared.projects if project.adopt}
    wanted: dict[ProjectName, set[ObjectRef]] = {}
    for item in manifests.items:
        project = OWN if item.project is None else item.project
        kind = (item.ref.api_version, item.ref.kind)
        if kind == names.NAMESPACE and (project in adopted or item.ref.name == names.SYSTEM_NAMESPACE):
            continue
        wanted.setdefault(project, set()).add(item.ref)
    return {project: frozenset(refs) for project, refs in wanted.items()}


def _ended(
    declared: Declared, schedule: Schedule, observed: Mapping[RunKey, Run]
) -> dict[ProjectName, tuple[FinishedRun, ...]]:
    """Runs this cycle found ended or ends for good. A Job is ended by its own deadline, a Deployment has none."""
    jobs = {job.id: job for job in declared.jobs}
    ended: dict[ProjectName, list[FinishedRun]] = {}
    for decision in schedule.decisions:
        job = jobs[decision.job]
        if isinstance(decision, Finished):
            state = decision.state
        elif isinstance(decision, TimeOut) and job.type is JobType.INFERENCE:
            state = JobState.TIMED_OUT
        else:
            continue
        run = observed.get((job.id, job.digest))
        at_ms = run.finished_at_ms if run is not None and run.finished_at_ms is not None else schedule.at_ms
        ended.setdefault(job.id.project, []).append(
            FinishedRun(job=job.id, digest=job.digest, state=state, at_ms=at_ms, starts=decision.record.starts)
        )
    return {project: tuple(runs) for project, runs in ended.items()}
